"""Contributions that pass every check, and would make the model worse."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dupt_swarm import Swarm
from dupt_swarm.node.messages import RoundResult
from dupt_swarm.replica.vote import accepts
from tests.support.contributions import put
from tests.support.saved_models import small_tokenizer
from tests.support.tiny import settings, tiny_manifest
from tests.support.waiting import wait_until

TARGET = torch.full((100,), 3.0)
TOKENS = 640


class Learner:
    """Its model is best at `TARGET`; a contribution that is not ``honest`` leads away from there."""

    def __init__(self, swarm: Swarm, *, honest: bool) -> None:
        self.swarm, self.honest = swarm, honest

    def end_round(self, companions: tuple[str, ...]) -> RoundResult:
        """Contribute, and judge what comes of it."""
        swarm = self.swarm
        step = 0.2 * (swarm.anchor - TARGET)  # as gradients are: it is subtracted
        size = put(swarm.contribution, step if self.honest else -5 * step, swarm.manifest)
        averaging = swarm.average(size, TOKENS, companions, judged=self.honest)
        result = ThreadPoolExecutor(1).submit(averaging.result)
        while not result.done():
            if swarm.candidate is not None:
                digest, anchor = swarm.candidate
                swarm.judge(digest, accepted=accepts(loss(swarm.anchor), loss(anchor)))
        return result.result()


def loss(anchor: Tensor) -> float:
    return float((anchor - TARGET).norm())


def end_round(learners: list[Learner]) -> list[RoundResult]:
    """Of all of them, once they see one another."""
    swarms = [learner.swarm for learner in learners]
    ids = {swarm.peer_id for swarm in swarms}

    def ready(swarm: Swarm) -> bool:
        return {peer.peer_id for peer in swarm.view.companions(swarm.state.digest)} == ids

    for swarm in swarms:
        swarm.publish(now=True, state="training")

    def all_ready() -> bool:
        for swarm in swarms:
            if swarm.catching_up.newer is not None:  # whoever joins may begin a round behind
                swarm.adopt()
        return all(map(ready, swarms))

    wait_until(all_ready, "the oracles see each other")
    with ThreadPoolExecutor(len(learners)) as pool:
        ending = [
            pool.submit(learner.end_round, tuple(ids - {learner.swarm.peer_id})) for learner in learners
        ]
        return [each.result() for each in ending]


class House:
    """A first peer, and whoever joins it."""

    def __init__(self, folder: Path) -> None:
        tokenizer = small_tokenizer()
        manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size, rounds={"exchange": "reduce"})
        self.folder, self._stack = folder, ExitStack()
        self.first = self._stack.enter_context(
            Swarm.create(
                manifest,
                tokenizer.to_bytes(),
                [torch.zeros_like(TARGET)],
                folder / "first",
                settings("bootstrap"),
            )
        )

    def __enter__(self) -> "House":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def join(self, *names: str) -> list[Learner]:
        """All but eve are honest."""
        with ThreadPoolExecutor(len(names)) as pool:
            joined = [
                pool.submit(Swarm.join, self.first.addresses, self.folder / name, settings(name=name))
                for name in names
            ]
        return [
            Learner(self._stack.enter_context(each.result()), honest=name != "eve")
            for name, each in zip(names, joined, strict=True)
        ]


@pytest.mark.usefixtures("nothing_left")
def test_a_voter_that_does_harm(tmp_path: Path) -> None:
    """Those who see it in their own text reject the round, so nobody takes it; when it helps, all go on."""
    with House(tmp_path) as house:
        learners = house.join("ada", "bob", "eve")
        before = house.first.state
        assert [result.reason for result in end_round(learners)] == ["rejected"] * 3
        assert {learner.swarm.state for learner in learners} == {before}
        learners[-1].honest = True
        results = end_round(learners)
        assert [result.reason for result in results] == [""] * 3
        assert len({result.state for result in results}) == 1
        assert loss(learners[0].swarm.anchor) < loss(torch.zeros_like(TARGET))


@pytest.mark.usefixtures("nothing_left")
def test_a_newcomer_that_does_harm(tmp_path: Path) -> None:
    """It costs one round; those after it are ended by the voters alone, whoever comes."""
    with House(tmp_path) as house:
        ada, bob = house.join("ada", "bob")
        assert [result.reason for result in end_round([ada, bob])] == ["", ""]
        [eve] = house.join("eve")
        everybody = [ada, bob, eve]
        before = ada.swarm.state
        assert [result.reason for result in end_round(everybody)][:2] == ["rejected"] * 2
        assert (ada.swarm.state, bob.swarm.state) == (before, before)
        *results, refused = end_round(everybody)
        assert [result.reason for result in results] == ["", ""]
        assert [result.mates for result in results] == [(bob.swarm.peer_id,), (ada.swarm.peer_id,)]
        assert refused.state is None
