"""``dupt-peer new --from``: a swarm that trains a pretrained model on, or teaches it a task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dupt_swarm.errors import UsageError

if TYPE_CHECKING:
    from dupt_swarm.manifest import Manifest, Objective
    from dupt_swarm.models.saved_model import SavedModel
    from dupt_swarm.replica.state import ReplicaState

NEEDS_LABELS = ("classification", "entailment")
EPOCHS = 3


@dataclass(frozen=True)
class Wanted:
    """What a swarm is to do with a model.

    Attributes:
        name: of the swarm.
        seed: of what the model lacks, and of the shuffling.
        task: what it is to learn; None: language, as before.
        labels: the task's, divided by commas.
        lm_weight: λ; None: the usual one.
        admission: whom it admits.
    """

    name: str
    seed: int
    task: str | None
    labels: str
    lm_weight: float | None
    admission: str


def write_from(manifest: Path, model: Path, wanted: Wanted) -> None:
    """Write the manifest, its tokenizer and the state of round 0.

    Raises:
        DuptError: the options do not go together, or not with the model.
    """
    objective = _objective(wanted)
    from peers.new import check_free, organise, say_next

    files = [manifest, *(manifest.with_name(other) for other in ("tokenizer.json", "initial.safetensors"))]
    check_free(*files)
    from dupt_swarm.models.beginning import write_beginning
    from dupt_swarm.models.foreign import load_model

    base = load_model(model)
    written, state = _begin(base, objective, wanted)
    manifest.parent.mkdir(parents=True, exist_ok=True)
    written = organise(written, wanted.admission, manifest)
    write_beginning(manifest, written, base.tokenizer, state)
    click.echo(f"wrote {manifest} (swarm {written.swarm_id}), {' and '.join(map(str, files[1:]))}", err=True)
    click.echo(_advice(written, manifest), err=True)
    say_next(manifest)


def _begin(base: SavedModel, objective: Objective | None, wanted: Wanted) -> tuple[Manifest, ReplicaState]:
    from dupt_swarm.models.beginning import begin_language, begin_task

    if objective is None:
        return begin_language(base, name=wanted.name, seed=wanted.seed)
    return begin_task(base, objective, name=wanted.name, seed=wanted.seed)


def _objective(wanted: Wanted) -> Objective | None:
    """The manifest's table; None: language.

    Raises:
        UsageError: labels are missing, or there are some that the task does not have.
    """
    from pydantic import ValidationError

    from dupt_swarm.manifest import Objective
    from dupt_swarm.manifest.explain import explain_invalid

    task, labels = wanted.task, tuple(filter(None, map(str.strip, wanted.labels.split(","))))
    if task is None:
        for setting, value in (("labels", labels), ("lm_weight", wanted.lm_weight)):
            if value not in ((), None):
                raise UsageError("say what the model is to learn", setting=(setting, "task"))
        return None
    if task in NEEDS_LABELS and len(labels) < 2:
        raise UsageError(
            f"{task} needs the names of its labels, two at least, as they are in the oracles' examples",
            setting="labels",
        )
    weight = {} if wanted.lm_weight is None else {"lm_weight": wanted.lm_weight}
    try:
        return Objective.model_validate({"kind": task, "labels": list(labels), **weight})
    except ValidationError as error:
        raise UsageError(explain_invalid(error, Objective, task), setting="labels") from error


def _advice(manifest: Manifest, path: Path) -> str:
    """How long the schedule lasts, which only the organiser can judge."""
    updates, step = manifest.schedule.total_updates, manifest.rounds.tokens_per_step
    change = f"schedule.total_updates in {path.name} is what to change"
    if not manifest.objective.supervised:
        return (
            f"note: the learning rate decays over {updates:,} steps of {step:,} tokens, "
            f"{updates * step:,} of each oracle; {change} if they have others"
        )
    examples = step // manifest.model.context_length
    return (
        f"note: the learning rate ends after {updates:,} steps of {examples} examples, {EPOCHS} epochs of "
        f"{updates * examples // EPOCHS:,} examples of each oracle; {change} if they have others"
    )
