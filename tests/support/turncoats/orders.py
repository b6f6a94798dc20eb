"""What the hostile node shall do now: the test writes it into a file, the node reads it at each call."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dupt_swarm.network.p2p.rpc import Method, StreamMethod

VARIABLE = "DUPT_TEST_ORDERS"  # the file


class Orders:
    """The attack that is ordered, by name; nothing is one too: to behave."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @classmethod
    def here(cls) -> Orders:
        """Those of this process."""
        return cls(Path(os.environ[VARIABLE]))

    def give(self, attack: str = "") -> None:
        """From now on ``attack``."""
        self._done.unlink(missing_ok=True)
        new = self._file.with_suffix(".new")
        new.write_text(attack)
        new.replace(self._file)

    @property
    def attack(self) -> str:
        """The present one."""
        return self._file.read_text() if self._file.exists() else ""

    def report(self) -> None:
        """The node tells that it had the occasion, and has done it."""
        self._done.touch()

    @property
    def done(self) -> bool:
        """Whether it has."""
        return self._done.exists()

    @property
    def _done(self) -> Path:
        return self._file.with_suffix(".done")

    def change(self, owner: type, name: str, attacks: dict[str, Callable[..., Any]]) -> None:
        """``owner.name`` is another method during each of ``attacks``, which get the real one first.

        One that other peers call is still called by the same name, and guarded as before.
        """
        found = getattr(owner, name)
        served = isinstance(found, Method | StreamMethod)
        real = found.handler if served else found

        @functools.wraps(real)
        def method(*args: Any, **kwargs: Any) -> Any:
            attack = attacks.get(self.attack)
            return real(*args, **kwargs) if attack is None else attack(real, *args, **kwargs)

        setattr(owner, name, found.override(method) if served else method)
