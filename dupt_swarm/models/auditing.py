"""`audit`: compute past rounds of a running swarm again, without training or joining."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dupt_swarm.discovery import observe
from dupt_swarm.node.commands import Audit
from dupt_swarm.node.messages import AuditedRound, Downloading
from dupt_swarm.settings import NodeSettings


def audit(
    initial_peers: Sequence[str],
    rounds: int | None = None,
    settings: NodeSettings | None = None,
    on_download: Callable[[Downloading], None] = lambda _: None,
) -> tuple[AuditedRound, ...]:
    """Fetch an old state, the log of rounds and what went into them, and compute the states that follow.

    Nothing is published and nobody is served, so it works behind any router.

    Args:
        initial_peers: multiaddrs ending in ``/p2p/<peer id>``, at least one.
        rounds: the last so many; None: all that the peers keep.
        settings: of an observer: the swarm expected, the greatest rate to receive at.
        on_download: hears how far a state's download is, in another thread.

    Returns:
        What was found, oldest round first.

    Raises:
        UnreachableError: none of the initial peers answers.
        NodeError: no peer keeps a log of rounds.
        DuptError: other reasons; see `errors`.
    """
    node, _ = observe(initial_peers, settings, on_download)
    with node:
        return node.ask(Audit(rounds))
