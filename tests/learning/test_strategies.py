import copy
import io

import pytest
import torch
from torch import Tensor, nn

from dupt_swarm.learning.strategies import build_strategy
from dupt_swarm.learning.strategies import diloco as diloco_module
from dupt_swarm.learning.strategies import flat as flat_module
from dupt_swarm.learning.strategies.flat import Snapshot, flatten, move, unflatten
from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import load_preset

NUMEL = 6 * 4 + 6
INNER = {
    "adamw": {"optimizer": "adamw", "learning_rate": 0.01, "clip_norm": 0.0},
    "sgd": {"optimizer": "sgd", "learning_rate": 0.01, "clip_norm": 0.0},
    "muon": {"optimizer": "muon", "learning_rate": 0.01, "clip_norm": 0.0},
    "none": {"optimizer": "none", "learning_rate": 0.0, "clip_norm": 0.0},
}


def manifest_of(optimizer: str, clip_norm: float = 0.0) -> Manifest:
    tables = load_preset("tiny")
    size = tables["model"]["vocabulary_size"]
    tables |= {"name": "test", "seed": 1, "tokenizer": {"sha256": "0" * 64, "vocabulary_size": size}}
    tables["inner"] |= INNER[optimizer] | {"clip_norm": clip_norm}
    tables["rounds"]["strategy"] = "gradient" if optimizer == "none" else "diloco"
    return Manifest.model_validate(tables)


def vector(seed: int) -> Tensor:
    return torch.randn(NUMEL, generator=torch.Generator().manual_seed(seed))


class Oracle:
    """A matrix and a bias with a strategy, whose gradients the test makes up."""

    def __init__(self, optimizer: str, anchor: Tensor, clip_norm: float = 0.0) -> None:
        self.parameters = [nn.Parameter(torch.zeros(6, 4)), nn.Parameter(torch.zeros(6))]
        self.strategy = build_strategy(
            self.parameters, manifest_of(optimizer, clip_norm), anchor, matrices=self.parameters[:1]
        )

    def step(self, gradient: Tensor, tokens: int = 10) -> None:
        for parameter, part in zip(self.parameters, gradient.split([24, 6]), strict=True):
            parameter.grad = part.view_as(parameter).clone()
        self.strategy.inner_step(tokens, 0.01)

    def contribute(self) -> Tensor:
        self.strategy.mark()
        return self.strategy.contribute()

    @property
    def values(self) -> Tensor:
        return flatten(self.parameters)


@pytest.mark.parametrize("optimizer", INNER)
def test_begins_at_the_anchor(optimizer: str) -> None:
    """The parameters are set to the anchor, bit for bit, and the anchor is not held by reference."""
    anchor = vector(0)
    oracle = Oracle(optimizer, anchor)
    anchor.zero_()
    assert torch.equal(oracle.values, vector(0))


@pytest.mark.parametrize("optimizer", INNER)
def test_accept_without_progress_is_the_anchor(optimizer: str) -> None:
    """Where nothing was done since the contribution, the parameters are exactly the new anchor."""
    oracle = Oracle(optimizer, vector(0))
    for seed in (1, 2, 3):
        oracle.step(vector(seed))
    oracle.contribute()
    oracle.strategy.accept(vector(9) * 100)
    assert torch.equal(oracle.values, vector(9) * 100)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_diloco_contributes_the_way_back(optimizer: str) -> None:
    """The pseudo-gradient is anchor − parameters."""
    oracle = Oracle(optimizer, vector(0))
    oracle.step(vector(1))
    assert torch.equal(oracle.contribute(), vector(0) - oracle.values)
    assert not torch.equal(oracle.values, vector(0))


@pytest.mark.parametrize("optimizer", INNER)
def test_the_contribution_is_what_was_marked(optimizer: str) -> None:
    """Steps after the mark are no part of it, whenever it is computed."""
    oracle, same = Oracle(optimizer, vector(0)), Oracle(optimizer, vector(0))
    for each in (oracle, same):
        each.step(vector(1))
    oracle.strategy.mark()
    oracle.step(vector(2))
    assert torch.equal(oracle.strategy.contribute(), same.contribute())


