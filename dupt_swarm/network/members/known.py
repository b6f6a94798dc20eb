"""The records that this peer knows: so many at most, whoever invents how many."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hivemind.utils import get_dht_time

from dupt_swarm.network.p2p.dht_messages import ENTRIES_MAX

Subkey = bytes
Signed = tuple[bytes, float]  # a signed value, and until when it is valid


class KnownRecords:
    """The newest record of each owner until it expires.

    When all places are taken, those that are known keep theirs, and newcomers wait until one is free. Mates
    take that of the newest who is none.
    """

    def __init__(self, is_mate: Callable[[Subkey], bool] = lambda _: False) -> None:
        """``is_mate`` says of an owner tag whether its owner was in a group with this peer."""
        self._is_mate = is_mate
        self._records: dict[Subkey, Signed] = {}

    def is_news(self, subkey: Subkey, expires: float) -> bool:
        """Whether a record with this owner and end would be kept, and is not known yet."""
        if expires <= get_dht_time():
            return False
        if subkey in self._records:
            return self._records[subkey][1] < expires
        return len(self._records) < ENTRIES_MAX or self._is_mate(subkey)

    def take(self, subkey: Subkey, signed: bytes, expires: float) -> None:
        """Keep a record that has been checked, if it is news."""
        if not self.is_news(subkey, expires):
            return
        if subkey not in self._records and len(self._records) >= ENTRIES_MAX:
            out = next((each for each in reversed(self._records) if not self._is_mate(each)), None)
            if out is None:
                return
            del self._records[out]
        self._records[subkey] = signed, expires

    def forget_expired(self) -> None:
        """Give the places of those free that were silent for too long."""
        now = get_dht_time()
        self._records = {subkey: entry for subkey, entry in self._records.items() if entry[1] > now}

    def __iter__(self) -> Iterator[tuple[Subkey, bytes, float]]:
        return iter([(subkey, *entry) for subkey, entry in self._records.items()])
