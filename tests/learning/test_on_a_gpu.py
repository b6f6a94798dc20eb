"""What an oracle asks of a GPU, at real size.

There is none here: the device is fake (`tests.support.fake_gpu`), so nothing is computed, but every operator,
copy and allocation is as on a card. Whatever would wait for the card raises there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dupt_swarm.learning.activation_checkpointing import checkpoint_activations
from dupt_swarm.learning.batches import Batch
from dupt_swarm.learning.device import as_written, maybe_compile
from dupt_swarm.learning.strategies.flat import PIECE
from dupt_swarm.learning.threads import Threads
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.presets import PRESETS
from tests.support.fake_gpu.library import build
from tests.support.small_models import small_model

FLOAT = 4
SIZES = [("gpt1",), pytest.param(("llama", "1b"), marks=pytest.mark.system)]  # the latter takes longer
# Dynamo makes one when it reads the loss; whatever else it warns of fails the test.
OF_DYNAMO = "ignore:<class 'torch.autograd.function.Function'> should not be:DeprecationWarning"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake device, for a process that has not loaded PyTorch yet."""
    return build(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="module", params=SIZES, ids="-".join)
def facts(library: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What was measured of steps and a round of a preset."""
    scenes = [sys.executable, "-m", "tests.support.fake_gpu.scenes", str(library), *request.param]
    found = subprocess.run(scenes, check=True, capture_output=True, text=True, timeout=600)
    measured: dict[str, Any] = json.loads(found.stdout)
    return measured


def test_a_step_waits_for_nothing(facts: dict[str, Any]) -> None:
    """A batch goes to the card and a loss comes back, both by themselves; anything else would have raised."""
    assert facts["step"]["operators"] > 1_000
    assert facts["step"]["copied"] == {"cpu to cuda": facts["batch_bytes"], "cuda to cpu": FLOAT}


def test_blocks_hand_on_half_the_bytes(facts: dict[str, Any]) -> None:
    """What a norm gives goes into products, in whose precision it is."""
    assert facts["normalised"] == "torch.bfloat16"


def test_seeing_what_is_common_waits_for_nothing(facts: dict[str, Any]) -> None:
    """What the model writes stays on the card."""
    assert facts["unigrams"]["operators"] > 100
    assert facts["unigrams"]["copied"] == {}
    assert facts["unigrams"]["peak"] < 16 * facts["weights"] + (1 << 26)


def test_sixteen_bytes_per_weight(facts: dict[str, Any]) -> None:
    """Between steps parameters and two moments are there, in a round gradients and a piece on its way."""
    weights, little = facts["weights"], 1 << 22
    assert facts["step"]["live"] < 12 * weights + little
    for scene in ("mark", "contribute", "judge", "accept", "rebase", "checkpoint"):
        assert facts[scene]["peak"] < 16 * weights + 2 * FLOAT * PIECE + little, scene


def test_what_gives_way_leaves_the_card(facts: dict[str, Any]) -> None:
    """Offloaded, it holds parameters alone between steps; gradients and activations come within.

    Moments come and go once in a step. Activations that are computed again leave what goes into each block.
    """
    weights, moments = FLOAT * facts["weights"], FLOAT * facts["moments"]
    plain, offloaded, both = facts["ways"]
    assert plain["peak"] > 2 * weights + moments
    for way in (offloaded, both):
        assert way["before"] == 0
        assert way["live"] < weights + (1 << 22)
        assert way["copied"]["cuda to cpu"] == pytest.approx(moments, rel=0.001)
        assert way["copied"]["cpu to cuda"] == pytest.approx(moments, rel=0.001)
    assert offloaded["peak"] < plain["peak"] - 0.8 * moments  # the embedding's visit with their gradient
    assert 2 * weights < both["peak"] <= offloaded["peak"]


def test_the_estimate_is_near_what_is_asked_for(facts: dict[str, Any]) -> None:
    """What `dupt-peer check` predicts of one sequence, whatever gives way, less what CUDA takes itself."""
    for way, estimated in zip(facts["ways"], facts["estimated"], strict=True):
        assert way["peak"] / 1.1 < estimated < way["peak"] * 1.35


def test_copies_of_a_round(facts: dict[str, Any]) -> None:
    """The mark comes, anchor and mark go; to judge, the parameters come and go, and the candidate goes."""
    vector = FLOAT * facts["weights"]
    assert facts["mark"]["copied"] == {"cuda to cpu": vector}
    assert facts["contribute"]["operators"] == 0, (
        "it is computed in another thread, and leaves the card alone"
    )
    assert facts["judge"]["copied"] == {"cuda to cpu": vector, "cpu to cuda": 2 * vector}
    for scene in ("accept", "rebase"):
        assert facts[scene]["copied"] == {"cpu to cuda": 2 * vector}


def test_a_pause_leaves_the_card_to_others(facts: dict[str, Any]) -> None:
    """Parameters and moments come to the main memory, and go back for the next step.

    A fake parameter does not notice where its values are, so only the moments are seen on the way back.
    """
    little, copied = 1 << 22, FLOAT * (facts["weights"] + facts["moments"])
    assert facts["rest"]["live"] < little
    assert facts["rest"]["copied"] == {"cuda to cpu": pytest.approx(copied, rel=0.001)}
    assert facts["wake"]["copied"] == {"cpu to cuda": pytest.approx(FLOAT * facts["moments"], rel=0.001)}


class Counting:
    """Dynamo's backend that keeps the graphs, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., Any]:
        self.graphs.append(graph)
        return graph.forward


class Descent:
    """A step in place, as any optimizer's."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._inner = torch.optim.SGD(model.parameters(), 1e-3)
        self.zero_grad = self._inner.zero_grad

    def step(self, *, tokens: int) -> None:
        del tokens
        self._inner.step()


class Blocks:
    """The same batch again and again."""

    tokens_per_example = 16

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __next__(self) -> Batch:
        return self._batch

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


# Batches of pairs differ in their shapes, so that an encoder-decoder is not compiled.
@pytest.mark.filterwarnings(OF_DYNAMO)
@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset != "transformer"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_one_graph_for_a_run(monkeypatch: pytest.MonkeyPatch, preset: str, checkpointing: bool) -> None:
    """The loss is one graph, without a break, and stays the only one: whatever is evaluated in between, and
    although the threads of a CPU would be adapted."""
    torch.compiler.reset()
    model, batch = small_model(preset)
    backend, blocks = Counting(), Blocks(batch)
    checkpoint_activations(model, wanted=checkpointing)
    compile_model = model.compile
    monkeypatch.setattr(model, "compile", lambda **how: compile_model(backend=backend, fullgraph=True, **how))
    assert maybe_compile(model, torch.device("cpu"), flag=True)
    trainer = Trainer(model, Descent(model), blocks, torch.device("cpu"))
    threads = Threads(computing=False)
    for _ in range(3):
        trainer.step()
        threads.adapt()
        with as_written(model), torch.no_grad():
            model(*(tensor[:1] for tensor in next(blocks)))
    assert len(backend.graphs) == 1
