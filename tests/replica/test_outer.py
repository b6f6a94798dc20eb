import math
from typing import Any

import numpy as np
import pytest
import torch

from dupt_swarm.manifest.learning_rate import outer_learning_rate
from dupt_swarm.manifest.schedule import power
from dupt_swarm.replica.codec import PART_VALUES
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState

ROUNDS = 30
GRADIENT = {"strategy": "gradient"}
NONE = {"optimizer": "none", "learning_rate": 0.0}


@pytest.fixture
def averages() -> list[torch.Tensor]:
    """The average contributions of thirty rounds, small as pseudo-gradients are."""
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(52, generator=generator) * 1e-3 for _ in range(ROUNDS)]


@pytest.fixture
def nesterov(make_manifest):
    """Nesterov with a learning rate and a momentum that are not exact in fp32."""
    return make_manifest(outer={"learning_rate": 0.7, "momentum": 0.9})


@pytest.fixture
def adamw(make_manifest):
    """AdamW of strategy `gradient`, with decay and a schedule."""
    outer = {"optimizer": "adamw", "learning_rate": 3e-4, "beta2": 0.95, "weight_decay": 0.1}
    schedule = {"warmup_updates": 5, "total_updates": 40, "final_ratio": 0.1}
    return make_manifest(outer=outer, schedule=schedule, rounds=GRADIENT, inner=NONE)


def step(manifest, state: ReplicaState, average: torch.Tensor, tokens: int) -> ReplicaState:
    """A round with this average, the first of whose parts comes last."""
    following = NextState(build_outer(manifest), state)
    first, *others = enumerate(average.clone().split(PART_VALUES))
    for number, part in (*others, first):
        following.take(number, part)
    return following.finish(tokens, ["a"])


def run(manifest, parameters, averages) -> ReplicaState:
    state = first_state(manifest, parameters)
    for average in averages:
        state = step(manifest, state, average, 100)
    return state


def reference(optimizer, parameters, averages, rate) -> torch.Tensor:
    """The parameters after PyTorch's own optimizer took the same steps."""
    for number, average in enumerate(averages):
        parts = average.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter).clone()
        for group in optimizer.param_groups:
            group["lr"] = rate(number)
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_nesterov_is_pytorchs(make_manifest, parameters, averages, momentum) -> None:
    """Thirty rounds give what torch.optim.SGD gives, to the rounding of fp32."""
    manifest = make_manifest(outer={"learning_rate": 0.7, "momentum": momentum})
    actual = run(manifest, parameters, averages)
    copies = [parameter.clone().requires_grad_() for parameter in parameters]
    sgd = torch.optim.SGD(copies, lr=0.7, momentum=momentum, nesterov=momentum > 0)
    expected = reference(sgd, copies, averages, lambda _: 0.7)
    torch.testing.assert_close(actual.anchor, expected, rtol=1e-6, atol=1e-6)
    assert float((actual.anchor - torch.cat([part.flatten() for part in parameters])).abs().max()) > 1e-3


def test_adamw_is_pytorchs(adamw, parameters, averages) -> None:
    """Thirty rounds give what torch.optim.AdamW gives with decay on matrices only, to fp32 rounding."""
    actual = run(adamw, parameters, averages)
    copies = [parameter.clone().requires_grad_() for parameter in parameters]
    groups = [
        {"params": [part for part in copies if part.ndim >= 2], "weight_decay": 0.1},
        {"params": [part for part in copies if part.ndim < 2], "weight_decay": 0.0},
    ]
    torch_adamw = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), eps=1e-8)
    rate = adamw.schedule.factor
    expected = reference(torch_adamw, copies, averages, lambda number: 3e-4 * rate(number))
    torch.testing.assert_close(actual.anchor, expected, rtol=1e-6, atol=1e-6)
    assert float((actual.anchor - torch.cat([part.flatten() for part in parameters])).abs().max()) > 1e-3


def test_nesterov_is_exact(nesterov, parameters, averages) -> None:
    """Each bit is that of separate IEEE 754 operations in single precision, as NumPy does them."""
    state = first_state(nesterov, parameters)
    anchor, velocity = state.anchor.numpy().copy(), np.zeros(52, np.float32)
    rate, momentum = np.float32(0.7), np.float32(0.9)
    for average in averages:
        gradient = average.numpy()
        velocity = velocity * momentum
        velocity = velocity + gradient
        update = velocity * momentum
        update = update + gradient
        anchor = anchor - update * rate
    actual = run(nesterov, parameters, averages)
    assert actual.anchor.numpy().tobytes() == anchor.tobytes()
    assert actual.buffers["velocity"].numpy().tobytes() == velocity.tobytes()