def test_diloco_inner_step_is_the_inner_optimizers() -> None:
    """An inner step of SGD moves by learning rate × gradient, whatever the tokens."""
    oracle = Oracle("sgd", vector(0))
    for parameter, part in zip(oracle.parameters, vector(1).split([24, 6]), strict=True):
        parameter.grad = part.view_as(parameter).clone()
    oracle.strategy.inner_step(12345, 0.005)
    decay = torch.tensor([1 - 0.005 * 0.1] * 24 + [1.0] * 6)
    torch.testing.assert_close(oracle.values, vector(0) * decay - 0.005 * vector(1))


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_diloco_accept_keeps_progress(optimizer: str) -> None:
    """Inner steps made while the others averaged are carried over to the new anchor."""
    oracle = Oracle(optimizer, vector(0))
    oracle.step(vector(1))
    oracle.contribute()
    sent = oracle.values
    oracle.step(vector(2))
    progress = oracle.values - sent
    assert float(progress.abs().max()) > 1e-3
    oracle.strategy.accept(vector(9))
    assert torch.equal(oracle.values, vector(9) + progress)
    torch.testing.assert_close(oracle.contribute(), -progress, rtol=0, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_diloco_rebase_keeps_all_progress(optimizer: str) -> None:
    """When the swarm moved on without us, everything since the old anchor is carried over."""
    oracle = Oracle(optimizer, vector(0))
    oracle.step(vector(1))
    oracle.contribute()  # the round that we missed
    oracle.step(vector(2))
    progress = oracle.values - vector(0)
    oracle.strategy.rebase(vector(9))
    assert torch.equal(oracle.values, vector(9) + progress)
    torch.testing.assert_close(oracle.contribute(), -progress, rtol=0, atol=1e-6)


@pytest.mark.parametrize("part", [0.25, 1.0])
def test_diloco_brings_back_what_a_branch_has_learnt(part: float) -> None:
    """From the old anchor to the new one of another branch: own progress, and a part of the branch's."""
    oracle = Oracle("sgd", vector(0))
    oracle.strategy.rebase(vector(3))  # where the branch began
    oracle.step(vector(1))
    oracle.contribute()
    oracle.strategy.accept(vector(4))  # where it had come to
    oracle.step(vector(2))
    progress = oracle.values - vector(4)
    oracle.strategy.bring_back(vector(9), vector(3), part)
    learnt = part * (vector(4) - vector(3))
    torch.testing.assert_close(oracle.values, vector(9) + progress + learnt, rtol=0, atol=1e-6)
    torch.testing.assert_close(oracle.contribute(), -progress - learnt, rtol=0, atol=2e-6)
    oracle.strategy.accept(vector(5))
    assert torch.equal(oracle.values, vector(5))


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_diloco_failed_round_keeps_the_contribution(optimizer: str) -> None:
    """After a failed round the next contribution has the old progress and the new."""
    oracle = Oracle(optimizer, vector(0))
    oracle.step(vector(1))
    first = oracle.contribute()
    oracle.step(vector(2))
    second = oracle.contribute()
    assert torch.equal(second, vector(0) - oracle.values)
    assert not torch.equal(second, first)
    oracle.strategy.accept(vector(9))
    assert torch.equal(oracle.values, vector(9))


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_diloco_discard(optimizer: str) -> None:
    """A NaN costs the progress since the anchor and the inner optimizer's memory, and no more."""
    oracle, fresh = Oracle(optimizer, vector(0)), Oracle(optimizer, vector(0))
    oracle.step(vector(1) * float("nan"))
    assert bool(oracle.contribute().isnan().all())
    oracle.strategy.discard()
    assert torch.equal(oracle.values, vector(0))
    oracle.step(vector(2))
    fresh.step(vector(2))
    assert torch.equal(oracle.values, fresh.values)


def test_gradient_contributes_the_mean() -> None:
    """The contribution is the mean gradient over all tokens, and the parameters stay at the anchor."""
    oracle = Oracle("none", vector(0))
    oracle.step(vector(1), tokens=10)
    oracle.step(vector(2), tokens=30)
    torch.testing.assert_close(oracle.contribute(), (vector(1) * 10 + vector(2) * 30) / 40)
    assert torch.equal(oracle.values, vector(0))


def test_gradient_accept_keeps_later_gradients() -> None:
    """Gradients taken while the others averaged are in the next contribution, those sent are not."""
    oracle = Oracle("none", vector(0))
    oracle.step(vector(1))
    oracle.contribute()
    oracle.step(vector(2), tokens=20)
    oracle.strategy.accept(vector(9))
    assert torch.equal(oracle.values, vector(9))
    torch.testing.assert_close(oracle.contribute(), vector(2), rtol=1e-5, atol=1e-6)


def test_gradient_accept_without_progress_leaves_nothing() -> None:
    """Nothing of what was sent is left: the next contribution is the next gradient, bit for bit."""
    oracle = Oracle("none", vector(0))
    oracle.step(vector(1))
    oracle.contribute()
    oracle.strategy.accept(vector(9))
    oracle.step(vector(2), tokens=1)
    assert torch.equal(oracle.contribute(), vector(2))


@pytest.mark.parametrize("event", ["failed round", "rebase", "branch"])
def test_gradient_keeps_what_was_not_taken(event: str) -> None:
    """After a failed or a missed round the next contribution has the old gradients and the new."""
    oracle = Oracle("none", vector(0))
    oracle.step(vector(1), tokens=10)
    oracle.contribute()
    if event == "rebase":
        oracle.strategy.rebase(vector(9))
        assert torch.equal(oracle.values, vector(9))
    if event == "branch":
        oracle.strategy.bring_back(vector(9), vector(3), 1.0)
        assert torch.equal(oracle.values, vector(9))
    oracle.step(vector(2), tokens=30)
    torch.testing.assert_close(oracle.contribute(), (vector(1) * 10 + vector(2) * 30) / 40)


def test_gradient_discard() -> None:
    """A NaN costs the gradients since the anchor, and no more."""
    oracle = Oracle("none", vector(0))
    oracle.step(vector(1) * float("inf"))
    oracle.contribute()
    oracle.strategy.discard()
    oracle.step(vector(2), tokens=1)
    assert torch.equal(oracle.contribute(), vector(2))
    assert torch.equal(oracle.values, vector(0))


def test_parameters_without_gradient() -> None:
    """A parameter that the loss does not depend on counts as one with gradient zero."""
    oracle = Oracle("none", vector(0))
    oracle.parameters[0].grad = torch.ones(6, 4)
    oracle.strategy.inner_step(1, 1.0)
    assert oracle.contribute().tolist() == [1.0] * 24 + [0.0] * 6


@pytest.mark.parametrize("optimizer", ["sgd", "none"])
def test_gradients_are_clipped(optimizer: str) -> None:
    """A gradient longer than the limit is shortened to it before it counts."""
    gradient = vector(1) * 100
    clipped, plain = Oracle(optimizer, vector(0), clip_norm=0.5), Oracle(optimizer, vector(0))
    clipped.step(gradient)
    plain.step(gradient * (0.5 / gradient.norm()))
    torch.testing.assert_close(clipped.contribute(), plain.contribute(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", INNER)
def test_state_dict_round_trip(optimizer: str) -> None:
    """An oracle that was saved and loaded goes on bit for bit as one that never stopped."""
    oracle = Oracle(optimizer, vector(0))
    for seed in (1, 2, 3):
        oracle.step(vector(seed))
    file = io.BytesIO()
    torch.save(copy.deepcopy(oracle.strategy.state_dict()), file)
    file.seek(0)
    resumed = Oracle(optimizer, vector(0))
    resumed.strategy.load_state_dict(torch.load(file, weights_only=True))
    for each in (oracle, resumed):
        each.step(vector(4))
        each.contribute()
        each.step(vector(5), tokens=7)
        each.strategy.accept(vector(9))
        each.step(vector(6))
    assert torch.equal(resumed.values, oracle.values)
    assert torch.equal(resumed.contribute(), oracle.contribute())


def test_flatten_and_back() -> None:
    """Parameters become one vector in their order, a copy, and come back from it."""
    parameters = [nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]])), nn.Parameter(torch.tensor([5.0]))]
    flat = flatten(parameters)
    assert flat.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    unflatten(torch.arange(5.0), parameters)
    assert parameters[0].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert flat.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert flatten(parameters[:1] * 1).data_ptr() != parameters[0].data_ptr()


