"""What the guard asks of every kind of admission. This one is an open swarm's: everybody is admitted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from hivemind.p2p import PeerID

Reply = TypeVar("Reply")


class Admission:
    """Everybody may call, be called, and publish a record; nobody has anything to show.

    Attributes:
        credential: this peer's, for its record; empty where none is needed.
    """

    credential = ""

    def objection(self, peer_id: str, method: str = "") -> str:
        """Why this peer may not call ``method``, or have a record; empty if it may."""
        del peer_id, method
        return ""

    def admit(self, peer_id: str, credential: str) -> str:
        """Take note of what a peer shows; why it is not admitted, empty if it is."""
        del peer_id, credential
        return ""

    async def call(self, peer: PeerID, method: str, attempt: Callable[[], Awaitable[Reply]]) -> Reply:
        """Call a method of ``peer`` by ``attempt``, after what has to come before."""
        del peer, method
        return await attempt()

    def watch(self, peer: PeerID, replies: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """``replies`` of ``peer``, unchanged."""
        del peer
        return replies

    async def start(self) -> None:
        """Begin to answer other peers."""

    async def introduce(self, peer_ids: Sequence[str]) -> None:
        """Come to know the first peers.

        Raises:
            AdmissionError: they do not admit this one.
        """

    async def keep_forever(self) -> None:
        """Pass on what others have to know."""


OPEN = Admission()
