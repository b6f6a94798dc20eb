"""`pull`: take the model of a running swarm away, without training or joining."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dupt_swarm.manifest import Manifest
from dupt_swarm.models.origin import Origin
from dupt_swarm.models.saved_model import SavedModel, new_model_folder, write_shared
from dupt_swarm.node.messages import Downloading
from dupt_swarm.node.node import Node
from dupt_swarm.settings import NodeSettings
from dupt_swarm.swarm import REPLICA_FILE, check_some


def pull(
    initial_peers: Sequence[str],
    folder: Path | str,
    round: int | None = None,
    settings: NodeSettings | None = None,
    on_download: Callable[[Downloading], None] = lambda _: None,
) -> SavedModel:
    """Fetch the newest state that a swarm agrees on, from several peers at once, and write a model folder.

    Nothing is published and nobody is served, so it works behind any router.

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
    check_some(initial_peers)
    wish = replace(settings or NodeSettings("observer"), role="observer", initial_peers=tuple(initial_peers))
    with new_model_folder(folder) as unfinished, Node(on_download) as node:
        manifest = Manifest.from_bytes(node.join(wish).manifest)
        pulled = node.pull(unfinished / REPLICA_FILE, round)
        origin = Origin.of(manifest, pulled.state, pulled.view)
        write_shared(unfinished, manifest, pulled.tokenizer, origin)
        model = SavedModel.load(unfinished)
    return replace(model, folder=folder)
