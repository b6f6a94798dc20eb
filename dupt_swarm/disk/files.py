"""Files that are either whole or not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from dupt_swarm.errors import FileError


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, make it durable, and rename it to ``path``.

    Raises:
        FileError: the disk is full or the folder cannot be written; ``path`` is as before.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written ({error.strerror or error}); free space there, or let it be writable"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # gone already, or the folder cannot be written
            temporary.unlink()


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
