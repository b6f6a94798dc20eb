"""`export`: a saved model as a folder that other programs read."""

from __future__ import annotations

from pathlib import Path

import torch

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.export.export import FORMATS, choose_format
from dupt_swarm.learning.export.export import export as write
from dupt_swarm.learning.export.learned import Format, Learned
from dupt_swarm.learning.export.origin import Origin
from dupt_swarm.models.saved_model import SavedModel, check_vacant, new_model_folder


def export(model: SavedModel, folder: Path | str, format: str | None = None) -> Format:
    """Write ``model`` into a new folder, with its tokenizer and a card that tells its origin.

    Args:
        model: of any swarm, or fine-tuned.
        folder: made; if it is there already, it must be empty.
        format: ``openai-gpt``, ``gpt2``, ``llama`` or ``cohere``, by the model's parts, for
            `transformers`; ``safetensors``: dupt_swarm's own names. None: the one that fits.

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
    learned = _learned(model)
    with new_model_folder(folder) as unfinished:
        write(unfinished, learned, form)
    return form


def _learned(model: SavedModel) -> Learned:
    state, origin = model.state, model.origin
    if origin is None:
        origin = Origin(
            swarm_id=model.manifest.swarm_id,
            round=state.round,
            swarm_tokens=state.swarm_tokens,
            state_digest=state.digest,
        )
    after = "" if origin.state_digest == state.digest else state.digest
    built = model.build(torch.device("cpu"))
    return Learned(built, model.manifest, model.tokenizer, origin, fine_tuned_digest=after)
