"""The decoder of a model folder, ready to read and write text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from dupt_swarm.learning.decoder.gpt import GPT
    from dupt_swarm.models.saved_model import SavedModel


def load_decoder(path: Path, device: torch.device) -> tuple[SavedModel, GPT]:
    """The model at ``path`` and its decoder on ``device``; that of a task's model reads and writes too.

    Raises:
        CheckpointError, ManifestError: see `load_model`.
    """
    from dupt_swarm.learning.objectives.open import decoder_of
    from dupt_swarm.models.saved_model import load_model

    saved = load_model(path)
    return saved, decoder_of(saved.build(device))
