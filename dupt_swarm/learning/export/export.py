"""The formats of exported models, our own among them, and writing a folder in one."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError

from dupt_swarm.errors import FileError, UsageError
from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.export import examples
from dupt_swarm.learning.export.card import render_card
from dupt_swarm.learning.export.gguf import TYPES, Gguf
from dupt_swarm.learning.export.hugging_face import HuggingFace
from dupt_swarm.learning.export.learned import Format, Learned, write_json, write_tensors
from dupt_swarm.manifest import Manifest, Model


class Plain:
    """A `Format`: model.safetensors, the tables of model and objective as config.json, and tokenizer.json."""

    name = "safetensors"
    library = "dupt_swarm"

    def problem(self, _model: Model) -> str:
        """See `Format.problem`: none."""
        return ""

    def write(self, folder: Path, learned: Learned) -> None:
        tensors = {name: tensor.cpu().clone() for name, tensor in learned.model.state_dict().items()}
        write_tensors(folder / "model.safetensors", tensors)
        tables = learned.manifest.model_dump(mode="json", include={"model", "objective"})
        write_json(folder / "config.json", tables)
        (folder / "tokenizer.json").write_bytes(learned.tokenizer.to_bytes())

    def load_line(self, folder: str, _manifest: Manifest) -> str:
        path = f"{folder}/model.safetensors"
        return f"from safetensors.torch import load_file; parameters = load_file({path!r})"

    def example(self, manifest: Manifest) -> str:
        return examples.plain(manifest)


_FORMATS: tuple[Format, ...] = (*map(HuggingFace, ARCHITECTURES.values()), Plain(), Gguf())
FORMATS = {form.name: form for form in _FORMATS}
"""The first one that can hold a model fits it best."""


def choose_format(name: str | None, model: Model, type: str | None = None) -> Format:
    """The format of this name, or the one that fits a model of this shape.

    ``type`` is that of the weights, for formats that have several.

    Raises:
        UsageError: there is no such format or type, the format cannot hold such a model, or has no types.
    """
    if name is not None and name not in FORMATS:
        raise UsageError(f"there is no format {name}; choose one of {', '.join(FORMATS)}", setting="format")
    if type is not None and type not in TYPES:
        raise UsageError(f"there is no type {type}; choose one of {', '.join(TYPES)}", setting="type")
    if type is not None and name != Gguf.name:
        raise UsageError("only the format gguf has types of weights", setting=("type", "format"))
    fitting = next(form for form in FORMATS.values() if not form.problem(model))
    form = FORMATS[name] if name else fitting
    if problem := form.problem(model):
        raise UsageError(
            f"the model cannot be exported as {form.name}: {problem}; export it as {fitting.name}",
            setting="format",
        )
    return form if type is None else Gguf(type)


def export(folder: Path, learned: Learned, form: Format) -> None:
    """Write the model and its card into ``folder``, which is there and empty.

    Raises:
        ManifestError: the vocabulary has the name of one of the task's tokens.
        FileError: the folder cannot be written.
    """
    try:
        form.write(folder, learned)
        (folder / "README.md").write_text(render_card(learned, form), encoding="utf-8")
    except (OSError, SafetensorError) as error:  # which of them a full disk is depends on the file
        reason = error.strerror if isinstance(error, OSError) else error
        raise FileError(
            f"{folder}: the model could not be written ({reason or error}); free some space there, "
            "or choose another folder"
        ) from error
