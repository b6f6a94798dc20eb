"""A swarm of real nodes: a test trains its oracles, or drives their rounds by hand without trainers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import Tensor

from dupt_swarm import Swarm
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.messages import StateName
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.organiser.invitation import Token
from tests.support.contributions import put
from tests.support.saved_models import small_tokenizer
from tests.support.tiny import settings
from tests.support.waiting import wait_until


class Cluster:
    """A first peer and some oracles, whose trainers are this process."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        parameters: Iterable[Tensor] = (torch.zeros(20, 5),),
        names: Sequence[str] = ("ada", "eve"),
        organiser: Ed25519PrivateKey | None = None,
        tokenizer: bytes | None = None,
    ) -> None:
        """``names`` are the oracles'; the ``organiser`` invites them where the swarm admits by invitation.

        The ``tokenizer`` is that of `small_tokenizer` if none is given.
        """
        self._stack = ExitStack()
        self.tokens = {
            name: str(Token.new(organiser, manifest.swarm_id, uses=1, seconds=3600)) if organiser else ""
            for name in ("first", *names)
        }
        self.revoked = folder / "revoked"  # the file that the first peer follows
        self.first = self._stack.enter_context(
            Swarm.create(
                manifest,
                tokenizer or small_tokenizer().to_bytes(),
                parameters,
                folder / "first",
                settings("bootstrap", invitation=self.tokens["first"], revoked=self.revoked),
            )
        )
        self._folder, self.oracles = folder, list[Swarm]()
        with ThreadPoolExecutor(1 + len(names)) as pool:
            for oracle in pool.map(self._join, names):
                self.oracles.append(self._stack.enter_context(oracle))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, name: str) -> Swarm:
        """One more oracle."""
        self.oracles.append(self._stack.enter_context(self._join(name)))
        return self.oracles[-1]

    def end_round(self) -> StateName:
        """Have all oracles average something; the state that everybody holds afterwards."""
        self.meet()
        before = self.oracles[0].state
        sizes = [
            put(oracle.contribution, torch.randn_like(oracle.anchor) * 1e-3, oracle.manifest)
            for oracle in self.oracles
        ]
        averaging = [oracle.average(size, 640) for oracle, size in zip(self.oracles, sizes, strict=True)]
        for oracle, one in zip(self.oracles, averaging, strict=True):
            oracle.state = one.result().state or oracle.state
        assert len({oracle.state for oracle in self.oracles}) == 1
        after = self.oracles[0].state
        assert after.round == before.round + 1
        self.wait_for(after)
        everybody = 1 + len(self.oracles)
        wait_until(lambda: len(self.first.view.holders(after.digest)) == everybody, "the first peer follows")
        return after

    def meet(self) -> None:
        """Wait until all oracles see each other at work at one state; who has joined behind it follows."""
        for oracle in self.oracles:
            oracle.publish(RecordUpdate(state="training"), now=True)

        def at_one_state() -> bool:
            for oracle in self.oracles:
                if oracle.catching_up.newer is not None:
                    oracle.adopt()
            return len({oracle.state for oracle in self.oracles}) == 1

        wait_until(at_one_state, "the oracles are at one state")
        self.wait_for(self.oracles[0].state)

    def wait_for(self, state: StateName, at_work: int | None = None) -> None:
        """Wait until all oracles see each other at work at ``state``, or so many of them."""
        expected = len(self.oracles) if at_work is None else at_work

        def sees_them(oracle: Swarm) -> bool:
            return len(oracle.view.companions(state.digest)) == expected

        for oracle in self.oracles:
            wait_until(partial(sees_them, oracle), "the oracles see each other")

    def _join(self, name: str) -> Swarm:
        mine = settings(name=name, invitation=self.tokens.get(name, ""))
        return Swarm.join(self.first.addresses, self._folder / name, mine)
