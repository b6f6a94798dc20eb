"""Computing rounds again instead of fetching the state that they led to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from dupt_swarm.errors import NodeError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.states.download import Donors
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.store import BYTES_PER_SECOND_MIN, FETCH_SECONDS
from dupt_swarm.replica.blob import Assembly, Blob
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.replay import check_input, form_of_inputs, inputs_of, replay
from dupt_swarm.replica.state import ReplicaState

logger = logging.getLogger(__name__)


class RoundLog:
    """What the last rounds are computed from again, by their links, and now and then a state to begin from.

    Kept are twice ``rounds`` rounds, and every ``rounds`` rounds a state, from which thus at least the last
    ``rounds`` can be computed; the last round always, the others as long as all together take at most
    ``limit`` bytes. A state that takes more than half of that is not kept: several rounds help more of those
    who are behind.
    """

    def __init__(self, rounds: int, limit: int) -> None:
        """``rounds`` and ``limit`` say what is kept; see `NodeSettings`."""
        self._rounds, self._limit = rounds, limit
        self._befores: dict[str, tuple[int, str]] = {}  # round and digest, by that of the state that follows
        self._blobs: dict[str, dict[str, Blob]] = {}  # of each round, likewise
        self._states: dict[str, ReplicaState] = {}  # by digest

    def add(self, after: str, blobs: Mapping[str, Blob], before: ReplicaState) -> None:
        """A round has ended here, or was computed again, from the state ``before`` to ``after``."""
        self._befores[after] = before.round, before.digest
        self._blobs[after] = dict(blobs)
        recent = any(before.round + 1 - state.round <= self._rounds for state in self._states.values())
        if not recent and 2 * sum(before.blob.index.sizes) <= self._limit:
            self._states[before.digest] = before
        self._trim()

    def get(self, digest: str) -> Blob | None:
        """A blob to serve, if it is kept."""
        state = self._states.get(digest)
        if state is not None:
            return state.blob
        return next((blobs[digest] for blobs in self._blobs.values() if digest in blobs), None)

    @property
    def blobs(self) -> list[Blob]:
        """All of them."""
        inputs = [blob for blobs in self._blobs.values() for blob in blobs.values()]
        return [*inputs, *(state.blob for state in self._states.values())]

    @property
    def bytes(self) -> int:
        """How many bytes all blobs have together."""
        return sum(sum(blob.index.sizes) for blob in self.blobs)

    def _trim(self) -> None:
        newest = max(round for round, _ in self._befores.values())
        oldest_first = sorted(self._befores, key=lambda after: self._befores[after])
        self._forget([each for each in oldest_first if self._befores[each][0] <= newest - 2 * self._rounds])
        oldest_first = [each for each in oldest_first if each in self._befores]
        while self.bytes > self._limit and len(oldest_first) > 1:
            self._forget([oldest_first.pop(0)])
        if self.bytes > self._limit:
            self._states.clear()

    def _forget(self, afters: list[str]) -> None:
        for after in afters:
            del self._befores[after], self._blobs[after]
        beginnings = {digest for _, digest in self._befores.values()}
        self._states = {digest: state for digest, state in self._states.items() if digest in beginnings}


class Refuted(ValueError):
    """What a link says is not what its contributions lead to."""


@dataclass(frozen=True)
class Replaying:
    """What a peer does that is behind, before it fetches a whole state.

    Attributes:
        manifest: of the swarm.
        exchange: gives the blobs.
        log: our own, to which the rounds are added.
        empty: gives memory for so many values of a state.
        always: whether to do so even where the state has fewer bytes.
    """

    manifest: Manifest
    exchange: Exchange
    log: RoundLog
    empty: Callable[[int], Tensor]
    always: bool

    async def replay(self, state: ReplicaState, links: Sequence[Link], donors: Donors) -> ReplicaState | None:
        """The state to which ``links`` lead, computed from ours; None if it is better fetched, or must be.

        Args:
            state: our own one, from which the links follow.
            links: verified.
            donors: asked for those who may have what went into the rounds.

        Raises:
            Refuted: one of the links lies, whoever has signed it.
        """
        try:
            weak = any(link.choice.weak for link in links)  # few have signed it
            if not (self.always or weak or self._pays(state, links)):
                return None
            for link in links:
                blobs = await fetch_inputs(self.manifest, self.exchange, link, state, donors)
                after = await asyncio.to_thread(replay, self.manifest, state, link, blobs, self.empty)
                if after.digest != link.after:
                    problem = f"round {after.round} does not lead to the state of its link"
                    # An average is as whoever gave it says, a contribution as its link does.
                    raise (Refuted if self.manifest.rounds.exchange == "share" else NodeError)(problem)
                self.log.add(after.digest, blobs, state)
                state = after
        except Refuted:
            raise
        except Exception as error:
            # Whatever is not to be had any more, the state itself may be.
            logger.warning("the rounds that were missed could not be computed again: %r", error)
            return None
        logger.info("computed %d rounds again: state %.8s", len(links), state.digest)
        return state

    def _pays(self, state: ReplicaState, links: Sequence[Link]) -> bool:
        numel = state.anchor.numel()
        each = form_of_inputs(self.manifest, numel).size
        inputs = sum(len(inputs_of(self.manifest, link, 0)) * each for link in links)
        return inputs < 4 * numel * (1 + len(state.buffers))


async def fetch_inputs(
    manifest: Manifest, exchange: Exchange, link: Link, before: ReplicaState, donors: Donors
) -> dict[str, Blob]:
    """The blobs that went into a round, by digest, from those who kept them.

    Args:
        manifest: of the swarm.
        exchange: fetches.
        link: names them.
        before: the state that it leaves.
        donors: asked for those who may have them.

    Raises:
        NodeError: nobody has one of them any more, or nobody says which there are.
        ValueError: one of them is not what the link says.
    """
    form = form_of_inputs(manifest, before.anchor.numel())
    inputs = inputs_of(manifest, link, before.round)
    if not inputs:
        raise NodeError("nobody says which average the round had")

    async def fetch(digest: str, claim: Claim | None) -> Blob:
        index = await exchange.fetch_index(digest, await donors())
        check_input(form, index, claim, before.round, before.digest)
        seconds = FETCH_SECONDS + form.size / BYTES_PER_SECOND_MIN
        return await exchange.fetch(Assembly(index), donors, seconds)

    tasks = [asyncio.create_task(fetch(*each)) for each in inputs.items()]
    try:
        return dict(zip(inputs, await asyncio.gather(*tasks), strict=True))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
