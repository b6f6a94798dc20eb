"""A file from which a killed fine-tuning goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dupt_swarm.disk.locks import lock_file
from dupt_swarm.errors import FileError, UsageError
from dupt_swarm.learning.safe_state import read_tree, write_tree

PROGRESS_FILE = "progress.safetensors"


class Progress:
    """The state of a fine-tuning in a folder of its own, with what it was begun with.

    Attributes:
        folder: of the file, and for the result while it is being written.
    """

    def __init__(self, folder: Path, begun_with: dict[str, Any]) -> None:
        """``begun_with``: by names in words, numbers and text; another one must not be gone on with."""
        self.folder, self._begun_with = folder, begun_with

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and keep other processes out.

        Raises:
            UsageError: another one is in it.
            FileError: it cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise FileError(
                f"{self.folder}: cannot be written ({error.strerror}); choose another folder"
            ) from error
        with lock:
            if lock_file(lock) is False:
                raise UsageError(
                    f"{self.folder}: another process is writing there; choose another folder for this one"
                )
            yield

    def load(self) -> dict[str, Any] | None:
        """The state that was saved last, if there is one.

        Raises:
            UsageError: it was begun with something else, which is named.
            CheckpointError: it is damaged.
        """
        path = self.folder / PROGRESS_FILE
        if not path.exists():
            return None
        saved: dict[str, Any] = read_tree(path)
        check_same(saved["begun_with"], self._begun_with, self.folder)
        state: dict[str, Any] = saved["state"]
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Replace what was saved, as a whole or not at all."""
        write_tree(self.folder / PROGRESS_FILE, {"begun_with": self._begun_with, "state": state})


def check_same(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    """See that what lies in ``folder`` was begun with the same.

    Raises:
        UsageError: names what differs.
    """
    for name, value in now.items():
        if before.get(name) != value:
            raise UsageError(
                f"{folder}: there is another fine-tuning, with {name} {before.get(name)} instead of {value}; "
                "remove it, or choose another folder"
            )
