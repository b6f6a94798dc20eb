"""What this peer has signed of the last states, on disk: a crash must not make it contradict itself."""

from __future__ import annotations

import logging
from collections import OrderedDict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.network.rounds.messages import PledgedRecord
from dupt_swarm.network.rounds.voice import Pledged
from dupt_swarm.replica.signed_words import Words

STATES_KEPT = 4

logger = logging.getLogger(__name__)

_FILE = TypeAdapter(dict[str, PledgedRecord])


class Pledges:
    """By the digests of the states."""

    def __init__(self, path: Path) -> None:
        """Those at ``path``, which need not exist."""
        self._path = path
        self._kept: OrderedDict[str, PledgedRecord] = OrderedDict()
        if path.exists():
            try:
                self._kept.update(_FILE.validate_json(path.read_bytes()))
            except (ValidationError, OSError) as error:
                # Nothing signed before is known: the words of a state that is left are not needed any more.
                logger.warning("%s cannot be read, and begins anew: %s", path, error)

    def of(self, state: str, words: Words) -> Pledged | None:
        """What was signed of a state; None: nothing."""
        try:
            found = self._kept.get(state)
            return None if found is None else found.pledged(words)
        except ValueError as error:
            logger.warning("what was signed of state %.8s cannot be read: %s", state, error)
            return None

    def keep(self, state: str, pledged: Pledged) -> None:
        """What was signed of a state, before anybody hears of it.

        Raises:
            FileError: it cannot be written.
        """
        kept = self._kept | {state: PledgedRecord.of(pledged)}
        kept.move_to_end(state)
        while len(kept) > STATES_KEPT:
            kept.popitem(last=False)
        data = _FILE.dump_json(kept, exclude_defaults=True)
        write_atomically(self._path, lambda temporary: temporary.write_bytes(data))
        self._kept = kept
