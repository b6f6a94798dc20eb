"""A swarm that begins from a model, as people begin it, join it and watch it."""

import json
from pathlib import Path
from typing import Any

import pytest

from dupt_swarm.manifest import Manifest, Objective
from dupt_swarm.models.saved_model import SavedModel
from dupt_swarm.organiser import KEY_FILE
from dupt_swarm.replica.storage import load_state
from dupt_swarm.swarm import INITIAL_FILE
from tests.support.commands import new
from tests.support.programs import LISTEN, dupt_peer, first_peer, start, wait_for_line
from tests.support.saved_models import write_model
from tests.support.tasks import two_languages, write_lines
from tests.support.waiting import wait_until

TASK = ("--task", "classification", "--labels", "de, en")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder."""
    folder = tmp_path_factory.mktemp("base")
    write_model(folder)
    return folder


def begun(base: Path, folder: Path) -> Path:
    """A swarm's manifest with a learning rate for so small a model, and shorter rounds."""
    run = folder / "run.toml"
    assert new(run, "--from", str(base), *TASK, "--lm-weight", "0.25").startswith("0:")
    text = run.read_text().replace("learning_rate = 6.25e-05", "learning_rate = 3e-3")
    run.write_text(text.replace("tokens_per_round = 5120", "tokens_per_round = 2048"))
    return run


def test_a_swarm_begins_from_a_model(base: Path, tmp_path: Path) -> None:
    """Manifest, tokenizer and state of round 0 are written, and fit; nothing is written over them."""
    run = tmp_path / "tuning.toml"
    said = new(run, "--from", str(base), *TASK, "--lm-weight", "0.25", "--seed", "5")
    assert said.startswith("0:") and "10,666 examples of each oracle" in said
    manifest, parent = Manifest.load(run), SavedModel.load(base)
    assert (manifest.name, manifest.seed) == ("tuning", 5)
    assert manifest.objective == Objective(kind="classification", labels=["de", "en"], lm_weight=0.25)
    assert load_state(tmp_path / INITIAL_FILE).digest == manifest.initial_digest
    assert (tmp_path / "tokenizer.json").read_bytes() == parent.tokenizer.to_bytes()
    run.unlink()
    assert new(run, "--from", str(base), *TASK).startswith("2: error: ")
    assert not run.exists()


