"""`export`: a saved model as a folder that other programs read."""

from __future__ import annotations

from pathlib import Path

import torch

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.export.export import FORMATS, choose_format
from dupt_swarm.learning.export.export import export as write
from dupt_swarm.learning.export.learned import Format, Learned
from dupt_swarm.learning.export.origin import Measured, Origin
from dupt_swarm.models.saved_model import SavedModel, check_vacant, new_model_folder


def export(model: SavedModel, folder: Path | str, format: str | None = None) -> Format:
    """Write ``model`` into a new folder, with its tokenizer and a card that tells its origin.

    Args:
        model: of any swarm, or fine-tuned.
        folder: made; if it is there already, it must be empty.
        format: ``openai-gpt`` for post-norm models, ``gpt2`` for pre-norm ones, both for `transformers`;
            ``safetensors``: dupt_swarm's own names. None: the one that fits.

    Returns:
        the format.

    Raises:
        UsageError: the folder is not empty, or the format cannot hold such a model.
        ManifestError: the model is a custom one, or its vocabulary has the name of a task's token.
        FileError: the folder cannot be written.
    """
    folder = Path(folder)
    if format is not None and format not in FORMATS:
        raise UsageError(f"there is no format {format}; choose one of {', '.join(FORMATS)}", setting="format")
    check_vacant(folder)
    form = choose_format(format, model.manifest.model)
    built = model.build(torch.device("cpu"))
    with new_model_folder(folder) as unfinished:
        write(unfinished, Learned(built, model.manifest, model.tokenizer, _origin(model)), form)
    return form


def _origin(model: SavedModel) -> Origin:
    """What the folder tells, or of a checkpoint what it is."""
    state, told = model.state, model.origin
    if told is None:
        return Origin(model.manifest.swarm_id, state.round, state.swarm_tokens, state.digest)
    return Origin(
        swarm_id=told.swarm_id,
        round=told.round,
        swarm_tokens=told.swarm_tokens,
        state_digest=told.state_digest,
        peers=told.peers,
        evaluations=tuple(Measured(**dict(found)) for found in told.evaluations),
        pulled_at=told.pulled_at,
        version=told.version,
        fine_tuned_digest="" if told.state_digest == state.digest else state.digest,
    )
