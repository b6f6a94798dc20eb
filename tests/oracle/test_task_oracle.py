"""Oracles with labelled examples of their own fine-tune a model together, in a real swarm."""

from functools import partial
from pathlib import Path

import pytest
import torch

from dupt_swarm import Swarm
from dupt_swarm.errors import CorpusError
from dupt_swarm.evaluator import Evaluator
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.load import load_examples
from dupt_swarm.learning.objectives import check_data
from dupt_swarm.learning.objectives.scores import evaluate_task
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.manifest import Manifest, Objective
from dupt_swarm.models.beginning import begin_task
from dupt_swarm.models.saved_model import SavedModel
from dupt_swarm.oracle.oracle import Oracle
from dupt_swarm.oracle.status import Status
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.settings import EvaluatorSettings, OracleSettings
from tests.support.driven_swarm import Cluster
from tests.support.saved_models import write_model
from tests.support.sessions import train_in_sessions, train_together
from tests.support.tasks import two_languages, write_lines
from tests.support.tiny import settings
from tests.support.waiting import wait_until

CPU = torch.device("cpu")
EXAMPLES_PER_STEP = 8


def beginning(folder: Path, dropout: float = 0.0) -> tuple[Manifest, bytes, ReplicaState]:
    """A swarm that tells two languages apart, with short rounds."""
    base = write_model(folder / "base", model={"dropout": dropout})
    task = Objective(kind="classification", labels=["de", "en"])
    manifest, state = begin_task(base, task, name="tuning", seed=3)
    tables = manifest.model_dump()
    tables["inner"] |= {"learning_rate": 3e-3}
    step = EXAMPLES_PER_STEP * manifest.model.context_length
    tables["rounds"] |= {"tokens_per_step": step, "tokens_per_round": 4 * step}
    return Manifest.model_validate(tables), base.tokenizer.to_bytes(), state


def examples(folder: Path, name: str, seed: int, count: int = 120) -> Path:
    """Private labelled examples of one oracle."""
    return write_lines(folder / f"{name}.jsonl", two_languages(count, seed))


def settings_for(data: Path, rounds: int | None = None) -> OracleSettings:
    return OracleSettings(data, device="cpu", batch_size=4, rounds=rounds)


@pytest.mark.usefixtures("nothing_left")
def test_two_oracles_with_disjoint_examples_fine_tune_together(tmp_path: Path) -> None:
    """They average, tell examples apart that neither has seen, and what they learnt can be taken away."""
    manifest, tokenizer, state = beginning(tmp_path)
    unseen = examples(tmp_path, "unseen", seed=99)
    names = ("one", "two")
    with Cluster(tmp_path, manifest, state.parameters, names, tokenizer=tokenizer) as cluster:
        first, swarms = cluster.first, cluster.oracles
        oracles = [
            Oracle(swarm, settings_for(examples(tmp_path, swarm.folder.path.parent.name, seed), rounds=8))
            for seed, swarm in enumerate(swarms)
        ]
        together = train_together(oracles)
        assert all(swarm.handed_over for swarm in swarms)
        wait_until(lambda: any(peer.record.heldout_accuracy is not None for peer in first.view.oracles))
        records = [peer.record for peer in first.view.oracles]
        with Swarm.join(first.addresses, tmp_path / "judge", settings("evaluator")) as judging:
            found = Evaluator(judging, EvaluatorSettings(unseen, device="cpu")).measure()
        for swarm in swarms:
            swarm.close()

    assert sum(status.contributed_tokens for status in together) % (EXAMPLES_PER_STEP * 16) == 0
    for status in together:
        assert status.last_round is not None and status.failed_rounds == 0
        assert status.latest is not None and status.latest.accuracy is not None
        assert status.latest.accuracy > 0.9 and status.latest.bits_per_byte is None
    assert all(record.heldout_bits_per_byte is None for record in records)
    assert found is not None and found.evaluation.accuracy is not None
    assert found.evaluation.accuracy > 0.9
    assert found.evaluation.counts == {"examples": 120}
    taken = [SavedModel.load(next((tmp_path / name).glob("tuning-*"))) for name in names]
    newest = max(taken, key=lambda model: model.state.round)
    model = newest.build(CPU)
    assert isinstance(model, TaskModel)
    rows = load_examples(LabelledFiles(unseen), manifest, newest.tokenizer)
    answers = evaluate_task(model, [rows.batch(range(len(rows)))], CPU)
    assert answers.accuracy is not None and answers.accuracy > 0.9


def train(folder: Path, data: Path, sessions: list[int], identity: Path) -> tuple[list[float], Status]:
    """A single oracle that is stopped and started again after each number of steps."""
    manifest, tokenizer, state = beginning(folder, dropout=0.1)
    wish = settings_for(data)
    return train_in_sessions(manifest, tokenizer, state.parameters, wish, folder, sessions, identity)


@pytest.mark.usefixtures("nothing_left")
def test_a_stopped_oracle_goes_on_with_its_next_examples(tmp_path: Path) -> None:
    """The losses are the same bits, whether it was stopped in between or not."""
    data = examples(tmp_path, "own", seed=1, count=40)
    whole, once = train(tmp_path / "a", data, [11], tmp_path / "identity")
    parts, again = train(tmp_path / "b", data, [6, 5], tmp_path / "identity")
    assert len(whole) == 11
    assert parts == whole
    assert (again.round, again.contributed_tokens) == (once.round, once.contributed_tokens)


@pytest.mark.usefixtures("nothing_left")
def test_data_that_do_not_fit_stop_a_join_before_anything_is_written(tmp_path: Path) -> None:
    """The manifest is looked at first: no state is fetched, and no folder is made."""
    manifest, tokenizer, state = beginning(tmp_path)
    wrong = write_lines(tmp_path / "wrong.jsonl", [{"words": "bear", "label": "en"}])
    create = Swarm.create(manifest, tokenizer, state.parameters, tmp_path / "first", settings("bootstrap"))
    with create as first, pytest.raises(CorpusError, match="no column `text`"):
        Swarm.join(
            first.addresses,
            tmp_path / "oracle",
            settings(),
            check=partial(check_data, OracleSettings(wrong)),
        )
    assert not (tmp_path / "oracle").exists()
