"""Oracles that train beside a test, or are stopped and started again, and the losses of their steps."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from dupt_swarm import Swarm
from dupt_swarm.learning.interruptible import Look
from dupt_swarm.learning.trainer import Step
from dupt_swarm.manifest import Manifest
from dupt_swarm.oracle.oracle import Oracle
from dupt_swarm.oracle.status import Status
from dupt_swarm.settings import OracleSettings
from tests.support.tiny import settings
from tests.support.waiting import wait_until


class Recorder:
    """Counts an oracle's steps, keeps their losses, and stops it after a number of them."""

    def __init__(self, oracle: Oracle, steps: int) -> None:
        self.losses: list[float] = []
        self._oracle, self._steps = oracle, steps
        self._step = oracle._trainer.step
        oracle._trainer.step = self.step  # type: ignore[method-assign]

    def step(self, look: Look = lambda *_: None) -> Step:
        step = self._step(look)
        self.losses.append(float(step.loss))
        if len(self.losses) == self._steps:
            self._oracle.stop()
        return step


@contextmanager
def training(oracles: Sequence[Oracle]) -> Iterator[list[Future[None]]]:
    """They train until they have done what they shall, or the block ends, be it by an error."""
    with ThreadPoolExecutor(len(oracles)) as pool:
        runs = [pool.submit(oracle.run, lambda _status: None) for oracle in oracles]
        try:
            yield runs
        finally:
            for oracle, run in zip(oracles, runs, strict=True):
                if not run.done():
                    oracle.stop()
        for run in runs:
            run.result(timeout=60)  # raises what it has raised


def train_together(oracles: Sequence[Oracle]) -> list[Status]:
    """They train side by side until they have done what they shall, once each sees all; their last words."""
    for oracle in oracles:
        wait_until(lambda oracle=oracle: len(oracle._swarm.view.at_work) == len(oracles))  # type: ignore[misc]
    with training(oracles) as runs:
        for run in runs:
            run.result(timeout=120)
    return [oracle.status() for oracle in oracles]


def train_in_sessions(
    manifest: Manifest,
    tokenizer: bytes,
    parameters: Iterable[Tensor],
    wish: OracleSettings,
    folder: Path,
    sessions: list[int],
    identity: Path,
) -> tuple[list[float], Status]:
    """A single oracle, in a swarm of its own in ``folder``, that is stopped after each number of steps.

    Its key is at ``identity``, or is put there: the order of what it trains on follows from it.
    """
    losses: list[float] = []
    own = folder / "oracle" / manifest.swarm_id
    own.mkdir(parents=True, exist_ok=True)
    if identity.exists():
        (own / "identity").write_bytes(identity.read_bytes())
    with Swarm.create(manifest, tokenizer, parameters, folder / "first", settings("bootstrap")) as first:
        for steps in sessions:
            with Swarm.join(first.addresses, folder / "oracle", settings()) as swarm:
                oracle = Oracle(swarm, wish)
                recorder = Recorder(oracle, steps)
                oracle.run(lambda _status: None)
                losses += recorder.losses
                status = oracle.status()
    identity.write_bytes((own / "identity").read_bytes())
    return losses, status
