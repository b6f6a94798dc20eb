"""The independent evaluator beside a real first peer and a real oracle."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dupt_swarm.errors import CorpusError, DuptError, UsageError
from dupt_swarm.evaluator import dataset_name
from dupt_swarm.learning.batches import held_out_batches
from dupt_swarm.learning.corpus import Corpus
from dupt_swarm.learning.evaluation import Evaluation, evaluate
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.objectives import first_model
from dupt_swarm.learning.strategies.flat import unflatten
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest
from dupt_swarm.models import publishing
from dupt_swarm.models.exporting import export
from dupt_swarm.models.publishing import Publisher
from dupt_swarm.models.saved_model import SavedModel
from dupt_swarm.models.verifying import verify
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import load_state
from dupt_swarm.settings import EvaluatorSettings
from peers.evaluate import _Reporter
from peers.screen.log import Log
from tests.support.hugging_face import load_model
from tests.support.loopback import NOBODY
from tests.support.programs import LISTEN, dupt_peer
from tests.support.programs import start as start_program
from tests.support.saved_models import write_model
from tests.support.texts import library
from tests.support.tiny import tiny_manifest
from tests.support.waiting import wait_until

DEADLINE_SECONDS = 90.0

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """What the oracle trains on."""
    return library(tmp_path / "corpus", "argparse", "inspect")


@pytest.fixture
def unseen(tmp_path: Path) -> Path:
    """What no oracle trains on."""
    return library(tmp_path / "unseen", "bisect", "colorsys", "nturl2path")


@pytest.fixture
def manifest(tmp_path: Path, corpus: Path) -> Manifest:
    """A very small model with short rounds, its manifest and tokenizer on disk."""
    tokenizer = train_tokenizer([path.read_text() for path in sorted(corpus.iterdir())], 300)
    manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size)
    tokenizer.save(tmp_path / "tokenizer.json")
    (tmp_path / "run.toml").write_text(manifest.to_toml())
    return manifest


@pytest.fixture
def start(nothing_left: None, tmp_path: Path) -> Iterator[Start]:
    """Starts ``dupt-peer`` on loopback with a state folder of its own; all are killed at the end."""
    del nothing_left
    started: list[subprocess.Popen[str]] = []

    def run(command: str, *arguments: str) -> subprocess.Popen[str]:
        state = str(tmp_path / f"state-{len(started)}")
        started.append(start_program(command, *arguments, *LISTEN, "--state-dir", state, "--json"))
        return started[-1]

    def end() -> None:
        for process in started:
            process.kill()

    watchdog = threading.Timer(2 * DEADLINE_SECONDS, end)  # or a test would wait for a line for ever
    watchdog.start()
    yield run
    watchdog.cancel()
    end()
    for process in started:
        process.communicate()


def lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The JSON lines that it prints, as they come."""
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def first_digest(manifest: Manifest) -> str:
    return first_state(manifest, list(first_model(manifest).parameters())).digest


def pause(oracle_state: Path, address: str) -> None:
    """Let the oracle rest until all are at its state: there is nothing to disagree on when it leaves."""
    done = dupt_peer("pause", "--state-dir", str(oracle_state))
    assert done.returncode == 0, done.stderr

    def at_rest() -> bool:
        told = dupt_peer("status", "--initial-peers", address, "--json")
        assert told.returncode == 0, told.stderr
        peers = json.loads(told.stdout)["peers"]
        digests = {peer["state_digest"] for peer in peers}
        return "paused" in {peer["state"] for peer in peers} and len(digests) == 1

    wait_until(at_rest, "all are at the oracle's state")


