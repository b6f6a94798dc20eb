"""What no machine without a GPU can show: that vectors come to one and back as they are, and the rest."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dupt_swarm.learning.device import Arriving, autocast, wait_for
from dupt_swarm.learning.room import sequences_that_fit
from dupt_swarm.learning.strategies.diloco import DiLoCo
from dupt_swarm.learning.strategies.flat import PIECE, Snapshot, flatten, move, standing_at, unflatten
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest

Facts = dict[str, str]


def check(manifest: Manifest, device: torch.device) -> Facts:
    """Each check with ``ok``, or what went wrong."""
    checks: dict[str, Callable[[], None]] = {
        "vectors": lambda: vectors(device),
        "a round": lambda: a_round(manifest, device),
        "numbers": lambda: numbers(device),
        "room": lambda: room(manifest, device),
        "loss": lambda: loss(manifest, device),
    }
    facts: Facts = {}
    for name, run in checks.items():
        try:
            run()
            facts[name] = "ok"
        except Exception as error:
            facts[name] = f"{type(error).__name__}: {error}"[:500]
    return facts


def vectors(device: torch.device) -> None:
    """Longer than a piece; a snapshot is of the moment in which it was taken."""
    parameters = [nn.Parameter(torch.randn(size, device=device)) for size in (3, PIECE + 7, 5)]
    first = flatten(parameters).cpu()
    taken = Snapshot(parameters)
    taken.take()
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(1.0)
    assert torch.equal(taken.values, first), "the snapshot is not of its moment"
    second, base = flatten(parameters).cpu(), torch.randn_like(first)
    with standing_at(base, parameters):
        assert torch.equal(flatten(parameters).cpu(), base), "the parameters stand elsewhere"
    assert torch.equal(flatten(parameters).cpu(), second), "the parameters have changed"
    move(parameters, second, base)
    assert torch.equal(flatten(parameters).cpu(), base), "not bit for bit at the anchor"
    unflatten(first, parameters)
    assert torch.equal(flatten(parameters).cpu(), first)


def a_round(manifest: Manifest, device: torch.device) -> None:
    """`DiLoCo` contributes and accepts there as on a CPU, when steps go on meanwhile."""

    def contributed(where: torch.device) -> tuple[Tensor, Tensor]:
        parameters = [nn.Parameter(torch.linspace(-1, 1, 64, device=where).view(8, 8))]
        strategy = DiLoCo(parameters, manifest, torch.linspace(-1, 1, 64))
        for number in range(4):
            parameters[0].grad = torch.full((8, 8), number - 1.5, device=where)
            strategy.inner_step(1, 1e-2)
            if number == 1:
                strategy.mark()
        sent = strategy.contribute().clone()
        strategy.accept(torch.zeros(64))
        return sent, parameters[0].detach().cpu()

    for here, there in zip(contributed(torch.device("cpu")), contributed(device), strict=True):
        torch.testing.assert_close(there, here, rtol=1e-5, atol=1e-6)


def numbers(device: torch.device) -> None:
    """A number that is under way is the one that was sent."""
    value = torch.ones((), device=device)
    arriving = Arriving(value * 7)
    wait_for(device)
    assert arriving.here and arriving.number == 7


def room(manifest: Manifest, device: torch.device) -> None:
    """What is said to fit fits, and leaves no gradients."""
    model, context = GPT(manifest.model).to(device), manifest.model.context_length

    def batch_of(count: int) -> tuple[Tensor, Tensor]:
        ids = torch.randint(0, 1000, (count, context))
        return ids, ids

    most = 64
    found = sequences_that_fit(model, batch_of, most, device, 0)
    assert 1 <= found <= most, f"{found} sequences"
    assert all(parameter.grad is None for parameter in model.parameters())
    with autocast(device):
        model(*(ids.to(device) for ids in batch_of(found))).backward()


def loss(manifest: Manifest, device: torch.device) -> None:
    """In fp32 the loss is that of a CPU, whatever the vocabulary is padded to; in bf16 close to it."""
    model = GPT(manifest.model).eval()
    ids = torch.randint(0, 1000, (1, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        here = model(ids, ids)
        model.to(device)
        there = model(ids.to(device), ids.to(device)).cpu()
        with autocast(device):
            rounded = model(ids.to(device), ids.to(device)).float().cpu()
    torch.testing.assert_close(there, here, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(rounded, here, rtol=2e-2, atol=2e-2)
