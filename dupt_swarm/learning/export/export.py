"""Writing a model into a folder, in the format that is asked for or that fits."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError

from dupt_swarm.errors import FileError, UsageError
from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.export.card import render_card
from dupt_swarm.learning.export.hugging_face import HuggingFace
from dupt_swarm.learning.export.learned import Format, Learned
from dupt_swarm.learning.export.plain import Plain
from dupt_swarm.manifest import Model

_FORMATS: tuple[Format, ...] = (*map(HuggingFace, ARCHITECTURES.values()), Plain())
FORMATS = {form.name: form for form in _FORMATS}
"""The first one that can hold a model fits it best."""


def choose_format(name: str | None, model: Model) -> Format:
    """The format of this name, or the one that fits a model of this shape.

    Raises:
        UsageError: the format cannot hold such a model.
    """
    fitting = next(form for form in FORMATS.values() if not form.problem(model))
    form = FORMATS[name] if name else fitting
    if problem := form.problem(model):
        raise UsageError(
            f"the model cannot be exported as {form.name}: {problem}; export it as {fitting.name}",
            setting="format",
        )
    return form


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
