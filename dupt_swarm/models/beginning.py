"""How a swarm begins from weights that are there already: its manifest names the state of round 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.errors import FileError, ManifestError, UsageError
from dupt_swarm.learning.objectives.start import begin_from, task_manifest
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest, Objective
from dupt_swarm.models.saved_model import TOKENIZER_FILE, SavedModel
from dupt_swarm.presets import load_beginning
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_state
from dupt_swarm.swarm import INITIAL_FILE
from dupt_swarm.tasks import TASKS
from dupt_swarm.tasks.task import room

# Another swarm, whoever organised the one that the model is from, and whatever text that one offered.
NEW: dict[str, object] = {"admission": {}, "offer": {}}


def begin_task(
    base: SavedModel, objective: Objective, *, name: str, seed: int
) -> tuple[Manifest, ReplicaState]:
    """The manifest of a swarm that learns a task from ``base``, and its state of round 0.

    Args:
        base: a pretrained model.
        objective: the task.
        name: of the swarm.
        seed: of the weights that ``base`` lacks, and of the shuffling.

    Raises:
        ManifestError: model and task do not go together.
        UsageError: the model's context has no room for the task's texts.
    """
    room(base.manifest.model.context_length, TASKS[objective.kind].texts_at_once)
    manifest = _finetuning(task_manifest(base.manifest, objective), name, seed)
    model = begin_from(base.build(torch.device("cpu")), manifest, seed)
    return begin(manifest, list(model.parameters()))


def begin_language(base: SavedModel, *, name: str, seed: int) -> tuple[Manifest, ReplicaState]:
    """The manifest of a swarm that trains ``base`` on, on text, and its state of round 0.

    Args:
        base: a pretrained model of language.
        name: of the swarm.
        seed: of the shuffling.

    Raises:
        ManifestError: ``base`` has learnt a task, or its manifest does not describe it.
    """
    if base.manifest.objective.supervised:
        raise ManifestError(
            f"{base.folder}: the model has learnt a task ({base.manifest.objective.kind}); begin from one of "
            "language, or say which task a swarm is to learn"
        )
    preset = load_beginning("continue", base.manifest.model.context_length)
    manifest = base.manifest.changed({**preset, "name": name, "seed": seed, "initial_digest": "", **NEW})
    return begin(manifest, list(base.build(torch.device("cpu")).parameters()))


def begin(manifest: Manifest, parameters: Sequence[Tensor]) -> tuple[Manifest, ReplicaState]:
    """``manifest`` with the digest of the state that has these ``parameters``, and that state."""
    state = first_state(manifest, parameters)
    return manifest.changed({"initial_digest": state.digest}), state


def write_beginning(path: Path, manifest: Manifest, tokenizer: Tokenizer, state: ReplicaState) -> None:
    """Write what a first peer needs: the manifest at ``path`` last, so that it never lacks the others.

    Raises:
        UsageError: that is not possible; names the folder.
        CheckpointError: the state cannot be written.
    """
    try:
        shared, initial = path.with_name(TOKENIZER_FILE), path.with_name(INITIAL_FILE)
        tokenizer.save(shared)
        save_state(state, initial)
        initial.chmod(shared.stat().st_mode)  # safetensors lets nobody else read what it writes
        write_atomically(path, lambda file: file.write_text(manifest.to_toml(), encoding="utf-8"))
    except (OSError, FileError) as error:
        raise UsageError(f"{path}: cannot be written ({error}); choose another folder") from error


def _finetuning(manifest: Manifest, name: str, seed: int) -> Manifest:
    """``manifest`` with the optimisation of a fine-tuning; it keeps its model, encoding and time limits."""
    preset = load_beginning("finetune", manifest.model.context_length)
    rounds = manifest.rounds.model_dump() | preset["rounds"]
    return manifest.changed({**preset, "rounds": rounds, "name": name, "seed": seed, **NEW})
