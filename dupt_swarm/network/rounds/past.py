"""The past: the chain of one who joins begins with the state that it gets, and others tell what led there.

Nobody is believed there either: the links are verified from the state of round 0 on, which has no electorate,
and must lead to that very state, in as many rounds as it says, with the electorate that it has.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Container, Iterable, Sequence
from contextlib import aclosing

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.pauses import Pauses
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.network.rounds.history import History
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.node.view import Peer
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.signed_words import LinkRecord, Words

LOOK_SECONDS = 5.0
# A peer that tells no past is asked again after so long, at first and at most: it may come to know it.
FIRST_SECONDS, LONGEST_SECONDS = 30.0, 3600.0
TELLING_SECONDS = 3600.0  # of one peer

logger = logging.getLogger(__name__)


class Past:
    """Learns the links before our chain, in the background."""

    def __init__(self, history: History, member: Membership, exchange: Exchange, manifest: Manifest) -> None:
        """The ``history`` gets them, of the peers that ``member`` knows."""
        self._history, self._member, self._exchange, self._manifest = history, member, exchange, manifest
        self._pauses = Pauses(FIRST_SECONDS, LONGEST_SECONDS)

    async def learn(self) -> None:
        """Ask one after the other, until all links since round 0 are known."""
        while self._history.chain.begins:
            others = self._others()
            if others:
                await self._ask(others[0].peer_id)
            else:
                await asyncio.sleep(LOOK_SECONDS)

    def _others(self) -> list[Peer]:
        me = self._member.peer_id
        asked = [
            peer for peer in self._member.living if peer.peer_id != me and peer.peer_id not in self._pauses
        ]
        return by_trust(asked, self._history.chain.electorate)

    async def _ask(self, peer_id: str) -> None:
        """Ask a peer for the links before our chain."""
        ours = self._history.chain
        useful = False
        try:
            past = await chain_of(
                *(self._exchange, peer_id, self._manifest, ours.first, ours.electorate_of(ours.first)),
                whole=True,
            )
            await self._history.begin(past)
            useful = True
            logger.info("the chain of all rounds is known, as %s tells it", peer_id)
        except (CallError, ValueError, TimeoutError) as error:
            logger.debug("%s does not tell the past: %r", peer_id, error)
        finally:
            self._pauses.note(peer_id, useful=useful)


def by_trust(peers: Iterable[Peer], electorate: Container[str]) -> list[Peer]:
    """In the order in which they are asked for a chain: those who decide, then first peers, who know most."""

    def key(peer: Peer) -> tuple[bool, bool, float]:
        return peer.peer_id not in electorate, peer.record.role != "bootstrap", random.random()

    return sorted(peers, key=key)


async def chain_of(
    exchange: Exchange,
    peer_id: str,
    manifest: Manifest,
    state: str,
    electorate: Electorate,
    *,
    whole: bool = False,
    known: Chain | None = None,
) -> Chain:
    """The links that a peer tells, up to a state: each verified, from round 0 or where its own chain begins.

    Args:
        exchange: asks it.
        peer_id: the peer.
        manifest: of the swarm.
        state: digest of the last state.
        electorate: of that state.
        whole: whether all rounds are wanted; else nothing but the last state vouches for the first one.
        known: what is known already, and gone on with; where the two part, theirs must win (`Chain.follow`).

    Raises:
        CallError: the peer does not answer.
        ValueError: it tells no such links; says why.
        TimeoutError: it takes too long.
    """
    chain = known and known.copied_from(known.first)
    if chain is not None and state in chain:
        chain.cut(state)
    words, reached = Words(manifest.swarm_id), ""
    async with asyncio.timeout(TELLING_SECONDS):
        async with aclosing(exchange.links_of(peer_id, chain.known() if chain else [], all=True)) as pages:
            async for page in pages:
                if chain is None:
                    if page.begins is None:
                        raise ValueError("it does not say where its links begin")
                    chain = page.begins.chain
                    _check_beginning(chain, manifest, whole=whole)
                    reached = chain.first
                if chain.head != state and page.links:
                    reached = reached or page.links[0].state
                    reached = await asyncio.to_thread(
                        _follow, chain, page.links, words, reached, state, electorate.round
                    )
                if chain.head == state:
                    break
    if chain is None or (chain.head, chain.electorate) != (state, electorate):
        raise ValueError("its links do not lead to the state, or to another electorate than the state's")
    return chain


def _check_beginning(chain: Chain, manifest: Manifest, *, whole: bool) -> None:
    round = chain.electorate.round
    if round and whole:
        raise ValueError(f"its chain begins at round {round}")
    if not round and manifest.initial_digest not in ("", chain.first):
        raise ValueError("its chain begins with another state than the manifest names")


def _follow(
    chain: Chain, records: Sequence[LinkRecord], words: Words, reached: str, state: str, rounds: int
) -> str:
    """Go on with links from what they have ``reached``, up to that ``state``, but to no more ``rounds``.

    Returns:
        What they reach.
    """
    for record in records:
        if chain.head == state:
            break
        if record.state != reached or chain.electorate_of(reached).round >= rounds:
            raise ValueError(
                "its links go on after the round of the state, or do not follow from one another"
            )
        chain.follow([record.link(words)])
        reached = record.after
        if reached not in chain:
            raise ValueError("its links part from what is known, and do not win")
    return reached