@pytest.mark.parametrize("optimizer", INNER)
def test_a_move_changes_nothing(optimizer: str) -> None:
    """One that lay elsewhere for a while, as in a pause, goes on as one that did not.

    There is one device here; what is moved, and that a card is empty then, a fake one shows.
    """
    moved, stayed = Oracle(optimizer, vector(0)), Oracle(optimizer, vector(0))
    for oracle in (moved, stayed):
        oracle.step(vector(1))
        oracle.contribute()
    moved.strategy.move_to(torch.device("cpu"))
    assert all(parameter.grad is None for parameter in moved.parameters)
    for oracle in (moved, stayed):
        oracle.strategy.accept(vector(2))
        oracle.step(vector(3))
    assert torch.equal(moved.values, stayed.values)
    assert torch.equal(moved.contribute(), stayed.contribute())


def test_the_model_is_asked_where_all_of_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A swarm goes on while an oracle is paused, whose parameters alone have left the device: how common the
    model finds tokens is seen once they are back.

    Device "meta" stands for the main memory; nothing can come back from it, so values are made up.
    """
    oracle = Oracle("adamw", vector(0))
    asked: list[str] = []

    def move_away(device: torch.device, parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            torch.utils.swap_tensors(parameter, nn.Parameter(torch.zeros(parameter.shape, device=device)))

    monkeypatch.setattr(diloco_module, "move_to", move_away)
    monkeypatch.setattr(
        diloco_module, "renew_scales", lambda _: asked.append(oracle.parameters[0].device.type)
    )
    oracle.strategy.rebase(vector(1))
    assert asked == ["cpu"]
    oracle.strategy.move_to(torch.device("meta"))
    oracle.strategy.rebase(vector(2))
    assert asked == ["cpu"]
    oracle.strategy.move_to(torch.device("cpu"))
    assert asked == ["cpu", "cpu"]
    for device in ("meta", "cpu"):  # nothing was averaged in this pause
        oracle.strategy.move_to(torch.device(device))
    assert asked == ["cpu", "cpu"]


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_vectors_come_in_pieces(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    """However they are cut, and whatever their layout: parameters move as one vector would."""
    monkeypatch.setattr(flat_module, "PIECE", piece)
    parameters = [nn.Parameter(torch.randn(6, 4).T), nn.Parameter(torch.randn(5))]
    before = flatten(parameters)
    base, anchor = torch.randn(2, 29)
    move(parameters, base, anchor)
    assert torch.equal(flatten(parameters), (before - base) + anchor)
    move(parameters, flatten(parameters), base)
    assert torch.equal(flatten(parameters), base)
    unflatten(anchor, parameters)
    assert torch.equal(flatten(parameters), anchor)


def test_a_snapshot_is_of_its_moment() -> None:
    """What happens to the parameters later does not change it, and the next one takes its memory."""
    parameters = [nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.ones(1))]
    snapshot = Snapshot(parameters)
    snapshot.take()
    unflatten(torch.full((5,), 3.0), parameters)
    values = snapshot.values
    assert values.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    snapshot.take()
    assert snapshot.values.tolist() == [3.0] * 5
    assert snapshot.values.data_ptr() == values.data_ptr()
