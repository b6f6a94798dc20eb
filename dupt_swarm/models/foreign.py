"""Models of other programs: a folder in Hugging Face's format becomes a `SavedModel` of round 0."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from dupt_swarm.errors import ManifestError
from dupt_swarm.learning.importing.hugging_face import CONFIG, is_hugging_face, read_hugging_face
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.explain import explain_invalid
from dupt_swarm.manifest.manifest import NAME_LENGTH_MAX
from dupt_swarm.models.saved_model import REMEDY, SavedModel
from dupt_swarm.presets import load_continuing
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState


def load_model(path: Path) -> SavedModel:
    """The model at ``path``: as `SavedModel.load`, or a folder in Hugging Face's format.

    Raises:
        CheckpointError: there is no model, or it is damaged.
        ManifestError: it cannot be represented here, or its files do not belong together.
    """
    if is_hugging_face(path):
        return load_foreign(path)
    return SavedModel.load(path, remedy=f"{REMEDY}, or a folder in Hugging Face's format ({CONFIG})")


def load_foreign(folder: Path) -> SavedModel:
    """The model in ``folder``, with the manifest of a swarm that trains it on.

    Raises:
        CheckpointError: a file is missing, damaged, or not what config.json says.
        ManifestError: the model cannot be represented here.
    """
    found = read_hugging_face(folder)
    tokenizer = Tokenizer.from_foreign(found.tokenizer, found.end_of_text, str(folder / "tokenizer.json"))
    about = {"sha256": tokenizer.sha256, "vocabulary_size": tokenizer.vocabulary_size}
    tables = {
        "name": re.sub("[^A-Za-z0-9]+", "-", folder.resolve().name).strip("-")[:NAME_LENGTH_MAX] or "model",
        "seed": 0,
        "tokenizer": about | {"end_of_text": found.end_of_text},
        "model": found.model.model_dump(),
    }
    try:
        manifest = Manifest.model_validate(load_continuing(found.model.context_length) | tables)
    except ValidationError as error:
        raise ManifestError(explain_invalid(error, Manifest, str(folder))) from error
    state = ReplicaState.initial(found.parameters, build_outer(manifest).buffer_names)
    return SavedModel(folder, manifest, tokenizer, state)
