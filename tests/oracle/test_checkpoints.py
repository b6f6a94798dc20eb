"""Checkpoints that are written while training goes on, as on a GPU; here a CPU stands for it."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dupt_swarm import GPT, Swarm
from dupt_swarm.checkpoint import FINAL_MARK, ORACLE_FILE, REPLICA_FILE
from dupt_swarm.disk.files import sync_files
from dupt_swarm.learning.safe_state import read_tree, write_tree
from dupt_swarm.oracle.checkpoints import Checkpoints
from dupt_swarm.oracle.oracle import Oracle
from dupt_swarm.replica.storage import saved_digest
from dupt_swarm.settings import OracleSettings, WeightedCorpus
from tests.support.driven_swarm import Cluster
from tests.support.saved_models import small_manifest
from tests.support.sessions import training
from tests.support.waiting import wait_until

TOKENS = 640  # of a round

pytestmark = pytest.mark.usefixtures("nothing_left")


@contextmanager
def only_oracle(folder: Path) -> Iterator[tuple[Swarm, Oracle]]:
    """That of a swarm with a first peer; it shall save after each round."""
    words = " ".join(hashlib.sha256(str(number).encode()).hexdigest()[:4] for number in range(6000))
    (folder / "text.txt").write_text(words)
    manifest = small_manifest(rounds={"tokens_per_round": TOKENS})
    parameters = GPT(manifest.model).parameters()
    wish = OracleSettings([WeightedCorpus(folder / "text.txt")], held_out_blocks=2, checkpoint_seconds=0)
    with Cluster(folder, manifest, parameters, ("oracle",)) as cluster:
        [swarm] = cluster.oracles
        oracle = Oracle(swarm, wish)
        oracle._checkpoints._beside = True
        yield swarm, oracle


def test_training_goes_on_while_one_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the disk takes; and what is written is as it was when that began."""
    began, disk = threading.Event(), threading.Event()

    def slow(*what) -> None:
        began.set()
        disk.wait(60)
        sync_files(*what)

    with only_oracle(tmp_path) as (swarm, oracle):
        monkeypatch.setattr("dupt_swarm.disk.folders.sync_files", slow)  # joining writes, too
        with training([oracle]):
            assert began.wait(60)
            rounds = swarm.state.round
            wait_until(lambda: swarm.state.round > rounds + 2)
            assert swarm.folder.checkpoint is None
            weights = [parameter.clone() for parameter in oracle.model.parameters()]
            disk.set()
            wait_until(lambda: swarm.folder.checkpoint)
            oldest = min(swarm.folder.path.glob("checkpoint-*"))
            saved = read_tree(oldest / ORACLE_FILE)
            assert saved["state_digest"] == saved_digest(oldest / REPLICA_FILE)
            own = saved["optimizer"]
            done = own["tokens_total"] + own["round_tokens"]
            assert TOKENS <= done <= (rounds + 1) * TOKENS
            present = torch.cat([values.detach().reshape(-1) for values in weights])
            assert not torch.equal(own["strategy"]["parameters"], present)


def test_one_that_the_swarm_has_overtaken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A state to which the oracle's own part does not belong makes no checkpoint; a later one does."""
    save, saved = Swarm.save_replica, list[str]()

    def another(swarm: Swarm, path: Path):
        state = save(swarm, path)
        saved.append(state.digest)
        return replace(state, digest="0" * 64) if len(saved) == 1 else state

    monkeypatch.setattr(Swarm, "save_replica", another)
    with only_oracle(tmp_path) as (swarm, oracle), training([oracle]):
        wait_until(lambda: swarm.folder.checkpoint)
        assert saved_digest(min(swarm.folder.path.glob("checkpoint-*")) / REPLICA_FILE) in saved[1:]
    assert "the swarm went on before its state was in a checkpoint; training goes on" in caplog.text


def test_what_may_have_been_sent_since_is_doubtful(tmp_path: Path) -> None:
    """Only of the last checkpoint nothing was; and once it was gone on from, of that neither is it sure."""
    heard: list[bool] = []
    optimizer: Any = SimpleNamespace(contributed_tokens=0, round_tokens=0, failed_rounds=0)
    optimizer.load_state_dict = lambda _, *, doubtful: heard.append(doubtful)
    trainer: Any = SimpleNamespace(load_state_dict=lambda _: None, device=torch.device("cpu"))
    write_tree(tmp_path / ORACLE_FILE, {"state_digest": "a", "optimizer": {}, "trainer": {}})
    (tmp_path / FINAL_MARK).touch()
    for digest in ("another", "a", "a"):
        swarm: Any = SimpleNamespace(
            folder=SimpleNamespace(checkpoint=tmp_path), state=SimpleNamespace(digest=digest)
        )
        checkpoints = Checkpoints(swarm, optimizer, trainer, 1.0, lambda *_: None, lambda: False)
        checkpoints.resume()
        checkpoints.close()
    assert heard == [False, True], "and what belongs to another state is not taken"
