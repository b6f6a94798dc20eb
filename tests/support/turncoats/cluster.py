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
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.optimizer.contribution import ADOPT_SECONDS, RETRY_SECONDS
from dupt_swarm.replica.draw import drawn
from dupt_swarm.swarm import Swarm
from tests.support.contributions import put
from tests.support.driven_swarm import Cluster
from tests.support.turncoats.orders import VARIABLE, WrittenOrders
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
HOOKS = Path(__file__).with_name("hooks")
TOKENS = 640
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
        """Why attempts of this one failed."""
        return [str(one.reason) for one in self.attempts[peer] if one.reason and one.tried]

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


class Betrayed(Cluster):
    """Honest oracles, and one that may turn; all of them decide since the first round.

    Attributes:
        honest: the others.
        turncoat: the hostile one; its trainer is this process too.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, parameters: list[Tensor], names: tuple[str, ...]
    ) -> None:
        """``names`` are those of the honest."""
        super().__init__(folder, manifest, parameters, names)
        self._orders = WrittenOrders(folder / "orders")
        self.honest: Sequence[Swarm] = tuple(self.oracles)
        with pytest.MonkeyPatch.context() as patch:
            path = [str(HOOKS), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
            patch.setenv("PYTHONPATH", os.pathsep.join(path))
            patch.setenv(VARIABLE, str(self._folder / "orders"))
            self.turncoat = self.add("mallory")
        self.end_round()

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
    def exposed(self) -> set[str]:
        """Ids of all peers that somebody leaves out, as their records tell."""
        return set(self.first.view.exposed)

    def until_its_turn(self) -> None:
        """Honest rounds, until the hostile one coordinates the first ballot of the next."""
        for _ in range(ROUNDS_MAX):
            ids = [oracle.peer_id for oracle in self.oracles]
            if drawn(ids, self.state.digest)[0] == self.turncoat.peer_id:
                return
            self.end_round()
        raise AssertionError("it was never its turn")

    @property
    def state(self) -> StateName:
        """That of the honest, who hold one and the same."""
        [state] = {oracle.state for oracle in self.honest}
        return state

    def battle(self) -> Battle:
        """A round, each oracle as its optimizer would have it: who fails tries again.

        The hostile one tries once. Where the honest end it on two branches, they are on one after it.
        """
        before = self.state
        for oracle in self.oracles:
            oracle.publish(RecordUpdate(state="training"), now=True)
        self.wait_for(before)
        with ThreadPoolExecutor(len(self.oracles)) as pool:
            hostile = pool.submit(self._average, self.turncoat)
            honest = list(pool.map(partial(self._persist, before.round + 1), self.honest))
            wait([hostile], ATTACK_SECONDS)  # the others may have ended before it could do what it does
            self.turncoat.cancel_average()
            hostile.result()
        wait_until(self._are_at_one_state, "the honest are at one state")
        assert self.state.round == before.round + 1
        assert all(torch.equal(oracle.anchor, self.honest[0].anchor) for oracle in self.honest)
        return Battle(dict(zip((oracle.peer_id for oracle in self.honest), honest, strict=True)))

    def _are_at_one_state(self) -> bool:
        for oracle in self.oracles:
            if oracle.catching_up.newer is not None:
                oracle.adopt()
        return len({oracle.state for oracle in self.honest}) == 1

    def _persist(self, round: int, oracle: Swarm) -> list[RoundResult]:
        """Try until it is at ``round``; how each attempt went."""
        results: list[RoundResult] = []
        deadline = time.monotonic() + BATTLE_SECONDS
        while oracle.state.round < round:
            assert time.monotonic() < deadline, f"the round does not end: {results}"
            if oracle.catching_up.newer is not None:
                oracle.adopt()
                continue
            results.append(self._average(oracle))
            if results[-1].state is None:
                time.sleep(RETRY_SECONDS if results[-1].tried else ADOPT_SECONDS)
        return results

    def _average(self, oracle: Swarm) -> RoundResult:
        size = put(oracle.contribution, torch.randn_like(oracle.anchor) * 1e-3, oracle.manifest)
        result = oracle.average(size, TOKENS).result()
        oracle.state = result.state or oracle.state
        return result
