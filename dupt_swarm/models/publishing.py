"""Publishes the states that an evaluator has measured: a folder for each, for whatever uploads folders.

    DIR/round-00000120/    a model for transformers with its card, and model.gguf if that is asked for
    DIR/round-00000124/
    DIR/latest             a link to the last one

A folder appears when it is whole, and `latest` points at one that is, whenever its writer is killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dupt_swarm.disk.locks import lock_file
from dupt_swarm.errors import FileError, UsageError
from dupt_swarm.evaluator import Measurement
from dupt_swarm.learning.export.gguf import FILE
from dupt_swarm.models.exporting import export
from dupt_swarm.models.measured import write_state
from dupt_swarm.models.saved_model import SavedModel
from dupt_swarm.swarm import Swarm

LATEST, UNFINISHED = "latest", ".unfinished"
NAME = re.compile(r"round-\d{8}")
HEADING = re.compile(r"^# (\S+), round ", re.MULTILINE)  # of a card


@dataclass(frozen=True)
class Publisher:
    """Writes them.

    Attributes:
        folder: where; made if need be.
        every: a state is written when so many rounds have passed since the last one.
        keep: how many stay.
        gguf: the type of weights of a .gguf that comes with each; None: none does.
    """

    folder: Path
    every: int = 1
    keep: int = 3
    gguf: str | None = None

    def __post_init__(self) -> None:
        """Raises UsageError: something else is there, or it cannot be looked at."""
        latest = self.folder / LATEST
        try:
            if self.folder.exists() and not self.folder.is_dir():
                raise UsageError(f"{self.folder}: no folder; choose another", setting="publish")
            if latest.exists() and not latest.is_symlink():
                raise UsageError(
                    f"{latest}: not a link that we made; choose another folder", setting="publish"
                )
        except OSError as error:
            raise UsageError(
                f"{self.folder}: cannot be looked at ({error.strerror}); choose another folder",
                setting="publish",
            ) from error

    def check(self, swarm_id: str) -> None:
        """See that no other swarm's models are there: their rounds say nothing about when ours are due.

        Raises:
            UsageError: they are, as their cards tell.
        """
        for path in self.published:
            with contextlib.suppress(OSError, UnicodeDecodeError):  # whoever changed that knows whose it is
                named = HEADING.search((path / "README.md").read_text(encoding="utf-8"))
                if named and named[1] != swarm_id:
                    raise UsageError(
                        f"{path}: a model of the swarm {named[1]}, and this one is {swarm_id}; choose "
                        "another folder, or remove what is there",
                        setting="publish",
                    )

    @property
    def published(self) -> list[Path]:
        """The folders that are there, the oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if NAME.fullmatch(path.name))

    def is_due(self, round: int) -> bool:
        """Whether the state of this round is to be written."""
        published = self.published
        return not published or round >= int(published[-1].name.partition("-")[2]) + self.every

    def publish(self, swarm: Swarm, found: Measurement) -> Path | None:
        """Write the state that was measured, which the node is still at; None: it has moved on.

        Raises:
            DuptError: it cannot be written; what is published stays as it is.
        """
        try:
            with self._alone():
                return self._publish(swarm, found)
        except OSError as error:
            raise FileError(
                f"{self.folder}: the model could not be published ({error.strerror or error}); free some "
                "space, or choose another folder"
            ) from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others from what is unfinished.

        Raises:
            UsageError: another evaluator publishes there just now.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            fd = os.open(self.folder, os.O_RDONLY)
            stack.callback(os.close, fd)
            if lock_file(fd) is False:
                raise UsageError(
                    f"{self.folder}: another evaluator is publishing there; choose another folder",
                    setting="publish",
                )
            yield

    def _publish(self, swarm: Swarm, found: Measurement) -> Path | None:
        unfinished = self.folder / UNFINISHED
        try:
            shutil.rmtree(unfinished, ignore_errors=True)  # of one that was killed
            if not write_state(swarm, found, unfinished / "model"):
                return None
            self._export(unfinished)
            written = self.folder / f"round-{found.state.round:08d}"
            (unfinished / "out").rename(written)
            self._point_at(written)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        for path in self.published[: -self.keep]:
            shutil.rmtree(path, ignore_errors=True)
        return written

    def _export(self, unfinished: Path) -> None:
        """Into the folder `out` there."""
        saved = SavedModel.load(unfinished / "model")
        export(saved, unfinished / "out")
        if self.gguf is not None:
            export(saved, unfinished / "gguf", "gguf", self.gguf)
            (unfinished / "gguf" / FILE).rename(unfinished / "out" / FILE)

    def _point_at(self, written: Path) -> None:
        link = self.folder / f"{UNFINISHED}-link"
        link.unlink(missing_ok=True)
        link.symlink_to(written.name)
        link.replace(self.folder / LATEST)
