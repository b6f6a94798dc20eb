"""An oracle with its trainer, corpus and checkpoints, in a real swarm."""

import hashlib
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from dupt_swarm import GPT, CollaborativeOptimizer
from dupt_swarm.checkpoint import ORACLE_FILE, REPLICA_FILE
from dupt_swarm.errors import DeviceError, UsageError
from dupt_swarm.learning.batches import cut_step
from dupt_swarm.learning.interruptible import Look
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from dupt_swarm.learning.trainer import Step, Trainer
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.record import RecordUpdate, publishable
from dupt_swarm.offer import cutting
from dupt_swarm.offer.cutting import cut_offer
from dupt_swarm.oracle.idleness import Idleness
from dupt_swarm.oracle.oracle import Oracle
from dupt_swarm.oracle.status import Status
from dupt_swarm.settings import OracleSettings, WeightedCorpus
from tests.support.contributions import put
from tests.support.driven_swarm import Cluster
from tests.support.sessions import Recorder, train_in_sessions, training
from tests.support.tiny import reduced_tables, tiny_manifest
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few thousand tokens of made-up text in several files."""
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(20):
        words = [hashlib.sha256(f"{number} {i}".encode()).hexdigest()[:4] for i in range(300)]
        (folder / f"{number}.txt").write_text(" ".join(words))
    return folder


def swarm_files(corpus: Path, **changes: Any) -> tuple[Manifest, bytes]:
    """A manifest with dropout, so that random states matter, and its tokenizer."""
    changes["rounds"] = {"tokens_per_round": 320} | changes.get("rounds", {})
    model = {"dropout": 0.1} | changes.pop("model", {})
    tokenizer = train_tokenizer((path.read_text() for path in sorted(corpus.iterdir())), 300)
    manifest = tiny_manifest(
        tokenizer.sha256,
        tokenizer.vocabulary_size,
        model=model,
        schedule={"warmup_updates": 3, "total_updates": 50},
        **changes,
    )
    return manifest, tokenizer.to_bytes()


def cluster_of(folder: Path, corpus: Path, *names: str, **changes: Any) -> Cluster:
    """A swarm of `swarm_files`."""
    manifest, tokenizer = swarm_files(corpus, **changes)
    return Cluster(folder, manifest, GPT(manifest.model).parameters(), names, tokenizer=tokenizer)


def corpora_of(corpus: Path, kind: str) -> list[WeightedCorpus]:
    """The files; or half of them as a corpus of their own, with less weight; or what the swarm offers."""
    whole, offered = WeightedCorpus(corpus), WeightedCorpus(None, 0.5)
    halves = [WeightedCorpus(corpus / "?.txt"), WeightedCorpus(corpus / "1?.txt", 0.3)]
    return {"whole": [whole], "halves": halves, "offered": [offered], "both": [whole, offered]}[kind]


def offering(manifest: Manifest, tokenizer: bytes, corpus: Path, folder: Path) -> Manifest:
    """The manifest of a swarm that offers this text, of which all shards are in ``folder``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "SHARD_TOKENS_MIN", 300)
        listed, _ = cut_offer(
            [TextFiles(corpus)],
            Tokenizer.of(manifest, tokenizer),
            folder,
            context_length=manifest.model.context_length,
            seed=1,
        )
    return Manifest.model_validate(manifest.model_dump() | {"offer": {"digest": listed.digest}})


def train(
    folder: Path,
    corpus: Path,
    sessions: list[int],
    identity: Path,
    *,
    kind: str = "whole",
    device: str = "cpu",
    sparing: bool | None = None,
    **changes: Any,
) -> tuple[list[float], Status]:
    """A single oracle that is stopped and started again after each number of steps; see `corpora_of`."""
    own_corpus = corpora_of(corpus, kind)
    manifest, tokenizer = swarm_files(corpus, **changes)
    if kind in ("offered", "both"):
        manifest = offering(manifest, tokenizer, corpus, folder / "offer")
    if manifest.offer:  # all of it is here: how soon it comes must not matter
        own = folder / "oracle" / manifest.swarm_id
        own.mkdir(parents=True)
        (folder / "offer").rename(own / "offer")
    parameters = GPT(manifest.model).parameters()
    wish = OracleSettings(
        own_corpus, device=device, held_out_blocks=2, offload=sparing, activation_checkpointing=sparing
    )
    return train_in_sessions(manifest, tokenizer, parameters, wish, folder, sessions, identity)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("kind", ["whole", "halves", "offered", "both"])
def test_a_stopped_oracle_goes_on_as_if_never_stopped(tmp_path: Path, corpus: Path, kind: str) -> None:
    """The losses of a single oracle are the same bits, whether it was stopped in between or not."""
    identity = tmp_path / "identity"
    whole, once = train(tmp_path / "a", corpus, [17], identity, kind=kind)
    parts, again = train(tmp_path / "b", corpus, [6, 4, 7], identity, kind=kind)
    assert len(whole) == 17
    assert parts == whole
    assert (again.round, again.contributed_tokens) == (once.round, once.contributed_tokens) == (3, 960)