def settled(address: str) -> dict[str, Any]:
    """The evaluator's record, once it has measured the state that the first peer holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        done = dupt_peer("status", "--initial-peers", address, "--json")
        assert done.returncode == 0, done.stderr
        peers = {peer["role"]: peer for peer in json.loads(done.stdout)["peers"]}
        first, evaluator = peers.get("bootstrap", {}), peers.get("evaluator", {})
        measured = evaluator.get("evaluation") or {}
        if (
            "oracle" not in peers
            and first.get("state_digest") == evaluator.get("state_digest")
            and measured.get("round") == evaluator.get("round")
        ):
            return evaluator
    raise AssertionError(f"the evaluator did not catch up with the first peer: {peers}")


def measured_here(state: ReplicaState, manifest: Manifest, folder: Path, text: Path) -> Evaluation:
    """All blocks of ``text`` under the parameters of ``state``, without any evaluator."""
    tokenizer = Tokenizer.of(manifest, (folder / "tokenizer.json").read_bytes())
    length = manifest.model.context_length
    whole = Corpus.prepare(
        TextFiles(text), tokenizer, folder / "tokens", context_length=length, seed=manifest.seed
    )
    model = GPT(manifest.model)
    unflatten(state.anchor, list(model.parameters()))
    batches = [batch for part in (whole.train, whole.held_out) for batch in held_out_batches(part, length, 7)]
    return evaluate(model, batches, tokenizer.token_bytes(), torch.device("cpu"))


def test_an_evaluator_measures_what_the_swarm_learns(
    start: Start, manifest: Manifest, corpus: Path, unseen: Path, tmp_path: Path
) -> None:
    """It follows state by state; its figure is that of the saved state, is in its record, and falls."""
    first = start("bootstrap", str(tmp_path / "run.toml"))
    address = next(lines(first))["addresses"][0]
    options = ("--initial-peers", address, "--corpus", str(unseen), "--device", "cpu", "--prompt", "def ")
    evaluator = start("evaluate", *options)
    reports = lines(evaluator)
    before = next(reports)
    assert (before["round"], before["dataset"]) == (0, "unseen")

    oracle = start("join", "--initial-peers", address, "--corpus", str(corpus), "--device", "cpu")
    after = next(report for report in reports if report["round"] >= 8)
    pause(tmp_path / "state-2", address)
    oracle.terminate()
    _, told = oracle.communicate(timeout=DEADLINE_SECONDS)  # it tells of more than a pipe holds
    assert oracle.returncode == 0, told
    held = settled(address)
    while after["state_digest"] != held["state_digest"]:
        after = next(reports)

    once = start("evaluate", *options, "--once")
    [found] = lines(once)
    assert once.wait(DEADLINE_SECONDS) == 0
    assert {**found, "time": 0, "seconds": 0} == {**after, "time": 0, "seconds": 0}

    here = ("--state-dir", str(tmp_path / "state-1"), "--role", "evaluator")
    about = json.loads(dupt_peer("status", "--health", *here, "--json").stdout)
    assert (about["healthy"], about["state"], about["round"]) == (True, "waiting", after["round"])
    assert dupt_peer("pause", *here[:2]).returncode == 1  # it trains nothing
    folder = tmp_path / "state-1" / f"{manifest.swarm_id}.evaluator"
    which = f"(no name): evaluator of {manifest.swarm_id}, waiting, in {folder}"
    assert dupt_peer("stop", *here).stderr == f"{which}: stops\n"
    assert evaluator.wait(DEADLINE_SECONDS) == 0
    first.terminate()
    assert first.wait(DEADLINE_SECONDS) == 0
    [checkpoint] = sorted((tmp_path / "state-0" / f"{manifest.swarm_id}.bootstrap").glob("checkpoint-*"))[-1:]
    state = load_state(checkpoint / "replica.safetensors")
    assert (state.digest, state.round) == (after["state_digest"], after["round"])
    figures = ("bits_per_byte", "loss_nats", "accuracy", "nsp_accuracy")
    names = ("dataset", *figures, "round", "time", "sample")
    shown = {key: after[key] for key in names}
    assert held["evaluation"] == shown
    expected = measured_here(state, manifest, tmp_path, unseen)
    assert after["bits_per_byte"] == pytest.approx(expected.bits_per_byte, abs=1e-6)
    assert after["loss_nats"] == pytest.approx(expected.loss_nats, abs=1e-6)
    assert (after["tokens"], after["bytes"]) == (expected.tokens, expected.bytes)
    assert after["sample"]["prompt"] == "def "
    assert after["sample"] != before["sample"]
    assert after["bits_per_byte"] < before["bits_per_byte"] - 0.1


def test_measured_states_are_published(
    start: Start, manifest: Manifest, corpus: Path, unseen: Path, tmp_path: Path
) -> None:
    """Each as a whole; some stay; `transformers` opens `latest` meanwhile, and after a kill."""
    first = start("bootstrap", str(tmp_path / "run.toml"))
    address, published = next(lines(first))["addresses"][0], tmp_path / "published"
    options = ("--initial-peers", address, "--corpus", str(unseen), "--device", "cpu")
    publish = ("--publish", str(published), "--keep", "2", "--gguf", "f16")
    evaluator = start("evaluate", *options, *publish)
    start("join", "--initial-peers", address, "--corpus", str(corpus), "--device", "cpu")
    digests, opened = {}, 0
    for report in lines(evaluator):
        digests[report["round"]] = report["state_digest"]
        if (published / "latest").exists():  # the evaluator goes on measuring and writing
            opened += bool(load_model(published / "latest").num_parameters())
        if report["round"] >= 5 and opened >= 3:
            break
    evaluator.kill()
    evaluator.wait()
    digests |= {report["round"]: report["state_digest"] for report in lines(evaluator)}

    folders = sorted(path for path in published.iterdir() if path.name.startswith("round-"))
    latest = (published / "latest").resolve()
    assert latest in folders[-2:]
    assert 2 <= len(folders) <= 3  # it may have been killed before it removed one
    names = {path.name for path in latest.iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json", "README.md", "model.gguf"}
    assert load_model(published / "latest").num_parameters()
    number = int(latest.name.partition("-")[2])
    found = verify(latest, first_digest(manifest))
    assert (found.round, found.state_digest) == (number, digests[number])
    assert "| unseen |" in (latest / "README.md").read_text()

    (published / ".unfinished").mkdir(exist_ok=True)  # as one that is killed leaves it
    again = start("evaluate", *options, *publish, "--once")
    assert len(list(lines(again))) == 1
    assert again.wait(DEADLINE_SECONDS) == 0
    assert {path.name for path in published.iterdir() if not path.name.startswith("round-")} == {"latest"}
    assert len(list(published.glob("round-*"))) <= 3

    card = published / "latest" / "README.md"
    card.write_text(card.read_text().replace(manifest.swarm_id, "other-0123456789ab"))
    refused = start("evaluate", *options, *publish)
    _, errors = refused.communicate(timeout=DEADLINE_SECONDS)
    assert refused.returncode == 2
    assert f"a model of the swarm other-0123456789ab, and this one is {manifest.swarm_id}; choose" in errors


def test_where_models_are_published_nothing_else_is_touched(tmp_path: Path) -> None:
    """A file, or a `latest` that is no link of ours, is left alone; states wait for their turn."""
    (tmp_path / "file").write_text("")
    (tmp_path / "mine" / "latest").mkdir(parents=True)
    for folder, said in ((tmp_path / "file", "no folder"), (tmp_path / "mine", "not a link that we made")):
        with pytest.raises(UsageError, match=said):
            Publisher(folder)
    with pytest.raises(UsageError, match=r"x: cannot be looked at \(File name too long\); choose another"):
        Publisher(tmp_path / (300 * "x"))
    publisher = Publisher(tmp_path / "new", every=4)
    assert publisher.is_due(0)
    (tmp_path / "new" / "round-00000010").mkdir(parents=True)
    assert [round for round in (10, 13, 14, 15) if publisher.is_due(round)] == [14, 15]


def test_where_another_swarm_publishes(tmp_path: Path) -> None:
    """Its rounds would say when ours are due: it is refused, and what has lost its card is nobody's."""
    model = write_model(tmp_path / "model")
    export(model, tmp_path / "out" / "round-00000120")
    publisher = Publisher(tmp_path / "out")
    publisher.check(model.manifest.swarm_id)
    with pytest.raises(UsageError, match=r"round-00000120: a model of the swarm test-.*; choose another fol"):
        publisher.check("other-0123456789ab")
    (tmp_path / "out" / "round-00000120" / "README.md").unlink()
    publisher.check("other-0123456789ab")


