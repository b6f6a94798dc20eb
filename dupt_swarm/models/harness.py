"""lm-evaluation-harness on a measured state, in a process of lower priority; see `harness_process`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from dupt_swarm.errors import DuptError, UsageError, install
from dupt_swarm.evaluator import Measurement
from dupt_swarm.learning.export.export import choose_format
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.tables import LANGUAGE
from dupt_swarm.models.exporting import export
from dupt_swarm.models.harness_process import ASKED_FILE, MODEL, RESULTS_FILE
from dupt_swarm.models.measured import write_state
from dupt_swarm.models.saved_model import SavedModel
from dupt_swarm.node.record import TASKS_MAX, TaskResult
from dupt_swarm.swarm import Swarm

LOG_FILE = "log"
PROGRAM = "dupt_swarm.models.harness_process"
END_SECONDS = 5.0


def check_tasks(tasks: Sequence[Path]) -> None:
    """What can be told before a swarm is joined.

    Raises:
        UsageError: a file is not there, there are too many, or the harness is not installed.
    """
    for path in tasks:
        if not path.is_file():
            raise UsageError(f"{path}: no such file; give the .yaml of a task", setting="tasks")
    if len(tasks) > TASKS_MAX:
        raise UsageError(f"records have room for {TASKS_MAX} tasks; leave some out", setting="tasks")
    if any(find_spec(name) is None for name in ("lm_eval", "transformers", "accelerate")):
        raise UsageError(f"tasks need lm-evaluation-harness: {install('model')}", setting="tasks")


class Harness:
    """Measures one state at a time, while the evaluator goes on."""

    def __init__(
        self,
        tasks: Sequence[Path],
        every: int,
        manifest: Manifest,
        folder: Path,
        device: str,
        batch_size: int,
    ) -> None:
        """Nothing is started yet.

        Args:
            tasks: the harness' descriptions of tasks in YAML; paths in them are relative to them.
            every: a state is measured when so many rounds have passed since the last one.
            manifest: of the swarm.
            folder: made for the model and the results, and removed again.
            device: for torch.
            batch_size: sequences at once.

        Raises:
            UsageError: no program but ours could load the swarm's model.
        """
        if manifest.objective.kind != LANGUAGE:
            raise UsageError(
                f"this swarm does not learn to continue texts, but {manifest.objective.kind}; leave them out",
                setting="tasks",
            )
        if choose_format(None, manifest.model).library != "transformers":
            raise UsageError(
                "the harness loads models by transformers, which has no counterpart of this swarm's; leave "
                "them out",
                setting="tasks",
            )
        self._round: int | None = None
        self._folder, self._every = folder, every
        self._asked = {
            "tasks": [str(path.absolute()) for path in tasks],
            "device": device,
            "batch_size": batch_size,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def is_due(self, round: int) -> bool:
        """Whether the state of this round is to be measured: none is now, and enough rounds have passed."""
        return self._process is None and (self._round is None or round >= self._round + self._every)

    def start(self, swarm: Swarm, found: Measurement) -> bool:
        """Begin to measure this state; False: the node has moved on.

        Raises:
            DuptError: it cannot be written.
        """
        self._remove()
        try:
            if not write_state(swarm, found, self._folder / "state"):
                self._remove()
                return False
            export(SavedModel.load(self._folder / "state"), self._folder / MODEL)
            shutil.rmtree(self._folder / "state")
            (self._folder / ASKED_FILE).write_text(json.dumps(self._asked))
            with (self._folder / LOG_FILE).open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", PROGRAM, str(self._folder)],
                    stdin=subprocess.PIPE,  # it ends when that is closed, and so with us
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise DuptError(
                f"{self._folder}: the model cannot be written ({error.strerror or error})"
            ) from error
        self._round = found.state.round
        return True

    def finished(self) -> tuple[TaskResult, ...]:
        """The results, once, when they are there; empty before.

        Raises:
            DuptError: the harness has failed, or found no figure that a record has room for.
        """
        if self._process is None or self._process.poll() is None:
            return ()
        code, round = self._process.returncode, self._round or 0
        self._end()
        try:
            if code:
                lines = (self._folder / LOG_FILE).read_text(errors="replace").strip().splitlines()
                last = lines[-1] if lines else "it said nothing"
                raise DuptError(f"the harness failed at round {round} (exit code {code}): {last}")
            results = json.loads((self._folder / RESULTS_FILE).read_bytes())
            found = tuple(TaskResult(**each, round=round) for each in results)
        except (OSError, ValueError, TypeError) as error:
            raise DuptError(f"the harness left no results at round {round} ({error})") from error
        finally:
            self._remove()
        if not found:
            raise DuptError(f"the harness found no figure at round {round}; give its tasks metrics")
        return found

    @property
    def busy(self) -> bool:
        """Whether it measures one now."""
        return self._process is not None

    def close(self) -> None:
        """End it, and remove its folder."""
        if self._process is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                try:
                    self._process.wait(END_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
                break
            self._end()
        self._remove()

    def _end(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        self._process = None

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
