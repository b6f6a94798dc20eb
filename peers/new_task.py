"""``dupt-peer new --from``: the manifest of a swarm that teaches a pretrained model a task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.errors import UsageError

if TYPE_CHECKING:
    from dupt_swarm.manifest import Manifest, Objective

NEEDS_LABELS = ("classification", "entailment")
EPOCHS = 3


def write_task(
    manifest: Path,
    model: Path,
    *,
    task: str | None,
    labels: str,
    lm_weight: float | None,
    name: str,
    seed: int,
    preset: str | None,
    corpus: str | None,
    **of_corpus: Any,
) -> None:
    """Write the manifest, its tokenizer and the state of round 0.

    Raises:
        DuptError: the options do not go together, or not with the model.
    """
    del of_corpus
    if preset is not None:
        raise UsageError("the model has a shape of its own; leave the preset out", setting="preset")
    if corpus is not None:
        raise UsageError(
            "the model has its tokenizer, and oracles bring their own examples; leave the corpus out",
            setting="corpus",
        )
    objective = _objective(task, tuple(filter(None, map(str.strip, labels.split(",")))), lm_weight)
    from peers.new import check_free

    files = [manifest, *(manifest.with_name(other) for other in ("tokenizer.json", "initial.safetensors"))]
    check_free(*files)
    from dupt_swarm.models.beginning import begin_task, write_beginning
    from dupt_swarm.models.saved_model import SavedModel

    base = SavedModel.load(model)
    written, state = begin_task(base, objective, name=name, seed=seed)
    write_beginning(manifest, written, base.tokenizer, state)
    click.echo(f"wrote {manifest} (swarm {written.swarm_id}), {' and '.join(map(str, files[1:]))}", err=True)
    click.echo(_advice(written, manifest), err=True)
    click.echo(f"next: dupt-peer bootstrap {manifest}", err=True)


def _objective(task: str | None, labels: tuple[str, ...], lm_weight: float | None) -> Objective:
    """The manifest's table.

    Raises:
        UsageError: labels are missing, or there are some that the task does not have.
    """
    from pydantic import ValidationError

    from dupt_swarm.manifest import Objective
    from dupt_swarm.schema.explain import explain_invalid

    if task is None:
        raise UsageError("say what the model is to learn", setting="task")
    if task in NEEDS_LABELS and len(labels) < 2:
        raise UsageError(
            f"{task} needs the names of its labels, two at least, as they are in the oracles' examples",
            setting="labels",
        )
    weight = {} if lm_weight is None else {"lm_weight": lm_weight}
    try:
        return Objective.model_validate({"kind": task, "labels": list(labels), **weight})
    except ValidationError as error:
        raise UsageError(explain_invalid(error, Objective, task), setting="labels") from error


def _advice(manifest: Manifest, path: Path) -> str:
    """How long the schedule lasts, which only the organiser can judge."""
    examples = manifest.rounds.tokens_per_step // manifest.model.context_length
    updates = manifest.schedule.total_updates
    return (
        f"note: the learning rate ends after {updates:,} steps of {examples} examples, {EPOCHS} epochs of "
        f"{updates * examples // EPOCHS:,} examples of each oracle; schedule.total_updates in {path.name} is "
        "what to change if they have others"
    )
