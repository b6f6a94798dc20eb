"""A driven swarm with one oracle that attacks when the test says so, and what becomes of a round then."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.node.messages import RoundResult, StateName
from dupt_swarm.optimizer.contribution import ADOPT_SECONDS, NOT_TRIED, RETRY_SECONDS
from dupt_swarm.replica.draw import drawn
from dupt_swarm.swarm import Swarm
from tests.support.contributions import put
from tests.support.driven_swarm import Cluster
from tests.support.turncoats.orders import VARIABLE, Orders
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
HOOKS = Path(__file__).with_name("hooks")
TOKENS = 640
EXCESS, EXCESS_TOKENS = 40, 4
BATTLE_SECONDS = 90.0  # what a test may wait for
ATTACK_SECONDS = 5.0  # the hostile one has when the others are done
ROUNDS_MAX = 60  # until it is somebody's turn


@dataclass(frozen=True)
class Battle:
    """How a round went for the honest.

    Attributes:
        attempts: of each, by its id; the last one ended well, or it adopted the state of the others.
    """

    attempts: Mapping[str, Sequence[RoundResult]]

    def failed(self, peer: str) -> list[str]:
        """Why attempts of this one failed.

        Not those in which it saw nobody, and sent nothing: for two seconds it may take all for gone who were
        on no roll of its own.
        """
        tried = [one for one in self.attempts[peer] if one.reason and one.reason not in NOT_TRIED]
        return [one.reason for one in tried if one.tokens or one.reason != "no_quorum"]

    @property
    def failures(self) -> int:
        """The most attempts that failed for one of them."""
        return max(len(self.failed(peer)) for peer in self.attempts)

    @property
    def with_all(self) -> bool:
        """Whether the round that ended had all of them in it."""
        everybody = set(self.attempts)
        last = [(peer, results[-1]) for peer, results in self.attempts.items() if results]
        return all(everybody <= {peer, *result.mates} and not result.reason for peer, result in last)

    @property
    def mates(self) -> set[str]:
        """Everybody who was in the round that ended."""
        return {mate for results in self.attempts.values() if results for mate in results[-1].mates}

    @property
    def seconds(self) -> float:
        """The longest attempt."""
        return max(one.seconds for results in self.attempts.values() for one in results)


class Betrayed(Cluster):
    """Honest oracles, voters since the first round, and one that may turn: a voter too, or a newcomer.

    Attributes:
        honest: the others.
        turncoat: the hostile one; its trainer is this process too.
        pull: what all honest ones contribute, in place of noise; and the hostile one the other way,
            `EXCESS` times as much, for `EXCESS_TOKENS` times the tokens.
    """

    pull: Tensor | None = None

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        parameters: list[Tensor],
        names: tuple[str, ...] = ("ada", "bea", "cleo", "dora"),
        *,
        newcomer: bool = False,
    ) -> None:
        """Begin; a ``newcomer`` comes after the first round, and votes after the next one that counts it."""
        super().__init__(folder, manifest, parameters, names)
        self._orders = Orders(folder / "orders")
        self.honest: Sequence[Swarm] = tuple(self.oracles)
        if newcomer:
            self.end_round()
        self.turncoat = self._bring("mallory")
        if newcomer:
            self.meet()
        else:
            self.end_round()

    def bring_another(self, name: str) -> None:
        """The hostile one leaves, and comes again as somebody whom nobody knows."""
        self.oracles.remove(self.turncoat)
        self.turncoat.close()
        self.turncoat = self._bring(name)
        self.meet()

    def _bring(self, name: str) -> Swarm:
        with pytest.MonkeyPatch.context() as patch:
            path = [str(HOOKS), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
            patch.setenv("PYTHONPATH", os.pathsep.join(path))
            patch.setenv(VARIABLE, str(self._folder / "orders"))
            return self.add(name)

    def attack(self, how: str) -> None:
        """From now on; nothing: to behave."""
        self._orders.give(how)

    @property
    def has_attacked(self) -> bool:
        """Whether it had the occasion, and says so."""
        return self._orders.done

    @property
    def exposed_by(self) -> list[bool]:
        """For each of the honest, whether it has seen the hostile one contradict itself."""
        return ["contradiction" in oracle.traffic.refused for oracle in self.honest]

    @property
    def order(self) -> list[str]:
        """Those who coordinate the next round, one after the other."""
        return drawn([oracle.peer_id for oracle in self.oracles], self.state.digest)

    def until_its_turn(self) -> None:
        """Honest rounds, until the hostile one coordinates the next."""
        self.until_turn_of(self.turncoat.peer_id)

    def until_turn_of(self, peer: str, place: int = 0) -> None:
        """Honest rounds, until this one coordinates the next, or the attempt ``place`` of it, from 0."""
        for _ in range(ROUNDS_MAX):
            if self.order[place] == peer:
                return
            self.end_round()
        raise AssertionError("it was never its turn")

    @property
    def state(self) -> StateName:
        """That of the honest, who hold one and the same."""
        [state] = {oracle.state for oracle in self.honest}
        return state

    def battle(self, *, absent: bool = False, persistent: bool = False) -> Battle:
        """A round, each oracle as its optimizer would have it: who fails tries again.

        The hostile one tries once, not at all if it is ``absent``, and as the others if it is ``persistent``.
        """
        before = self.state
        for oracle in self.oracles:
            oracle.publish(now=True, state="training")
        self.wait_for(before)
        with ThreadPoolExecutor(len(self.oracles)) as pool:
            persist = partial(self._persist, before.round + 1)
            attack = persist if persistent else self._average
            hostile = [] if absent else [pool.submit(attack, self.turncoat)]
            honest = list(pool.map(persist, self.honest))
            wait(hostile, ATTACK_SECONDS)  # the others may have ended before it could do what it does
            self.turncoat.cancel_average()
            for each in hostile:
                each.result()
        wait_until(lambda: self._follows(self.turncoat, before.round + 1), "the hostile one follows")
        assert self.state.round == before.round + 1
        assert all(torch.equal(oracle.anchor, self.honest[0].anchor) for oracle in self.honest)
        return Battle(dict(zip((oracle.peer_id for oracle in self.honest), honest, strict=True)))

    def _persist(self, round: int, oracle: Swarm) -> list[RoundResult]:
        """Try until it is at ``round``; how each attempt went."""
        results: list[RoundResult] = []
        deadline = time.monotonic() + BATTLE_SECONDS
        while not self._follows(oracle, round):
            assert time.monotonic() < deadline, f"the round does not end: {results}"
            results.append(self._average(oracle))
            if results[-1].state is None:
                tried = results[-1].reason not in NOT_TRIED
                time.sleep(RETRY_SECONDS if tried else ADOPT_SECONDS)
        return results

    def _follows(self, oracle: Swarm, round: int) -> bool:
        """Whether it is at ``round``, perhaps now, as the others have ended the one before."""
        if oracle.state.round < round and oracle.catching_up.newer is not None:
            oracle.adopt()
        assert oracle.state.round <= round
        return oracle.state.round == round

    def _average(self, oracle: Swarm) -> RoundResult:
        values, tokens = torch.randn_like(oracle.anchor) * 1e-3, TOKENS
        if self.pull is not None:
            hostile = oracle is self.turncoat
            values, tokens = (-EXCESS * self.pull, EXCESS_TOKENS * TOKENS) if hostile else (self.pull, TOKENS)
        size = put(oracle.contribution, values, oracle.manifest)
        return oracle.average(size, tokens, self._companions_of(oracle)).result()

    def _companions_of(self, oracle: Swarm) -> tuple[str, ...]:
        """As the optimizer chooses them."""
        there = oracle.view.companions(oracle.state.digest, oracle.peer_id)
        return tuple(peer.peer_id for peer in there)
