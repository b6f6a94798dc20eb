"""`pull`: take the model of a running swarm away, without training or joining."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dupt_swarm.checkpoint import REPLICA_FILE
from dupt_swarm.discovery import observe
from dupt_swarm.disk.folders import CHAIN_FILE
from dupt_swarm.learning.export.origin import Evaluated, Origin, TaskEvaluated
from dupt_swarm.manifest import Manifest
from dupt_swarm.models.saved_model import SavedModel, new_model_folder, write_shared
from dupt_swarm.node.commands import Pull
from dupt_swarm.node.messages import Downloading, StateName
from dupt_swarm.node.record import EvaluationRecord
from dupt_swarm.node.view import Peer, View
from dupt_swarm.settings import NodeSettings
from dupt_swarm.version import VERSION

NAMING_ROLES = ("oracle", "bootstrap")  # they have made the state, or kept it


def pull(
    initial_peers: Sequence[str],
    folder: Path | str,
    round: int | None = None,
    settings: NodeSettings | None = None,
    on_download: Callable[[Downloading], None] = lambda _: None,
) -> SavedModel:
    """Fetch the newest state that a swarm agrees on, from several peers at once, and write a model folder.

    The chain of rounds that has led to it comes along, if a peer tells it: see `SavedModel.chain`. Nothing is
    published and nobody is served, so it works behind any router.

    Args:
        initial_peers: multiaddrs ending in ``/p2p/<peer id>``, at least one.
        folder: made; if it is there already, it must be empty.
        round: the state after so many rounds instead, as long as a peer still gives it.
        settings: of an observer: the swarm expected, the greatest rate to receive at.
        on_download: hears how far the download is, in another thread.

    Returns:
        The model, read back from the folder, with its `SavedModel.origin`.

    Raises:
        UsageError: the folder is not empty.
        CheckpointError: it cannot be written.
        UnreachableError: none of the initial peers answers.
        NodeError: no peer could give the state, or nobody has that round's any more.
        DuptError: other reasons; see `errors`.
    """
    folder = Path(folder)
    with new_model_folder(folder) as unfinished:
        node, manifest = observe(initial_peers, settings, on_download)
        with node:
            pulled = node.ask(Pull(unfinished / REPLICA_FILE, unfinished / CHAIN_FILE, round))
        origin = origin_of(manifest, pulled.state, pulled.view)
        write_shared(unfinished, manifest, pulled.tokenizer, origin)
        model = SavedModel.load(unfinished)
    return replace(model, folder=folder)


def origin_of(manifest: Manifest, state: StateName, view: View) -> Origin:
    """The origin of ``state``, taken now, with the peers of ``view``."""
    names = {peer.record.name for peer in view.peers if peer.record.role in NAMING_ROLES}
    return Origin(
        swarm_id=manifest.swarm_id,
        round=state.round,
        swarm_tokens=state.swarm_tokens,
        state_digest=state.digest,
        peers=tuple(sorted(names - {""})),
        evaluations=tuple(evaluated(found, _named(peer)) for peer, found in view.evaluators),
        tasks=tuple(
            TaskEvaluated(**found.model_dump(), evaluator=_named(peer))
            for peer in view.peers
            for found in view.tasks_of(peer)
        ),
        pulled_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        version=VERSION,
    )


def evaluated(record: EvaluationRecord, evaluator: str) -> Evaluated:
    """What a model's origin tells of an evaluation."""
    known = record.model_dump(exclude={"time", "sample"}, exclude_none=True)
    return Evaluated(**known, evaluator=evaluator)


def _named(peer: Peer) -> str:
    return peer.record.name or peer.peer_id[-8:]