@pytest.mark.usefixtures("nothing_left")
def test_an_oracle_that_spares_its_device_learns_the_same(tmp_path: Path, corpus: Path) -> None:
    """Through three rounds and two stops, in one session without sparing it: the losses are the same bits."""
    identity = tmp_path / "identity"
    whole, _ = train(tmp_path / "a", corpus, [17], identity)
    parts: list[float] = []
    for steps, sparing in ((6, True), (4, None), (7, True)):
        losses, status = train(tmp_path / "b", corpus, [steps], identity, sparing=sparing)
        parts += losses
    assert parts == whole
    assert (status.round, status.contributed_tokens) == (3, 960)


@pytest.mark.usefixtures("nothing_left")
def test_an_oracle_on_two_devices_is_one_on_one(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through three rounds and a stop its losses are those of one process.

    In fp32, as each device would round its part of a batch, without Adam, which makes as much of the least
    gradient as of the largest, and in fp16, as two bits make much of little. Both devices are this CPU.
    """
    plain = {"optimizer": "sgd", "learning_rate": 0.3, "embedding_scale": "own"}
    exact: Any = reduced_tables(model={"dropout": 0.0}, inner=plain)
    for module in ("trainer", "device"):
        monkeypatch.setattr(f"dupt_swarm.learning.{module}.product_dtype", lambda _: torch.float32)
    identity = tmp_path / "identity"
    one, _ = train(tmp_path / "a", corpus, [17], identity, **exact)
    two, status = train(tmp_path / "b", corpus, [9, 8], identity, device="cpu,cpu", **exact)
    assert two == pytest.approx(one, abs=1e-5)
    assert (status.round, status.contributed_tokens) == (3, 960)


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
def test_an_oracle_that_loses_a_device_saves_what_it_has(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with an error that names the device; the next goes on as if nothing had been."""
    identity = tmp_path / "identity"
    whole, _ = train(tmp_path / "a", corpus, [5], identity, device="cpu,cpu")
    step = Trainer.step
    taken: list[Step] = []

    def three_steps(trainer: Trainer, look: Look) -> Step:
        if len(taken) == 3:
            [worker] = trainer._workers._all
            worker._process.kill()
        taken.append(step(trainer, look))
        return taken[-1]

    with monkeypatch.context() as patch, pytest.raises(DeviceError, match="cpu: the process that computed"):
        patch.setattr(Trainer, "step", three_steps)
        train(tmp_path / "b", corpus, [5], identity, device="cpu,cpu")
    rest, _ = train(tmp_path / "b", corpus, [2], identity, device="cpu,cpu")
    assert rest == whole[3:]


@pytest.mark.usefixtures("nothing_left")
def test_checkpoints_of_one_round_share_their_replica_state(tmp_path: Path, corpus: Path) -> None:
    """It is most of a checkpoint, and who stops an oracle waits for what is written."""
    train(tmp_path, corpus, [1, 1], tmp_path / "identity")
    (older, newer) = sorted(tmp_path.glob("oracle/*/checkpoint-*"))
    assert (newer / REPLICA_FILE).samefile(older / REPLICA_FILE)
    assert not (newer / ORACLE_FILE).samefile(older / ORACLE_FILE)
    train(tmp_path, corpus, [6], tmp_path / "identity")
    newest = max(tmp_path.glob("oracle/*/checkpoint-*"))
    assert not (newest / REPLICA_FILE).samefile(newer / REPLICA_FILE)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("file", [REPLICA_FILE, ORACLE_FILE])
def test_an_oracle_goes_on_from_the_checkpoint_before_a_damaged_one(
    tmp_path: Path, corpus: Path, file: str
) -> None:
    """Whichever part a power cut has emptied, the steps since the one before are repeated exactly."""
    losses, _ = train(tmp_path, corpus, [6, 4], tmp_path / "identity")
    newest = max(tmp_path.glob("oracle/*/checkpoint-*"))
    (newest / file).unlink()  # it may share its content with the one before
    (newest / file).touch()
    again, _ = train(tmp_path, corpus, [4], tmp_path / "identity")
    assert again == losses[6:]
    assert (newest.with_name(f"{newest.name}.damaged") / file).stat().st_size == 0


@pytest.mark.usefixtures("nothing_left")
def test_a_paused_oracle_follows_the_swarm_and_nobody_waits_for_it(tmp_path: Path, corpus: Path) -> None:
    """It takes no step, adopts the state that others make, goes on from there, and finishes with a round."""
    with cluster_of(tmp_path, corpus, "resting", "working") as cluster:
        resting, working = cluster.oracles
        oracle = Oracle(resting, OracleSettings(corpus, device="cpu", held_out_blocks=2))
        recorder = Recorder(oracle, steps=10**6)
        oracle.pause()
        with training([oracle]) as [run]:
            states = {"resting": "paused", "working": "starting"}
            wait_until(lambda: {p.record.name: p.record.state for p in working.view.oracles} == states)
            model = GPT(working.manifest.model)
            optimizer = CollaborativeOptimizer(model.parameters(), working)
            tokens = torch.zeros((4, working.manifest.model.context_length), dtype=torch.int64)
            while working.state.round < 2:
                model(tokens, tokens).backward()
                optimizer.step(tokens=tokens.numel())
            assert optimizer.failed_rounds == 0
            wait_until(lambda: resting.state == working.state)
            assert (oracle.status().state, recorder.losses) == ("paused", [])
            assert oracle.status().contributed_tokens == 0

            followed = working.state.round
            working.close()
            wait_until(lambda: len(resting.view.oracles) == 1)
            oracle.resume()
            wait_until(lambda: recorder.losses)
            assert not oracle.leaving
            oracle.finish()
            assert oracle.leaving
            run.result(timeout=60)
            assert oracle.status().contributed_tokens > 0
            assert resting.state.round > followed


@pytest.mark.usefixtures("nothing_left")
def test_an_oracle_that_is_told_twice_to_finish(tmp_path: Path, corpus: Path) -> None:
    """The second time, after its last round has ended and before it has left, does not cost another round."""
    with cluster_of(tmp_path, corpus, "oracle") as cluster:
        [swarm] = cluster.oracles
        oracle = Oracle(swarm, OracleSettings(corpus, device="cpu", held_out_blocks=2, rounds=3))
        oracle.held_out.measure_if_due = oracle.finish  # type: ignore[method-assign]
        oracle.finish()
        oracle.run(lambda _: None)
        assert oracle.status().rounds_done == 1


@pytest.mark.usefixtures("nothing_left")
def test_an_oracle_leaves_the_machine_to_others(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``when_idle`` it is paused while they are there, and goes on by itself."""
    others = threading.Event()
    monkeypatch.setattr(Idleness, "look", lambda self, **_: setattr(self, "free", not others.is_set()))
    with cluster_of(tmp_path, corpus, "oracle") as cluster:
        [swarm] = cluster.oracles
        oracle = Oracle(swarm, OracleSettings(corpus, device="cpu", held_out_blocks=2, when_idle=True))
        recorder = Recorder(oracle, steps=10**6)
        with training([oracle]):
            wait_until(lambda: recorder.losses)
            others.set()
            wait_until(lambda: oracle.status().waits)
            assert oracle.status().state == "paused"
            steps = len(recorder.losses)
            others.clear()
            wait_until(lambda: len(recorder.losses) > steps)
            assert not oracle.status().waits


@pytest.mark.usefixtures("nothing_left")
def test_a_round_that_would_spoil_the_model(tmp_path: Path, corpus: Path) -> None:
    """An oracle sees it in the text that it holds out, and rejects it; its own progress is as before."""
    # Where contributions are shared, this one counts with the other's norm at most, and does no harm.
    tables = reduced_tables(rounds={"tokens_per_round": 12_800})
    with cluster_of(tmp_path, corpus, "honest", "hostile", **tables) as cluster:
        honest, hostile = cluster.oracles
        oracle = Oracle(honest, OracleSettings(corpus, device="cpu", held_out_blocks=2))
        hostile.publish(RecordUpdate(state="training", round_tokens=6_400), now=True)
        # So much that it does harm whatever part of the average it has: the oracle trains on meanwhile.
        noise = put(hostile.contribution, torch.randn_like(hostile.anchor) * 3, hostile.manifest)
        before = hostile.state
        with training([oracle]):
            # Not before, or it would end the round alone where the oracle trains slowly.
            wait_until(lambda: "averaging" in [each.record.state for each in hostile.view.oracles])
            averaging = hostile.average(noise, 6_400)
            wait_until(lambda: oracle.status().last_round)
            status = oracle.status()
        hostile.cancel_average()  # it waits for one who agrees
        averaging.result()
        assert status.last_round is not None
        assert status.last_round.reason == "rejected"
        assert honest.state == before
        assert status.contributed_tokens == 0 < status.latest.loss_nats < 1.1 * status.first.loss_nats  # type: ignore[union-attr]


@pytest.mark.usefixtures("nothing_left")
def test_a_second_peer_on_the_same_folder_is_refused(tmp_path: Path, corpus: Path) -> None:
    """Two peers of one role in a swarm cannot share a state folder; the message says what helps."""
    with cluster_of(tmp_path, corpus), pytest.raises(UsageError, match="a folder of its own"):
        cluster_of(tmp_path, corpus)


def test_a_step_is_cut_into_equal_micro_batches() -> None:
    """Micro-batches have at most the batch size that was asked for, and add up to the manifest's step."""
    manifest = tiny_manifest(rounds={"tokens_per_step": 16 * 12, "tokens_per_round": 16 * 12})
    assert [cut_step(manifest, size) for size in (100, 12, 11, 5, 1)] == [
        (12, 1),
        (12, 1),
        (6, 2),
        (4, 3),
        (1, 12),
    ]


@pytest.mark.parametrize(
    ("loss", "published"),
    [(2.5, 2.5), (0.0, 0.0), (None, None), (math.inf, None), (math.nan, None), (1e7, None), (-1.0, None)],
)
def test_a_loss_that_others_would_refuse(loss: float | None, published: float | None) -> None:
    """It is in no record, and does not stop the oracle that has it."""
    assert RecordUpdate(loss=publishable(loss)).loss == published