@pytest.mark.usefixtures("without_locks")
def test_a_disk_without_locks_stops_no_publisher(tmp_path: Path) -> None:
    """Folders on network drives cannot always be locked."""
    with Publisher(tmp_path / "out")._alone():
        assert (tmp_path / "out").is_dir()


def test_two_publish_to_one_folder_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one's model appears; the second does not take what is unfinished away, and is told why."""
    first, second = Publisher(tmp_path / "out"), Publisher(tmp_path / "out")
    begun: list[Path] = []

    def written(_swarm: Any, _found: Any, folder: Path) -> bool:
        write_model(folder)
        return True

    def exported(model: SavedModel, folder: Path) -> None:
        export(model, folder)
        begun.append(folder)
        if len(begun) == 1:
            with pytest.raises(
                UsageError, match="out: another evaluator is publishing there; choose another"
            ):
                second.publish(swarm, at(124))

    def at(round: int) -> Any:
        return SimpleNamespace(state=SimpleNamespace(round=round))

    monkeypatch.setattr(publishing, "write_state", written)
    monkeypatch.setattr(publishing, "export", exported)
    swarm: Any = None
    assert first.publish(swarm, at(120)) == tmp_path / "out" / "round-00000120"
    assert second.publish(swarm, at(124)) == tmp_path / "out" / "round-00000124", "once the first is done"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "round-00000120",
        "round-00000124",
        "latest",
    }


