"""A model in Hugging Face's format: `gpt2`, `openai-gpt`, `llama`, `cohere`, `bert`, and others built so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from dupt_swarm.errors import CheckpointError, ManifestError
from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.architectures.architecture import Architecture, shortened
from dupt_swarm.learning.importing.files import BYTES_MAX, find_file, read_bytes, read_json
from dupt_swarm.learning.importing.weights import open_weights
from dupt_swarm.learning.transformer.bert import Bert
from dupt_swarm.manifest import Model

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
CONFIG_BYTES_MAX = 1 << 20
CHOICE = f"take a model of {', '.join(ARCHITECTURES)}"


@dataclass(frozen=True)
class Imported:
    """What there is in a folder.

    Attributes:
        model: the shape.
        parameters: fp32, in the order of the model's.
        tokenizer: the content of tokenizer.json.
        end_of_text: the id of the token that ends a text.
        drawn: modules of ours that the folder lacks, such as `follows`: their weights are drawn with seed 0.
    """

    model: Model
    parameters: list[Tensor]
    tokenizer: bytes
    end_of_text: int
    drawn: tuple[str, ...] = ()


def is_hugging_face(folder: Path) -> bool:
    """Whether ``folder`` looks like a model in this format."""
    try:
        return (folder / CONFIG).exists()
    except OSError:  # as of a name that is too long
        return False


def read_config(folder: Path) -> tuple[Architecture, dict[str, Any]]:
    """What config.json in ``folder`` says, and of which architecture the model is.

    Raises:
        ManifestError: it is of an architecture that cannot be represented here.
        CheckpointError: the file is missing, or damaged.
    """
    config = read_json(folder, CONFIG, CONFIG_BYTES_MAX)
    if config is None:
        raise CheckpointError(f"{folder}: no {CONFIG}; give a model's folder in Hugging Face's format")
    kind = config.get("model_type")
    if kind is None:
        raise ManifestError(f"{folder / CONFIG}: no model_type, so it is in another format; {CHOICE}")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise ManifestError(
            f"{folder / CONFIG}: the architecture {shortened(kind)} cannot be represented here; {CHOICE}"
        )
    return ARCHITECTURES[kind], config


def read_hugging_face(folder: Path) -> Imported:
    """Read the model in ``folder``; nothing is fetched, and nothing that is read is run.

    Raises:
        ManifestError: it is of an architecture, or has parts, that cannot be represented here.
        CheckpointError: a file is missing, damaged, or not what config.json says.
    """
    architecture, config = read_config(folder)
    model = architecture.model(config)
    path = find_file(folder, TOKENIZER)
    if path is None:
        raise CheckpointError(
            f"{folder}: no {TOKENIZER}; in transformers, "
            "`AutoTokenizer.from_pretrained(…).save_pretrained(…)` writes one"
        )
    with open_weights(folder) as weights:
        found = weights.read(architecture.names, model)
    parameters, drawn = _completed(found, model)
    # An encoder ends no text by itself, and what config.json may say of that means nothing.
    said = None if model.bidirectional else config.get("eos_token_id")
    if said is None and architecture.end:
        said = _id_of(architecture.end, read_json(folder, TOKENIZER, BYTES_MAX) or {})
    if said is None and model.bidirectional:
        raise ManifestError(
            f"{path}: no token {architecture.end} there, which ends a text; "
            "use the one that the model came with"
        )
    end = _end_of_text(said, model)
    return Imported(model, parameters, read_bytes(path, BYTES_MAX), end, drawn)


def _completed(found: dict[str, Tensor], model: Model) -> tuple[list[Tensor], tuple[str, ...]]:
    """All parameters in their order, and of which modules they were drawn."""
    names = list(model.parameter_shapes())
    lacking = [name for name in names if name not in found]
    if not lacking:
        return [found[name] for name in names], ()
    drawn = dict(Bert(model).named_parameters())
    parameters = [found[name] if name in found else drawn[name].detach() for name in names]
    return parameters, tuple(dict.fromkeys(name.rpartition(".")[0] for name in lacking))


def _id_of(token: str, tokenizer: dict[str, Any]) -> object:
    """The id that tokenizer.json gives a token; None if it does not have it."""
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    return vocabulary.get(token) if isinstance(vocabulary, dict) else None


def _end_of_text(said: object, model: Model) -> int:
    """The first, where there are several."""
    end = said[0] if isinstance(said, list) and said else said
    if not isinstance(end, int) or isinstance(end, bool) or not 0 <= end < model.vocabulary_size:
        raise ManifestError(
            f"config.json: eos_token_id = {shortened(said)} is not the id of a token; "
            "write there which ends a text"
        )
    return end
