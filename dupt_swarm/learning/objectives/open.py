"""Which kind of objective a manifest asks for, and opening it with this machine's data."""

from __future__ import annotations

from pathlib import Path

from dupt_swarm.learning.corpus import Progress
from dupt_swarm.learning.objectives.language import Language
from dupt_swarm.learning.objectives.task import LabelledTask
from dupt_swarm.learning.objectives.training import DataSettings, TrainingObjective
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest


def kind_of(manifest: Manifest) -> type[TrainingObjective]:
    """The class for what ``manifest`` has learnt."""
    return LabelledTask if manifest.objective.supervised else Language


def open_objective(
    manifest: Manifest,
    tokenizer: Tokenizer,
    settings: DataSettings,
    cache: Path,
    progress: Progress | None = None,
) -> TrainingObjective:
    """What the manifest has learnt, with the data in the settings; see `TrainingObjective.open`."""
    return kind_of(manifest).open(manifest, tokenizer, settings, cache, progress)
