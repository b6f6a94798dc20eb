"""A state that an evaluator has measured, as a model outside of its swarm."""

from __future__ import annotations

from pathlib import Path

from dupt_swarm.evaluator import Measurement
from dupt_swarm.models.pulling import evaluated, origin_of
from dupt_swarm.models.saved_model import write_shared
from dupt_swarm.swarm import Swarm


def write_state(swarm: Swarm, found: Measurement, folder: Path) -> bool:
    """Make ``folder`` with the state that was measured, for `SavedModel`; False: the node has moved on.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True)
    if swarm.save_replica(folder).digest != found.state.digest:
        return False
    origin = origin_of(swarm.manifest, found.state, swarm.view)
    if found.record is not None:
        own = evaluated(found.record, f"{swarm.peer_id[-8:]}, who measured it")
        origin = origin.model_copy(update={"evaluations": (own, *origin.evaluations)})
    chain = swarm.folder.chain if swarm.folder.chain.exists() else None
    write_shared(folder, swarm.manifest, swarm.tokenizer, origin, chain)
    return True
