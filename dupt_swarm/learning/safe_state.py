"""Nested structures with tensors, such as an optimizer's state, in one safetensors file: no pickle."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.errors import CheckpointError, FileError


@dataclass(frozen=True)
class Packed:
    """A tree, ready to be written.

    Attributes:
        skeleton: JSON, in which a tensor is a name.
        tensors: by that name, in the main memory.
    """

    skeleton: str
    tensors: dict[str, Tensor]


def pack(tree: object, *, copy: bool = False) -> Packed:
    """``tree``, ready to be written; as a ``copy`` it stays as it is, whatever becomes of the tensors.

    Args:
        tree: dicts (keys are strings or integers), lists and tuples of tensors, numbers, strings, booleans
            and None. Tensors keep dtype and shape; each is stored by itself, even if some share memory.
        copy: on a GPU's tensors it makes no difference.

    Raises:
        TypeError: the tree holds something else.
    """
    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps(_pack(tree, tensors, copy))
    _part_memory(tensors)
    return Packed(skeleton, tensors)


def write_tree(path: Path, tree: object) -> None:
    """Write ``tree`` to ``path`` at once; see `pack` and `write_packed`."""
    write_packed(path, pack(tree))


def write_packed(path: Path, packed: Packed) -> None:
    """Write a tree to ``path``, whole or not at all; durable as soon as its folder is a checkpoint.

    Other threads go on meanwhile.

    Args:
        path: its folder exists.
        packed: the tree.

    Raises:
        CheckpointError: the disk is full or the folder cannot be written; ``path`` is as before.
    """
    skeleton, tensors = packed.skeleton, packed.tensors
    metadata = {"skeleton": skeleton, "crc32": str(_checksum(skeleton, tensors))}
    try:
        write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata), durable=False)
    except FileError as error:
        raise CheckpointError(str(error)) from error
    except SafetensorError as error:  # how safetensors reports a full disk
        raise CheckpointError(f"{path}: cannot be written ({error}); free space there") from error


def read_tree(path: Path) -> Any:
    """What `write_tree` wrote to ``path``, with all tensors on the CPU.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        if str(_checksum(metadata["skeleton"], tensors)) != metadata["crc32"]:
            raise ValueError("the checksum differs")
        return _unpack(json.loads(metadata["skeleton"]), tensors)
    except (OSError, SafetensorError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: missing or damaged ({error}); remove it and resume from another checkpoint"
        ) from error


def _pack(tree: object, tensors: dict[str, Tensor], copy: bool) -> object:
    """The JSON form of ``tree``: containers and tensors become ``{kind: content}``, leaves stay."""
    match tree:
        case Tensor():
            name = str(len(tensors))
            tensors[name] = tree.detach().to("cpu", copy=copy).contiguous()
            return {"tensor": name}
        case dict():
            for key in tree:
                if type(key) not in (str, int):
                    raise TypeError(f"a tree's keys are strings or integers, not {key!r}")
            return {"dict": [[key, _pack(value, tensors, copy)] for key, value in tree.items()]}
        case list():
            return {"list": [_pack(value, tensors, copy) for value in tree]}
        case tuple():
            return {"tuple": [_pack(value, tensors, copy) for value in tree]}
        case None | bool() | int() | float() | str():
            return tree
    raise TypeError(f"a tree cannot hold {type(tree).__name__}: {tree!r}")


def _part_memory(tensors: dict[str, Tensor]) -> None:
    """Copy each tensor that shares memory with an earlier one, which safetensors refuses to write."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        pointer = tensor.untyped_storage().data_ptr()
        if pointer in seen:
            tensors[name] = tensor.clone()
        seen.add(pointer)


def _unpack(packed: Any, tensors: dict[str, Tensor]) -> object:
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "dict":
            return {key: _unpack(value, tensors) for key, value in content}
        case "list":
            return [_unpack(value, tensors) for value in content]
        case "tuple":
            return tuple(_unpack(value, tensors) for value in content)
    raise ValueError(f"unknown kind {kind!r}")


def _checksum(skeleton: str, tensors: dict[str, Tensor]) -> int:
    crc = zlib.crc32(skeleton.encode())
    for name in sorted(tensors):
        # numpy has no bf16, so the raw bytes are hashed.
        crc = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, crc)
    return crc
