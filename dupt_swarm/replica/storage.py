"""A replica state on disk: one safetensors file."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.errors import CheckpointError, FileError
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.state import ReplicaState

_ANCHOR, _BUFFER = "anchor", "buffer."


def save_state(state: ReplicaState, path: Path) -> None:
    """Write ``state`` to ``path`` atomically; durable as soon as its folder is a checkpoint.

    Raises:
        CheckpointError: it cannot be written.
    """
    header = {
        "round": state.round,
        "tokens_total": state.swarm_tokens,
        "layout": state.layout,
        "electorate": state.electorate.to_json(),
        "digest": state.digest,
    }
    tensors = {_ANCHOR: state.anchor} | {_BUFFER + name: buffer for name, buffer in state.buffers.items()}
    _save(tensors, {"replica_state": json.dumps(header)}, path)


def _save(tensors: dict[str, Tensor], metadata: dict[str, str], path: Path) -> None:
    def write(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error  # usually a full disk

    try:
        write_atomically(path, write, durable=False)
    except FileError as error:
        raise CheckpointError(str(error)) from error


def save_anchor(anchor: Tensor, path: Path) -> None:
    """Write ``anchor`` (fp32 ``[numel]``) alone to ``path`` atomically.

    Raises:
        CheckpointError: it cannot be written.
    """
    _save({_ANCHOR: anchor}, {}, path)


def load_anchor(path: Path) -> Tensor:
    """Read the anchor at ``path``.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            anchor: Tensor = file.get_tensor(_ANCHOR)
            return anchor
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: not a valid anchor ({error})") from error


def load_state(path: Path, remedy: str = "remove it to fetch the state from the swarm") -> ReplicaState:
    """Read the state at ``path`` and verify its digest; ``remedy``: what to say where that fails.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()["replica_state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        layout = tuple(tuple(shape) for shape in header["layout"])
        buffers = {name.removeprefix(_BUFFER): tensor for name, tensor in tensors.items() if name != _ANCHOR}
        electorate = Electorate.parse(header["round"], header["electorate"])
        state = ReplicaState(
            header["round"], header["tokens_total"], layout, tensors[_ANCHOR], buffers, electorate
        )
        if state.digest != header["digest"]:
            raise ValueError("the content does not match the digest saved with it")
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: not a valid replica state ({error}); {remedy}") from error
    return state


def saved_digest(path: Path) -> str:
    """The digest that the file at ``path`` claims, unverified; empty if there is no such file."""
    try:
        with safe_open(path, framework="pt") as file:
            return str(json.loads(file.metadata()["replica_state"])["digest"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return ""
