"""Parameters from safetensors files: names, shapes and types are checked before any value is read.

Memory is bounded by the model: one tensor of the files at a time beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dupt_swarm.errors import CheckpointError
from dupt_swarm.learning.architectures.architecture import SHOWN_CHARACTERS
from dupt_swarm.learning.architectures.names import Names, Row
from dupt_swarm.learning.importing.files import find_file, read_json
from dupt_swarm.manifest import Model

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "consolidated.00.pth")
WIDENED = ("F32", "F16", "BF16")  # what safetensors calls fp32 and what fits into it
NAMED_MAX = 5
INDEX_BYTES_MAX, HEADERS_BYTES_MAX, FILES_MAX = 16 << 20, 64 << 20, 1000
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.safetensors")  # only a file in the same folder

# Where one of our parameters comes from: its row in the table of names, and the tensors in the files, whose
# rows it has one below the other.
Place = tuple[Row, list[str]]


class Weights:
    """The open safetensors files of a folder."""

    def __init__(self, files: Mapping[str, Any], folder: Path) -> None:
        """``files``: for each tensor the open file that has it."""
        self._files, self._folder = files, folder

    def read(self, names: Names, model: Model) -> dict[str, Tensor]:
        """Our parameters, fp32, by name, without modules that files may lack, and that these do.

        Raises:
            CheckpointError: a tensor is missing, has another shape or type, holds NaN or infinity, or has no
                place in our model.
        """
        lacking = {module for module in names.optional if not self._has_any(names, module, model)}
        shapes = {
            name: shape for name, shape in model.parameter_shapes().items() if _module(name) not in lacking
        }
        places = {name: self._find(names, name) for name in shapes}
        self._check_leftovers(names, places, tied=model.tie_embeddings)
        for name, shape in shapes.items():
            self._check(places[name], shape, model)
        parameters = {name: self._read(places[name], shape, model) for name, shape in shapes.items()}
        for tied, ours in names.tied.items():
            if model.tie_embeddings and tied in self._files:
                _, theirs = places[ours]
                self._check_tied(tied, theirs[0], parameters[ours])
        return parameters

    def _has_any(self, names: Names, module: str, model: Model) -> bool:
        """Whether there is something of a module of ours."""
        ours = [name for name in model.parameter_shapes() if _module(name) == module]
        theirs = (each for name in ours for each in names.theirs(name)[1])
        return any(spelled in self._files for name in theirs for spelled in names.spellings(name))

    def _check_tied(self, name: str, other: str, parameter: Tensor) -> None:
        """Some have come apart in training, and config.json still says that they are one."""
        there = self._files[name].get_slice(name)
        alike = tuple(there.get_shape()) == parameter.shape and there.get_dtype() in WIDENED
        if not (alike and torch.equal(self._files[name].get_tensor(name).float(), parameter)):
            raise CheckpointError(
                f"{self._folder}: `{name}` differs from `{other}`, but config.json ties them; "
                "of a llama or cohere, set tie_word_embeddings = false there; or take another model"
            )

    def _find(self, names: Names, ours: str) -> Place:
        row, theirs = names.theirs(ours)
        found = [
            next((each for each in names.spellings(name) if each in self._files), name) for name in theirs
        ]
        missing = [name for name, there in zip(theirs, found, strict=True) if there not in self._files]
        if missing:
            raise self._error(f"`{missing[0]}` is missing")
        return row, found

    def _check_leftovers(self, names: Names, places: Mapping[str, Place], *, tied: bool) -> None:
        used = {name for _, theirs in places.values() for name in theirs}
        left = [name for name in self._files if name not in used and not names.means_nothing(name)]
        left = sorted(name for name in left if not (tied and name in names.tied))
        if left:
            more = f" and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
            named = ", ".join(f"`{name[:SHOWN_CHARACTERS]}`" for name in left[:NAMED_MAX])
            raise CheckpointError(
                f"{self._folder}: there is no place here for {named}{more}; take another model"
            )

    def _check(self, place: Place, shape: tuple[int, ...], model: Model) -> None:
        row, names = place
        for name, rows in zip(names, row.sizes(shape[0], model), strict=True):
            expected = (rows, *shape[1:])
            turned = expected[::-1] if row.conv1d else expected
            there = self._files[name].get_slice(name)
            if tuple(there.get_shape()) != turned:
                found, wanted = list(there.get_shape()), list(turned)
                raise self._error(f"`{name}` has shape {found}, and by config.json {wanted}")
            if there.get_dtype() not in WIDENED:
                raise self._error(f"`{name}` is of type {there.get_dtype()}, not one of {', '.join(WIDENED)}")

    def _read(self, place: Place, shape: tuple[int, ...], model: Model) -> Tensor:
        row, names = place
        parameter, start = torch.empty(shape), 0
        for name, rows in zip(names, row.sizes(shape[0], model), strict=True):
            tensor = self._files[name].get_tensor(name).float()
            if not torch.isfinite(tensor).all():
                raise self._error(f"`{name}` has values that are not finite")
            turned = row.conv1d and tensor.ndim == 2
            parameter[start : start + rows] = tensor.T if turned else tensor
            start += rows
        if row.order:
            parameter[row.order(model)] = parameter.clone()
        return parameter

    def _error(self, problem: str) -> CheckpointError:
        return CheckpointError(f"{self._folder}: {problem}; fetch the model again, or take another one")


def _module(name: str) -> str:
    return name.rpartition(".")[0]


@contextmanager
def open_weights(folder: Path) -> Iterator[Weights]:
    """The weights in ``folder``, in one file or several with an index.

    Raises:
        CheckpointError: there are none, or only pickled ones; they are damaged.
    """
    paths = _find_files(folder)
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        for path in paths:
            try:
                opened = stack.enter_context(safe_open(path, framework="pt"))
                names = opened.keys()
            except (SafetensorError, OSError) as error:
                raise CheckpointError(
                    f"{path}: not a safetensors file, or damaged: {error}; fetch it again"
                ) from error
            twice = files.keys() & names
            if twice:
                raise CheckpointError(
                    f"{path}: `{min(twice)[:SHOWN_CHARACTERS]}` is in another file too; fetch the model again"
                )
            files |= dict.fromkeys(names, opened)
        yield Weights(files, folder)


def _find_files(folder: Path) -> list[Path]:
    """The files of the weights; together their headers have a bearable size.

    Raises:
        CheckpointError: one is missing or there twice, or they are too large.
    """
    paths: list[Path] = []
    headers = 0
    for name in _file_names(folder):
        path = find_file(folder, name)
        if path is None or path in paths:
            raise CheckpointError(f"{folder / name}: missing, or the same as another; fetch the model again")
        try:
            with path.open("rb") as file:
                headers += int.from_bytes(file.read(8), "little")
        except OSError as error:
            raise CheckpointError(
                f"{path}: cannot be read: {error.strerror}; check its permissions"
            ) from error
        if headers > HEADERS_BYTES_MAX:
            raise CheckpointError(f"{path}: not a safetensors file, or damaged: its header is too long")
        paths.append(path)
    return paths


def _file_names(folder: Path) -> list[str]:
    if find_file(folder, SINGLE) is not None:
        return [SINGLE]
    index = read_json(folder, INDEX, INDEX_BYTES_MAX)
    if index is not None:
        table = index.get("weight_map")
        names = list(table.values()) if isinstance(table, dict) else []
        plain = all(isinstance(name, str) and FILE.fullmatch(name) for name in names)
        if not plain or not 0 < len(set(names)) <= FILES_MAX:
            raise CheckpointError(f"{folder / INDEX}: names no files of this folder; fetch it again")
        return sorted(set(names))
    for name in PICKLED:
        if find_file(folder, name) is not None:
            raise CheckpointError(
                f"{folder / name}: pickled weights can run any code when they are read; write them again as "
                "safetensors: in transformers, `AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)`, "
                "of an encoder with `AutoModelForPreTraining`"
            )
    raise CheckpointError(f"{folder}: no {SINGLE} and no {INDEX}; give a model's folder that has one")
