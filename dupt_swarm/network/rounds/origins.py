"""Anchors from which less than a quorum went on, on disk, and those of the rounds after them.

Should the branch that began there be left for another one, its oracles bring what they have learnt since.
Where a swarm is cut in two within a round, both branches may have what they contributed to that one; then
they have learnt the rest since the round after it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from dupt_swarm.errors import CheckpointError
from dupt_swarm.node.messages import Lost
from dupt_swarm.replica.chain import counted_in
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_anchor

KEPT_MAX = 4  # each is as large as the model; a branch has two

logger = logging.getLogger(__name__)


class Origins:
    """The anchors that one peer keeps."""

    def __init__(self, folder: Path) -> None:
        """Those in ``folder``, which need not exist."""
        self._folder = folder
        self._writing: set[asyncio.Future[None]] = set()
        self._in_turn = threading.Lock()  # two in a row have one state in common, and so one file

    def keep(self, *states: ReplicaState) -> None:
        """A branch begins at these ``states``. The files are written beside what goes on."""
        writing = asyncio.get_running_loop().run_in_executor(None, self._write, states)
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    def find(self, digest: str) -> Path | None:
        """The file with the anchor of a state, if it was kept."""
        return next(self._folder.glob(f"*-{digest}.safetensors"), None)

    def lost(self, left: Sequence[Link], ours: Sequence[Link], maker: str) -> Lost | None:
        """What the links ``left`` have of a maker that ``ours``, which part from them, have not.

        None: nothing was left.
        """
        if not left:
            return None
        here = {each.digest for link in ours for each in link.counting if each.maker == maker}
        both = [
            place
            for place, link in enumerate(left)
            if any(each.maker == maker and each.digest in here for each in link.counting)
        ]
        since = both[-1] + 1 if both else 0
        begin = left[since - 1].after if since else left[0].state
        return Lost(
            tokens=counted_in(left).get(maker, 0),
            both=counted_in(left[place] for place in both).get(maker, 0),
            since=counted_in(left[since:]).get(maker, 0),
            origin=self.find(begin),
        )

    def _write(self, states: Sequence[ReplicaState]) -> None:
        """Write the anchors of these states, and remove the oldest of those before."""
        folder = self._folder
        written = [folder / f"{state.round:08d}-{state.digest}.safetensors" for state in states]
        with self._in_turn:
            try:
                folder.mkdir(exist_ok=True)
                for state, path in zip(states, written, strict=True):
                    save_anchor(state.anchor, path)
                # The machine's clock may have been set back: these are the last ones in any case.
                before = set(folder.glob("*.safetensors")).difference(written)
                oldest_first = sorted(before, key=lambda each: each.stat().st_mtime_ns)
                for old in oldest_first[: len(written) - KEPT_MAX]:
                    old.unlink()
            except (CheckpointError, OSError) as error:
                logger.warning("what is learnt now may be lost where branches meet: %s", error)
