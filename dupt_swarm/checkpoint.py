"""A checkpoint on disk: a replica state, and beside it what only its oracle knows."""

from __future__ import annotations

import logging
from pathlib import Path

from dupt_swarm.disk.folders import SwarmFolder
from dupt_swarm.errors import CheckpointError
from dupt_swarm.learning.safe_state import read_tree
from dupt_swarm.replica.storage import load_state

REPLICA_FILE = "replica.safetensors"
ORACLE_FILE = "oracle.safetensors"  # inner optimizer, data position and contribution; of an oracle only
FINAL_MARK = "final"  # an empty file: the oracle took no step after this checkpoint

logger = logging.getLogger(__name__)


def newest_whole(folder: SwarmFolder) -> Path | None:
    """The newest checkpoint whose files can be read, which takes as long as resuming from it.

    Damaged ones, as after a power cut, are set aside with a warning.
    """
    while (newest := folder.checkpoint) is not None:
        try:
            load_state(newest / REPLICA_FILE)
            if (newest / ORACLE_FILE).exists():
                read_tree(newest / ORACLE_FILE)
            return newest
        except CheckpointError as error:
            aside, older = folder.set_aside(newest), folder.checkpoint
            if older is not None:
                (older / FINAL_MARK).unlink(missing_ok=True)  # whoever wrote the damaged one went on from it
            logger.warning(
                "%s is damaged (%s) and now called %s, to be removed when nobody needs it: going on from %s",
                *(newest, error.__cause__, aside.name, "the swarm's state" if older is None else older.name),
            )
    return None