def test_an_unusable_corpus_is_refused_first(start: Start, tmp_path: Path) -> None:
    """A corpus that is not there ends it before it contacts anybody, and leaves no folder."""
    process = start("evaluate", "--initial-peers", NOBODY, "--corpus", str(tmp_path / "nowhere"))
    _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 1
    assert "no such file or folder" in errors
    assert not list(tmp_path.glob("state-*"))


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    """Empty files and the wrong field are found out without a tokenizer."""
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(CorpusError, match="no text in it"):
        TextFiles(tmp_path / "empty.txt").check()
    (tmp_path / "rows.jsonl").write_text('{"body": "some text"}\n')
    with pytest.raises(CorpusError, match="no field `text`"):
        TextFiles(tmp_path / "rows.jsonl").check()
    TextFiles(tmp_path / "rows.jsonl", field="body").check()


def test_the_name_of_a_dataset(tmp_path: Path) -> None:
    """It is what was asked for if that is fit for a record, else made from the corpus' name."""
    assert dataset_name(EvaluatorSettings(tmp_path, dataset="wikitext-103.v1")) == "wikitext-103.v1"
    assert dataset_name(EvaluatorSettings(Path("/data/my texts/Größe 1.txt.gz"))) == "Gr-e-1"
    assert dataset_name(EvaluatorSettings(Path("/data/*.txt"))) == "corpus"
    assert len(dataset_name(EvaluatorSettings(Path("x" * 99)))) == 40
    for unfit in ("two words", "x" * 41, "-x", "é", "x\n"):
        with pytest.raises(UsageError, match=re.escape(f"{unfit}: use at most 40 letters")):
            dataset_name(EvaluatorSettings(tmp_path, dataset=unfit))


@pytest.mark.parametrize("once", [True, False])
def test_what_fails_ends_a_single_measurement_only(once: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Who asked for one gets its exit code; who follows a swarm reads what failed, and measuring goes on."""

    def fail() -> None:
        raise DuptError("the task is gone")

    harness: Any = SimpleNamespace(finished=fail, busy=False)
    swarm: Any = None
    reporter = _Reporter(swarm, None, harness, Log(), as_json=False, once=once)
    with pytest.raises(DuptError) if once else nullcontext():
        assert not reporter.look()
    assert ("not measured on tasks: the task is gone" in capsys.readouterr().err) is not once
