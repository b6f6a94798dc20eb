"""What may be opened in a folder that somebody else made: regular files of a bearable size."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from dupt_swarm.errors import CheckpointError

BYTES_MAX = 64 << 20  # of a tokenizer.json, the largest


def find_file(folder: Path, name: str) -> Path | None:
    """The file ``name`` of ``folder``; None if there is none.

    Raises:
        CheckpointError: it is no regular file, or a link that leads elsewhere. Hugging Face's cache keeps a
            model's files beside its folder, in `blobs`; that is allowed.
    """
    path = folder / name
    try:
        target = path.resolve(strict=True)
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError, ValueError) as error:  # also links in a circle, and impossible names
        raise CheckpointError(f"{path}: cannot be read: {error}; check its permissions") from error
    inside = folder.resolve()
    blobs = inside.parent.parent / "blobs" if inside.parent.name == "snapshots" else inside
    if not (target.is_relative_to(inside) or target.is_relative_to(blobs)):
        raise CheckpointError(f"{path}: a link that leads out of the folder; put the file itself there")
    if not stat.S_ISREG(mode):
        raise CheckpointError(f"{path}: not a file; remove it, or fetch the model again")
    return target


def read_json(folder: Path, name: str, most: int) -> dict[str, Any] | None:
    """The object in the JSON file ``name`` of ``folder``, of ``most`` bytes; None if there is no such file.

    Raises:
        CheckpointError: it is too long, or not JSON, or no object.
    """
    path = find_file(folder, name)
    if path is None:
        return None
    try:
        content = json.loads(read_bytes(path, most))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}; fetch the model again") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a JSON object; fetch the model again")
    return content


def read_bytes(path: Path, most: int) -> bytes:
    """What a file of at most so many bytes holds that `find_file` found.

    Raises:
        CheckpointError: it is too long, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}; check its permissions") from error
    if len(data) > most:
        raise CheckpointError(f"{path}: more than {most >> 20} MiB; fetch the model again")
    return data