def test_adamw_is_exact(adamw) -> None:
    """Each bit is that of separate IEEE 754 operations in single precision, the square root included."""
    # Enough that a root that is sometimes off by one bit is noticed, and for three parts.
    numel, f32 = 600_000, np.float32
    generator = torch.Generator().manual_seed(3)
    matrix, bias = torch.randn(numel - 100, 1, generator=generator), torch.randn(100, generator=generator)
    averages = [torch.randn(numel, generator=generator) * 1e-3 for _ in range(3)]
    state = first_state(adamw, [matrix, bias])
    anchor = state.anchor.numpy().copy()
    mean: Any = np.zeros(numel, f32)
    variance: Any = mean
    for number, average in enumerate(averages):
        rate, gradient = 3e-4 * adamw.schedule.factor(number), average.numpy()
        mean = mean * f32(0.9) + gradient * f32(1 - 0.9)
        variance = variance * f32(0.95) + (gradient * gradient) * f32(1 - 0.95)
        root = np.sqrt(variance / f32(1 - power(0.95, number + 1)))
        update = (mean / f32(1 - power(0.9, number + 1))) / (root + f32(1e-8))
        decay = anchor[:-100] * f32(rate * 0.1)
        anchor = anchor - update * f32(rate)
        anchor[:-100] -= decay
    actual = run(adamw, [matrix, bias], averages)
    assert actual.buffers["mean"].numpy().tobytes() == mean.tobytes()
    assert actual.buffers["variance"].numpy().tobytes() == variance.tobytes()
    assert actual.anchor.numpy().tobytes() == anchor.tobytes()


def test_numpys_square_root_is_exact() -> None:
    """NumPy rounds the root of every number in [1, 4) as IEEE 754 demands; torch.sqrt does not."""
    bits = np.arange(np.float32(1).view(np.int32), np.float32(4).view(np.int32), dtype=np.int32)
    values = bits.view(np.float32)
    # A double has more than twice the digits, so its root, rounded once more, is the exact one.
    exact = np.sqrt(values.astype(np.float64)).astype(np.float32)
    assert np.sqrt(values).tobytes() == exact.tobytes()


def test_equal_bits_with_any_number_of_threads(adamw, nesterov) -> None:
    """One thread and several give the same digest, also where the work is split unevenly."""
    generator = torch.Generator().manual_seed(4)
    parameters = [torch.randn(1001, 301, generator=generator), torch.randn(77, generator=generator)]
    averages = [torch.randn(1001 * 301 + 77, generator=generator) * 1e-3 for _ in range(2)]
    before = torch.get_num_threads()
    digests = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            digests.append([run(manifest, parameters, averages).digest for manifest in (adamw, nesterov)])
    finally:
        torch.set_num_threads(before)
    assert digests[0] == digests[1]


def test_decay_is_on_matrices_only(make_manifest, parameters) -> None:
    """Without any gradient, matrices shrink by the rate × decay and biases stay as they are."""
    outer = {"optimizer": "adamw", "learning_rate": 0.5, "weight_decay": 0.1}
    manifest = make_manifest(outer=outer)
    before = first_state(manifest, parameters)
    after = step(manifest, before, torch.zeros(52), 1)
    bias = slice(35, 40)
    assert torch.equal(after.anchor[bias], before.anchor[bias])
    shrunk = before.anchor - before.anchor * (0.5 * 0.1)
    assert torch.equal(after.anchor[:35], shrunk[:35])
    assert torch.equal(after.anchor[40:], shrunk[40:])


@pytest.mark.parametrize("kind", ["nesterov", "adamw"])
def test_states_are_not_changed_in_place(request, parameters, averages, kind) -> None:
    """A step leaves the state before as it was, and counts the round and the tokens."""
    manifest = request.getfixturevalue(kind)
    before = run(manifest, parameters, averages[:2])
    bits = [tensor.clone() for tensor in (before.anchor, *before.buffers.values())]
    after = step(manifest, before, averages[2], 77)
    assert (after.round, after.swarm_tokens) == (3, 277)
    assert after.layout == before.layout
    for kept, tensor in zip(bits, (before.anchor, *before.buffers.values()), strict=True):
        assert torch.equal(kept, tensor)
    assert sorted(after.buffers) == sorted(build_outer(manifest).buffer_names)


def test_zero_momentum_needs_no_buffer(make_manifest) -> None:
    """Plain SGD keeps no velocity, so that its state is half as large to send."""
    assert build_outer(make_manifest(outer={"momentum": 0.0})).buffer_names == ()
    assert build_outer(make_manifest(outer={"momentum": 0.9})).buffer_names == ("velocity",)


def test_learning_rate(make_manifest, adamw) -> None:
    """The schedule scales the outer rate with `gradient`, and leaves it alone with `diloco`."""
    diloco = make_manifest(outer={"learning_rate": 0.7})
    assert [outer_learning_rate(diloco, round) for round in (0, 3, 10_000)] == [0.7, 0.7, 0.7]
    assert outer_learning_rate(adamw, 0) == 3e-4 * (1 / 6)
    assert outer_learning_rate(adamw, 5) == 3e-4
    assert math.isclose(outer_learning_rate(adamw, 40), 3e-5)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 10, 1000, 123_457])
def test_power(exponent: int) -> None:
    """Powers by squaring are those of exact arithmetic, to a few roundings."""
    assert math.isclose(power(0.999, exponent), math.pow(0.999, exponent), rel_tol=1e-10)


def test_a_square_beyond_fp32_is_no_state(adamw, parameters) -> None:
    """A variance of infinity would give a step of zero, which is finite, from then on."""
    with pytest.raises(OverflowError, match="not finite"):
        step(adamw, first_state(adamw, parameters), torch.full((52,), 1e20), 1)
