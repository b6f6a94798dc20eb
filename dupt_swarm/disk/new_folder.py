"""A folder that is either complete or absent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dupt_swarm.disk.files import sync_files, sync_folder
from dupt_swarm.errors import FileError, UsageError


def check_vacant(path: Path) -> None:
    """See beforehand whether ``path`` may become a new folder: nothing is there, or an empty folder.

    Raises:
        UsageError: something is there already.
        FileError: it cannot be looked at.
    """
    try:
        vacant = not any(path.iterdir()) if path.is_dir() else not (path.exists() or path.is_symlink())
    except OSError as error:
        raise _unwritable(path, error) from error
    if not vacant:
        raise UsageError(f"{path}: already there, and not an empty folder; choose another, or remove it")


@contextmanager
def new_folder(path: Path, last: str = "") -> Iterator[Path]:
    """A folder to write files into; it becomes ``path``, durably, if all goes well, and else is gone.

    Args:
        path: of the folder; its parents are made.
        last: the file without which the folder is worth nothing: an empty folder that is there already
            stays, because somebody may be in it, and gets this file after the others.

    Raises:
        UsageError: see `check_vacant`.
        FileError: it cannot be written.
    """
    check_vacant(path)
    final = path.resolve()
    unfinished = final.with_name(f".{final.name}.{os.getpid()}.unfinished")
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        sync_files(sorted(unfinished.iterdir()), lambda *_: True)
        if final.is_dir():
            for file in sorted(unfinished.iterdir(), key=lambda file: file.name == last):
                file.rename(final / file.name)
            sync_folder(final)
        else:
            unfinished.rename(final)
        sync_folder(final.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _unwritable(path: Path, error: OSError) -> FileError:
    return FileError(
        f"{path}: cannot be written ({error.strerror or error}); free space there, or choose another folder"
    )
