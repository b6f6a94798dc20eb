"""Which kind of objective a manifest asks for, and opening it with this machine's data."""

from __future__ import annotations

from pathlib import Path

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.corpus import Progress
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.mixture import texts_of
from dupt_swarm.learning.objectives.language import Language
from dupt_swarm.learning.objectives.task import SupervisedTask
from dupt_swarm.learning.objectives.training import DataSettings, TrainingObjective
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest


def kind_of(manifest: Manifest) -> type[TrainingObjective]:
    """The class for what ``manifest`` has learnt."""
    return SupervisedTask if manifest.objective.supervised else Language


def open_objective(
    manifest: Manifest,
    tokenizer: Tokenizer,
    settings: DataSettings,
    cache: Path,
    progress: Progress | None = None,
) -> TrainingObjective:
    """What the manifest has learnt, with the data in the settings; see `TrainingObjective.open`."""
    return kind_of(manifest).open(manifest, tokenizer, settings, cache, progress)


def check_data(settings: DataSettings, manifest: Manifest | None = None) -> None:
    """Find out quickly whether the data are usable, before anything is fetched or written.

    Args:
        settings: where the data are.
        manifest: of the swarm; None: it is not known yet, and the data may be of any kind.

    Raises:
        CorpusError: they are not.
        UsageError: the settings do not go with the manifest, or name a corpus twice.
    """
    if manifest is not None:
        kind_of(manifest).check(manifest, settings)
        return
    for text in texts_of(settings):
        try:
            text.files.check()
        except CorpusError as error:
            try:
                LabelledFiles(Path(text.files.path), settings.columns).find()
            except CorpusError:
                raise error from None
