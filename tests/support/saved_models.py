"""Model folders as `dupt-model` takes them, with a very small model of random weights."""

from pathlib import Path
from typing import Any

from dupt_swarm.checkpoint import REPLICA_FILE
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.models.saved_model import MANIFEST_FILE, TOKENIZER_FILE, SavedModel
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.storage import save_state
from tests.support.tiny import tiny_manifest

TEXT = "Der Bär läuft über die Brücke. The bear walks over the bridge, the bridge over the river.\n" * 3


def small_tokenizer(vocabulary_size: int = 300) -> Tokenizer:
    """Trained on a few words with umlauts."""
    return train_tokenizer([TEXT], vocabulary_size)


def small_manifest(**changes: Any) -> Manifest:
    """`tiny_manifest` with the tokenizer of above."""
    tokenizer = small_tokenizer()
    return tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size, **changes)


def write_model(folder: Path, tokenizer: Tokenizer | None = None, **changes: Any) -> SavedModel:
    """Write a model folder, with a task if they say so; ``changes`` as in `tiny_manifest`.

    Weights are ten times as large as usual, so that the model has preferences without any training.
    """
    changes["model"] = {"init_std": 0.2} | changes.get("model", {})
    tokenizer = tokenizer or small_tokenizer()
    changes["tokenizer"] = {"end_of_text": tokenizer.end_of_text}
    manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size, **changes)
    model = build_model(manifest)
    return write_state(folder, manifest, tokenizer, list(model.parameters()))


def write_state(folder: Path, manifest: Manifest, tokenizer: Tokenizer, parameters: list[Any]) -> SavedModel:
    """Write a model folder with these parameters, as of round 0."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST_FILE).write_bytes(manifest.canonical_bytes())
    tokenizer.save(folder / TOKENIZER_FILE)
    save_state(first_state(manifest, parameters), folder / REPLICA_FILE)
    return SavedModel.load(folder)
