"""Atomic writes: files are complete or absent, and secrets are their owner's from the first byte on."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dupt_swarm.errors import FileError

SYNC_BYTES = 1 << 24  # a second on the slowest of disks


def write_atomically(path: Path, write: Callable[[Path], object], *, durable: bool = True) -> None:
    """Let ``write`` fill a temporary file beside ``path``, make it durable, and rename it to ``path``.

    Args:
        path: of the file.
        write: fills the file that it is given.
        durable: False: a power cut may take it, or whoever names the folder makes its files durable, see
            `SwarmFolder.new_checkpoint`.

    Raises:
        FileError: the disk is full or the folder cannot be written; ``path`` is as before.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        if durable:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written ({error.strerror or error}); free space there, or let it be writable"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # already gone, or the folder is not writable
            temporary.unlink()


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner may read, in place of one that is there.

    Raises:
        FileError: see `write_atomically`.
    """

    def write(temporary: Path) -> None:
        temporary.touch(0o600)
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def create_secret(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read; one that is there already is never written over.

    Raises:
        FileExistsError: there is one.
        FileError: it cannot be written; then there is none.
    """
    try:
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            _name_new(temporary, path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError:
        raise
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written ({error.strerror}); free space there, or choose another folder"
        ) from error


def _name_new(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)  # a rename would replace what another process has just written
    except FileExistsError:
        raise
    except OSError:  # not every file system has links
        if path.exists():
            raise FileExistsError from None
        temporary.rename(path)


def sync_files(paths: Sequence[Path], go_on: Callable[[int, int], bool]) -> None:
    """Make files durable piece by piece, because nothing ends a process that waits for a slow disk.

    Args:
        paths: of files that are written and closed.
        go_on: called before each piece with the bytes done and in all; False: leave the rest to the system,
            which writes it in the next half minute whatever becomes of this process.
    """
    done, total = 0, sum(path.stat().st_size for path in paths)
    for path in paths:
        with path.open("r+b") as file:
            size = path.stat().st_size
            if size:
                with mmap.mmap(file.fileno(), size) as content:
                    for start in range(0, size, SYNC_BYTES):
                        if not go_on(done + start, total):
                            return
                        content.flush(start, min(SYNC_BYTES, size - start))
            os.fsync(file.fileno())  # what is left: the file's size and times
            done += size


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
