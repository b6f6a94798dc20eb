"""`SavedModel`: a model as it lies in a folder, to be taken away from its swarm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from dupt_swarm.errors import CheckpointError
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.strategies.flat import unflatten
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import load_state
from dupt_swarm.swarm import REPLICA_FILE

MANIFEST_FILE, TOKENIZER_FILE = "manifest.json", "tokenizer.json"


@dataclass(frozen=True)
class SavedModel:
    """Manifest, tokenizer and replica state of one model.

    Attributes:
        folder: where its replica state lies.
    """

    folder: Path
    manifest: Manifest
    tokenizer: Tokenizer
    state: ReplicaState

    @classmethod
    def load(cls, path: Path) -> SavedModel:
        """Read a model folder, a checkpoint, or a peer's folder with checkpoints, of which the newest counts.

        Raises:
            CheckpointError: there is no model, or it is damaged.
            ManifestError: its manifest or its tokenizer is not valid.
        """
        newest = max(path.glob("checkpoint-" + 8 * "[0-9]"), default=path)
        shared = newest if (newest / MANIFEST_FILE).exists() else newest.parent
        try:
            manifest = Manifest.from_bytes((shared / MANIFEST_FILE).read_bytes(), f"{shared / MANIFEST_FILE}")
            tokenizer = (shared / TOKENIZER_FILE).read_bytes()
        except OSError as error:
            raise CheckpointError(
                f"{path}: no model there ({error.strerror}: {error.filename}); "
                "give a folder that `dupt-model pull` wrote, or a checkpoint"
            ) from error
        return cls(
            newest,
            manifest,
            Tokenizer.from_bytes(tokenizer, str(shared / TOKENIZER_FILE)),
            load_state(newest / REPLICA_FILE),
        )

    def build(self, device: torch.device) -> nn.Module:
        """The model with its weights, on ``device``, in evaluation mode."""
        model = build_model(self.manifest)
        unflatten(self.state.anchor, list(model.parameters()))
        return model.to(device).eval()
