"""A swarm whose rounds the test drives by hand: real nodes, and no trainers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import Tensor

from dupt_swarm import Swarm
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.messages import StateName
from dupt_swarm.organiser.invitation import Token
from tests.support.contributions import put
from tests.support.saved_models import small_tokenizer
from tests.support.tiny import settings
from tests.support.waiting import wait_until


class Cluster:
    """A first peer and two oracles, whose trainers are this process."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        parameters: list[Tensor],
        names: tuple[str, str] = ("ada", "eve"),
        organiser: Ed25519PrivateKey | None = None,
    ) -> None:
        """``names`` are the oracles'; the ``organiser`` invites them where the swarm admits by invitation."""
        self._stack = ExitStack()
        self.tokens = {
            name: str(Token.new(organiser, manifest.swarm_id, uses=1, seconds=3600)) if organiser else ""
            for name in ("first", *names)
        }
        self.revoked = folder / "revoked"  # the file that the first peer follows
        self.first = self._stack.enter_context(
            Swarm.create(
                manifest,
                small_tokenizer().to_bytes(),
                parameters,
                folder / "first",
                settings("bootstrap", invitation=self.tokens["first"], revoked=self.revoked),
            )
        )
        self.oracles: list[Swarm] = []
        with ThreadPoolExecutor(2) as pool:
            joined = [
                pool.submit(
                    Swarm.join,
                    self.first.addresses,
                    folder / name,
                    settings(name=name, invitation=self.tokens[name]),
                )
                for name in names
            ]
            self.oracles = [self._stack.enter_context(future.result()) for future in joined]

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def end_round(self) -> StateName:
        """Have both oracles average something; the state that all three hold afterwards."""
        before = self.oracles[0].state
        for oracle in self.oracles:
            oracle.publish(now=True, state="training")
        sizes = [
            put(oracle.contribution, torch.randn_like(oracle.anchor) * 1e-3, oracle.manifest)
            for oracle in self.oracles
        ]
        self._wait_for(before, at_work=2)
        ids = [oracle.peer_id for oracle in self.oracles]
        averaging = [
            oracle.average(size, 640, (mate,))
            for oracle, size, mate in zip(self.oracles, sizes, ids[::-1], strict=True)
        ]
        assert len({one.result().state for one in averaging}) == 1
        after = self.oracles[0].state
        assert after.round == before.round + 1
        self._wait_for(after, at_work=2)
        wait_until(lambda: len(self.first.view.holders(after.digest)) == 3, "the first peer follows")
        return after

    def _wait_for(self, state: StateName, at_work: int) -> None:
        for oracle in self.oracles:
            wait_until(
                lambda oracle=oracle: len(oracle.view.companions(state.digest)) == at_work,  # type: ignore[misc]
                "the oracles see each other",
            )
