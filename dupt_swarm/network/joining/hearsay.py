"""What the initial peers have told of their states since they were first asked.

They move on while a state is fetched, and not all at the same moment: what each has told before counts too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from dupt_swarm.network.states.hello import Hello
from dupt_swarm.node.view import View


class Hearsay:
    """Which states the initial peers have told, first in ``hellos`` (by peer id), then in their records."""

    def __init__(self, hellos: Mapping[str, Hello]) -> None:
        self._told: OrderedDict[str, set[str]] = OrderedDict()
        self._initial = frozenset(hellos)
        for peer_id, hello in hellos.items():
            self._hear(peer_id, hello.state_digest)

    @property
    def tellers(self) -> frozenset[str]:
        """Ids of those who have told a state at all."""
        return frozenset().union(*self._told.values())

    @property
    def digests(self) -> list[str]:
        """The states that more than half of the tellers have told; what was told last comes first.

        What most have not told is not among them: one of them might serve a state of its own, which cannot be
        told from the swarm's.
        """
        count = len(self.tellers)
        return [digest for digest, by in reversed(self._told.items()) if 2 * len(by) > count]

    def hear(self, view: View) -> None:
        """Read their records."""
        for peer in view.peers:
            if peer.peer_id in self._initial:
                self._hear(peer.peer_id, peer.record.state_digest)

    def _hear(self, peer_id: str, digest: str) -> None:
        if digest:
            self._told.setdefault(digest, set()).add(peer_id)
            self._told.move_to_end(digest)
