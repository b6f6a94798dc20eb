"""Peers whose records say too little until there are newer ones."""

from __future__ import annotations

from hivemind.utils import get_dht_time


class Outdated:
    """Knows since when records of some peers are outdated: these were seen to be elsewhere, or dead."""

    def __init__(self, record_seconds: float) -> None:
        """Records live for ``record_seconds``."""
        self._record_seconds = record_seconds
        self._since: dict[str, float] = {}

    def note(self, peer_ids: tuple[str, ...]) -> None:
        """The present records of these are."""
        now = get_dht_time()
        # Clocks may differ by as much as a record lives.
        kept = {peer: at for peer, at in self._since.items() if now - at < 2 * self._record_seconds}
        self._since = kept | dict.fromkeys(peer_ids, now)

    def applies(self, peer_id: str, time: float) -> bool:
        """Whether the record of ``peer_id`` of that ``time`` is."""
        return time <= self._since.get(peer_id, 0.0)