def test_the_folder_is_made(base: Path, tmp_path: Path) -> None:
    """With those above it; one that cannot be made is named."""
    run = tmp_path / "C" / "t" / "run.toml"
    assert new(run, "--from", str(base), *TASK).startswith("0:")
    names = {"run.toml", "tokenizer.json", INITIAL_FILE, KEY_FILE}
    assert {path.name for path in run.parent.iterdir()} == names
    said = new(run / "below" / "run.toml", "--from", str(base), *TASK)
    assert said.startswith("2: error: ") and "cannot be written (Not a directory); choose another" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--labels", "a,b"), "say what the model is to learn (--labels, --task)"),
        (("--task", "classification"), "needs the names of its labels, two at least"),
        (("--task", "entailment", "--labels", "a"), "needs the names of its labels, two at least"),
        (("--task", "similarity", "--labels", "a"), "two labels, or none for scores (--labels)"),
        (("--task", "entailment", "--labels", "a,a"), "each label needs a name of its own (--labels)"),
        (("--task", "multiple-choice", "--labels", "a,b"), "takes no labels; leave them out (--labels)"),
        ((*TASK, "--corpus", "text"), "leave it out (--corpus)"),
        ((*TASK, "--preset", "tiny"), "leave it out (--preset)"),
        (("--size", "tiny"), "leave it out (--size)"),
        ((*TASK, "--name", "two words"), "letters, digits and hyphens"),
    ],
)
def test_what_does_not_fit_is_refused(
    base: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    """Each with its remedy, and nothing is written."""
    said = new(tmp_path / "run.toml", "--from", str(base), *arguments)
    assert message in said and not said.startswith("0:")
    assert list(tmp_path.iterdir()) == []


def test_the_file_names_the_swarm(base: Path, tmp_path: Path) -> None:
    """What cannot be a name is refused with the option that gives another; before anything is read."""
    run = tmp_path / "my_run.toml"
    refused = "2: error: a swarm cannot be called my_run: use 1 to 40 letters, digits and hyphens, "
    for arguments in (("--corpus", "nothing"), ("--from", str(base), *TASK)):
        said = new(run, *arguments)
        assert said.startswith(refused) and said.endswith(" (--name)\n")
    assert not any(tmp_path.iterdir())
    assert new(run, "--from", str(base), *TASK, "--name", "my-run").startswith("0:")


def test_a_task_needs_a_model(tmp_path: Path) -> None:
    """Without one there is no task; without text there is no tokenizer; a folder without a model is named."""
    run = tmp_path / "run.toml"
    assert "give one too (--task, --from)" in new(run, "--task", "similarity", "--corpus", "text")
    assert "a model to begin with (--corpus, --offer, --from)" in new(run)
    assert f"{tmp_path}: no model there" in new(run, "--from", str(tmp_path), *TASK)


@pytest.mark.usefixtures("nothing_left")
def test_a_first_peer_needs_the_state_of_round_0(base: Path, tmp_path: Path) -> None:
    """Without it there is no swarm; who writes it is named."""
    run = begun(base, tmp_path)
    run.with_name(INITIAL_FILE).unlink()
    done = dupt_peer("bootstrap", str(run), *LISTEN, "--state-dir", str(tmp_path / "state"))
    assert done.returncode == 10
    assert "the state that the swarm begins with is missing; `dupt-peer new --from` writes it" in done.stderr


def peers_seen(address: str) -> list[dict[str, Any]]:
    """As `status` shows them."""
    status = json.loads(dupt_peer("status", "--initial-peers", address, "--json").stdout)
    return list(status["peers"])


@pytest.mark.usefixtures("nothing_left")
def test_a_swarm_fine_tunes(base: Path, tmp_path: Path) -> None:
    """From `new` to a state that answers: screens, status and evaluator show its accuracy."""
    run = begun(base, tmp_path)
    table = write_lines(
        tmp_path / "own.jsonl",
        [{"review": row["text"], "label": row["label"]} for row in two_languages(120, seed=1)],
    )
    data = ("--corpus", str(table), "--column", "text=review", "--device", "cpu", *LISTEN)
    with first_peer(run, tmp_path / "first") as about:
        to = ("--initial-peers", about["address"])
        oracle = start("join", *to, *data, "--state-dir", str(tmp_path / "own"), "--json")
        wait_for_line(oracle, "accuracy")
        shown = peers_seen(about["address"])
        wait_for_line(oracle, "accuracy 100.0 %")  # as evaluated now and then, after several rounds
        # Rounds of less than a second outrun who fetches their states.
        assert dupt_peer("pause", "--state-dir", str(tmp_path / "own")).returncode == 0
        wait_until(lambda: len({peer["state_digest"] for peer in peers_seen(about["address"])}) == 1)
        judge = ("--once", "--json", "--state-dir", str(tmp_path / "judge"))
        judged = dupt_peer("evaluate", *to, *data, *judge)
        oracle.terminate()
        summary = json.loads(oracle.communicate(timeout=60)[0])

    assert [peer["heldout_bits_per_byte"] for peer in shown] == [None, None]
    assert any(peer["heldout_accuracy"] is not None for peer in shown)
    assert summary["accuracy_after"] > 0.9 > summary["accuracy_before"]
    assert summary["bits_per_byte_after"] is None
    found = json.loads(judged.stdout)
    assert (found["examples"], found["bits_per_byte"]) == (120, None)
    assert found["accuracy"] > 0.9
