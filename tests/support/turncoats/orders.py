"""What those that lie shall do now: to a node the test writes it, which reads it at each call."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from dupt_swarm.network.p2p.rpc import Method, StreamMethod

VARIABLE = "DUPT_TEST_ORDERS"  # the file
NOBODYS = "f" * 64  # a state that nobody has computed

Attack = Callable[..., Any]
"""Gets the real method first, and then what that gets."""

Patch = Callable[[type, str, object], None]
"""Sets an attribute of a class."""


class Orders(Protocol):
    """The attack of each peer of this process, by name."""

    def of(self, peer: str) -> str:
        """What this one shall do; nothing: to behave."""

    def favours(self, peer: str) -> bool:
        """Whether this other one is to be treated well by those that treat some so."""

    def report(self) -> None:
        """One of them tells that it had the occasion, and has done it."""


class SpokenOrders:
    """Those of a test to peers in its own process, by their ids.

    Attributes:
        attacks: of those that lie.
        favoured: ids of the others that they treat well, where they treat some so.
        done: how often one of them had the occasion.
    """

    def __init__(self) -> None:
        self.attacks: dict[str, str] = {}
        self.favoured: set[str] = set()
        self.done = 0

    def of(self, peer: str) -> str:
        """See `Orders`."""
        return self.attacks.get(peer, "")

    def favours(self, peer: str) -> bool:
        """See `Orders`."""
        return peer in self.favoured

    def report(self) -> None:
        """See `Orders`."""
        self.done += 1


class WrittenOrders:
    """Those in a file, to the one peer of a process."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @classmethod
    def here(cls) -> WrittenOrders:
        """Those of this process."""
        return cls(Path(os.environ[VARIABLE]))

    def give(self, attack: str = "") -> None:
        """From now on ``attack``."""
        self._done.unlink(missing_ok=True)
        new = self._file.with_suffix(".new")
        new.write_text(attack)
        new.replace(self._file)

    def of(self, peer: str = "") -> str:
        """See `Orders`."""
        del peer
        return self._file.read_text() if self._file.exists() else ""

    def favours(self, peer: str) -> bool:
        """Every other one, by its id."""
        return sum(peer.encode()) % 2 == 0

    def report(self) -> None:
        """See `Orders`."""
        self._done.touch()

    @property
    def done(self) -> bool:
        """Whether it had the occasion."""
        return self._done.exists()

    @property
    def _done(self) -> Path:
        return self._file.with_suffix(".done")


def change(
    orders: Orders,
    patch: Patch,
    owner: type,
    name: str,
    whose: Callable[[Any], str],
    attacks: Mapping[str, Attack],
) -> None:
    """``owner.name`` is another method for who is ordered one of ``attacks``.

    ``whose`` tells the peer to which an ``owner`` belongs. A method that other peers call is still called by
    the same name, and guarded as before.
    """
    found = getattr(owner, name)
    served = isinstance(found, Method | StreamMethod)
    real = found.handler if served else found

    @functools.wraps(real)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        attack = attacks.get(orders.of(whose(self)))
        return real(self, *args, **kwargs) if attack is None else attack(real, self, *args, **kwargs)

    patch(owner, name, found.override(method) if served else method)
