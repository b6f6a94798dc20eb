"""Somebody with many keys, who tells records in their names beside a swarm that a test drives."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind.p2p import P2P

from dupt_swarm.manifest import Manifest
from tests.support.signed_records import tell_record

PUBLISH_SECONDS = 0.5


class Publishing(ABC):
    """Attacks in a thread of its own.

    Attributes:
        manifest: of the swarm.
        addresses: of the peers that are told the records.
        keys: those of its records.
    """

    def __init__(
        self, manifest: Manifest, addresses: Sequence[str], keys: Sequence[Ed25519PrivateKey]
    ) -> None:
        self.manifest, self.addresses, self.keys = manifest, addresses, keys
        self._stop = threading.Event()

    @abstractmethod
    async def attack(self) -> None:
        """What it does until `publish` says that it is over."""

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Inside, it attacks."""
        thread = threading.Thread(target=asyncio.run, args=(self.attack(),))
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    async def publish(self, p2p: P2P, **fields: Any) -> bool:
        """Tell all peers such a record of each key, and pause; whether to go on."""
        for address in self.addresses:
            for key in self.keys:
                await tell_record(p2p, address, self.manifest, key, **fields)
        await asyncio.sleep(PUBLISH_SECONDS)
        return not self._stop.is_set()
