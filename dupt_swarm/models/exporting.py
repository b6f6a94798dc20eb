"""`export`: a saved model as a folder that other programs read."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from dupt_swarm.disk.folders import CHAIN_FILE
from dupt_swarm.learning.export.export import choose_format
from dupt_swarm.learning.export.export import export as write
from dupt_swarm.learning.export.gguf import Gguf
from dupt_swarm.learning.export.learned import Format, Learned
from dupt_swarm.learning.export.origin import Origin
from dupt_swarm.models.saved_model import (
    MANIFEST_FILE,
    SavedModel,
    check_vacant,
    new_model_folder,
    writing_model,
)

STATE_INDEX_FILE = "state.json"  # the index of the replica state's blob


def export(
    model: SavedModel, folder: Path | str, format: str | None = None, type: str | None = None
) -> Format:
    """Write ``model`` into a new folder, with its tokenizer and a card that tells its origin.

    If its chain of rounds is known, that goes with it, and what else `verify` needs.

    Args:
        model: of any swarm, or fine-tuned.
        folder: made; if it is there already, it must be empty.
        format: ``openai-gpt``, ``gpt2``, ``llama``, ``cohere`` or ``bert``, by the model's parts, for
            `transformers`; ``safetensors``: dupt_swarm's own names; ``gguf``: for llama.cpp. None: the one
            of Hugging Face's that fits, or else our own.
        type: of the weights in a ``gguf``: ``f32``, ``f16`` (as None), or ``q8_0``.

    Returns:
        the format.

    Raises:
        UsageError: the folder is not empty, or the format cannot hold such a model.
        ManifestError: the model is a custom one, or its vocabulary has the name of a task's token.
        CheckpointError: the folder cannot be written.
    """
    folder = Path(folder)
    form = choose_format(format, model.manifest.model, type)
    check_vacant(folder)
    learned = _learned(model)
    with new_model_folder(folder) as unfinished:
        write(unfinished, learned, form)
        # Rounded weights cannot be compared with the state that the chain leads to.
        if model.chain is not None and not learned.fine_tuned_digest and form.name != Gguf.name:
            _write_proof(unfinished, model, model.chain)
    return form


def _write_proof(folder: Path, model: SavedModel, chain: Path) -> None:
    """What `verify` needs: as the weights have another form there, the hashes of the state's chunks too."""
    with writing_model(folder):
        (folder / MANIFEST_FILE).write_bytes(model.manifest.canonical_bytes())
        (folder / STATE_INDEX_FILE).write_bytes(model.state.blob.index.data)
        shutil.copyfile(chain, folder / CHAIN_FILE)


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
