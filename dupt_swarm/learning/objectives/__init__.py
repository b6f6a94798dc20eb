"""What a model learns: L1 (language), or a task besides it, L3 = L2 + λ·L1 (Radford et al. 2018, section 3).

training         `TrainingObjective`: an objective with this machine's data, what an oracle is handed
text             what is learnt from text
language         text for L1
masked_language  text for an encoder: masked tokens, and whether a text follows on another
tables           what is learnt from tables of examples
task             labelled examples for L3
seq2seq          pairs of texts, the second of which is written for the first
task_model       a decoder or encoder with the task's head W_y; L2 and L3
start            a task's manifest and first weights, from a model that is there already
scores           accuracy, F1, correlations, and the evaluation of a task model
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.mixture import texts_of
from dupt_swarm.learning.objectives.language import Language
from dupt_swarm.learning.objectives.masked_language import MaskedLanguage
from dupt_swarm.learning.objectives.seq2seq import Seq2Seq
from dupt_swarm.learning.objectives.task import SupervisedTask
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.objectives.training import TrainingObjective
from dupt_swarm.learning.transformer.bert import Bert
from dupt_swarm.learning.transformer.encoder_decoder import EncoderDecoder
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.tables import LANGUAGE, MASKED, SEQ2SEQ
from dupt_swarm.settings import DataSettings

OBJECTIVES: dict[str, type[TrainingObjective]] = {
    LANGUAGE: Language,
    MASKED: MaskedLanguage,
    SEQ2SEQ: Seq2Seq,
}
"""The class of each objective that needs no labels, by what a manifest calls it; all tasks have one."""


def kind_of(manifest: Manifest) -> type[TrainingObjective]:
    """The class for what ``manifest`` has learnt."""
    return SupervisedTask if manifest.objective.supervised else OBJECTIVES[manifest.objective.kind]


def build_model(manifest: Manifest) -> nn.Module:
    """What the objective trains, its weights drawn with seed 0 (`init_weights` draws others)."""
    return kind_of(manifest).model(manifest)


def build_outline(manifest: Manifest) -> nn.Module:
    """The same on the meta device: shapes alone, without memory; the first time takes a second or two."""
    with torch.device("meta"):
        return build_model(manifest)


def first_model(manifest: Manifest) -> nn.Module:
    """The model with which a swarm begins whose manifest names no first state: drawn with its seed.

    Processors with other vector instructions may draw other bits.
    """
    model = build_model(manifest)
    model.init_weights(manifest.seed)  # type: ignore[operator]
    return model


def backbone_of(model: nn.Module) -> nn.Module:
    """What `build_model` made, without the head of a task."""
    return model.backbone if isinstance(model, TaskModel) else model


def decoder_of(model: nn.Module) -> GPT:
    """The decoder in a model that `build_model` made: what continues text, for a task model too.

    Raises:
        UsageError: it has none, or one that continues no text.
    """
    return _of_kind(model, GPT)


def encoder_of(model: nn.Module) -> Bert:
    """The encoder in a model that `build_model` made: what fills gaps, for a task model too.

    Raises:
        UsageError: it has none.
    """
    return _of_kind(model, Bert)


def writer_of(model: nn.Module) -> EncoderDecoder:
    """A model that `build_model` made, if it writes texts for others.

    Raises:
        UsageError: it does not.
    """
    return _of_kind(model, EncoderDecoder)


DOES: dict[type[nn.Module], str] = {
    GPT: "a decoder, which continues texts (`dupt-model generate`)",
    Bert: "an encoder, which fills gaps (`dupt-model fill`)",
    EncoderDecoder: "an encoder-decoder, which writes texts for others (`dupt-model translate`)",
}
"""What each model is, and what it is for."""
Kind = TypeVar("Kind", bound=nn.Module)


def _of_kind(model: nn.Module, wanted: type[Kind]) -> Kind:
    found = backbone_of(model)
    if not isinstance(found, wanted):
        raise UsageError(f"this takes {DOES[wanted]}; the model is {DOES[type(found)]}")
    return found


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
            text.check()
        except CorpusError as error:
            try:
                LabelledFiles(Path(text.path), settings.columns).find()
            except CorpusError:
                raise error from None
