"""How others reach this peer: directly, over a relay, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.daemon import answering, dial, dial_all
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.reach.dialback import ADDRESSES_MAX, DialAnswer, ask_to_dial
from dupt_swarm.network.reach.relays import choose_relays, start_relay
from dupt_swarm.network.reach.starting import start_daemon
from dupt_swarm.node.addresses import Address, keep_ports, reach_of, tcp_ports, worth_telling
from dupt_swarm.node.record import Reach, RecordUpdate
from dupt_swarm.settings import NodeSettings

ADDRESSES_SECONDS = 10.0
LOST_SECONDS = 60.0
# How long what was found out is believed after others confirmed it, or could not tell, or denied it.
PAUSES: dict[bool | None, float] = {False: 3600.0, None: 600.0, True: 60.0}
DENIALS = 2  # in a row: a network may be on its way up
# So many are asked at most; where too few initial peers answer to outvote one, so many known ones are tried.
ASKED_MAX, ASKED_MIN, KNOWN_MAX = 5, 3, 12
KNOWN_SECONDS = 3.0
# Who was asked too often may be asked again in a minute: so long, and so often, while nobody else can tell.
LATER_SECONDS, LATER_PAUSE_SECONDS = 75.0, 10.0
RELAYED_SECONDS = 10.0
RELAYED_PAUSE_SECONDS = 0.1

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Started:
    """A daemon, and what was found out about its reachability.

    Attributes:
        p2p: the daemon, connected to the initial peers that answer.
        reach: how others can call it.
        initial: by address, why each initial peer cannot be reached; empty for those that answer.
        unknown: all that were asked were busy, and this is to be found out later.
    """

    p2p: GuardedP2P
    reach: Reach
    initial: dict[str, str]
    unknown: bool = False

    @property
    def dialled(self) -> bool:
        """Whether others can dial it without a relay."""
        return self.reach == "direct"


@dataclass(frozen=True)
class Verdict:
    """What a first daemon found out about how others can call this peer.

    Attributes:
        kind: ``public``: everybody can dial it; ``local``: those asked, or nobody was there, or free, to ask;
            ``hidden``: nobody can, but relays can carry; ``client``: nobody can, and there is no relay.
        settings: with the ports that the first daemon got.
        announced: addresses to announce in place of those listened on.
        relays: their addresses.
        unknown: as of `Started`.
    """

    kind: Literal["public", "local", "hidden", "client"]
    settings: NodeSettings
    announced: tuple[str, ...] = ()
    relays: tuple[str, ...] = ()
    unknown: bool = False


async def start_reachable(settings: NodeSettings, run_dir: Path, known: Sequence[str] = ()) -> Started:
    """Start the daemon so that others can dial it, directly or else over relays.

    A first daemon finds out how (`probe`); if that takes other flags than it has, a second one is started,
    which dials those again that have answered.

    Args:
        settings: of this peer.
        run_dir: for sockets.
        known: addresses of peers met before, asked if no initial peer answers.

    Raises:
        UsageError: as `start_daemon`.
        NodeError: as `start_daemon`.
    """
    p2p = await start_daemon(settings, run_dir)
    initial = await dial_all(p2p, settings.initial_peers)
    if settings.role == "observer" or _is_on_loopback(settings):
        return Started(p2p, "direct", initial)
    verdict = await probe(p2p, settings, answering(initial), known)
    match verdict.kind:
        case "public":
            await p2p.shutdown()
            start = start_relay if settings.relay else start_daemon
            p2p = await start(verdict.settings, run_dir, announced=verdict.announced)
            initial |= await dial_all(p2p, answering(initial))
        case "hidden":  # to be called over relays only, and in the local network
            await p2p.shutdown()
            p2p = await start_daemon(verdict.settings, run_dir, relays=verdict.relays)
            initial |= await dial_all(p2p, answering(initial))
            await _wait_for_relay(p2p)
    if verdict.kind in ("public", "local"):
        return Started(p2p, "direct", initial, verdict.unknown)
    reach = reach_of(await own_addresses(p2p), dialled=False)
    if reach == "client":
        logger.warning("nobody can dial this peer and it found no relay, so it averages in client mode")
    return Started(p2p, reach, initial)


async def probe(
    p2p: GuardedP2P, settings: NodeSettings, initial: Sequence[str], known: Sequence[str]
) -> Verdict:
    """Find out how others can call the peer whose first daemon is ``p2p``.

    The ``initial`` peers that answer are asked to dial back, and those at ``known`` where they are few; what
    more than half of those say that see where it comes from counts. A peer that cannot be dialled uses them,
    and peers that they know, as relays; one that can be dialled at a public address relays for others. If
    nobody is there to ask, it counts as dialled: whoever finds it has done so. So it does while all are busy:
    a few that flood them must not hide every newcomer.
    """
    own = await own_addresses(p2p)
    settings = replace(settings, host_maddrs=keep_ports(settings.host_maddrs, own))
    reached = list(initial)
    if len(_ids_of(reached)) < ASKED_MIN:
        others = [each for each in known if each not in settings.initial_peers]
        reached += await _connect_soon(p2p, others[:KNOWN_MAX])
    answers, busy = await _ask(p2p, reached, own)
    unknown = busy and not _witnesses(answers)
    if reached and not unknown and not is_dialled(answers):
        if settings.announce_maddrs:
            logger.warning("nobody can dial %s; check the addresses announced", ", ".join(own))
        # In turn, so that none of those asked fills all places with relays of its choice.
        told = zip_longest(*(answer.relays for answer in answers))
        relays = await choose_relays(p2p, [*reached, *(relay for each in told for relay in each if relay)])
        return Verdict("hidden" if relays else "client", settings, relays=relays)
    announced = settings.announce_maddrs or with_observed(own, answers)
    public = any(Address.parse(text).public for text in announced or own)
    return Verdict("public" if public else "local", settings, announced, unknown=unknown)


async def whereabouts(started: Started) -> RecordUpdate:
    """For the record: how, and at which addresses, others call this peer now."""
    addresses = await own_addresses(started.p2p)
    reach = reach_of(addresses, dialled=started.dialled)
    return RecordUpdate(reach=reach, addresses=worth_telling(addresses))


async def tell_whereabouts(
    started: Started, member: Membership, look: Callable[[], Awaitable[bool | None]]
) -> str:
    """Keep them in the record, until a new daemon is needed; says why.

    ``look`` says what `is_outdated` does, now and then and when the addresses change, as when a laptop moves.
    """
    lost_at, addresses, denials = None, None, 0
    looked_at, look_at = 0.0, time.monotonic() + PAUSES[None if started.unknown else False]
    while lost_at is None or time.monotonic() - lost_at < LOST_SECONDS:
        await asyncio.sleep(ADDRESSES_SECONDS)
        try:
            update = await whereabouts(started)
            member.update(update)
            moved, addresses = addresses not in (None, update.addresses), update.addresses
            if moved:
                look_at = min(look_at, looked_at + PAUSES[True])
            if time.monotonic() >= look_at:
                outdated = await look()
                denials = denials + 1 if outdated else 0
                looked_at = time.monotonic()
                look_at = looked_at + PAUSES[outdated]
                if denials == DENIALS:
                    return "others reach it, or do not, in another way than when it was started"
        except Exception as error:  # p2pd may be about to be replaced
            logger.debug("where this peer can be called is not known: %r", error)
            continue
        if update.reach == started.reach:
            lost_at = None
        elif lost_at is None:
            lost_at = time.monotonic()
    return "no relay forwards connections to this peer any more"


async def is_outdated(started: Started, settings: NodeSettings, known: Sequence[str]) -> bool | None:
    """Whether others would find out something else about the peer now; None: nobody can tell.

    All of the initial peers that can tell have to say so, and those at ``known`` where they are few:
    strangers alone must not have a node replaced.
    """
    if _is_on_loopback(settings):
        return None
    p2p, own = started.p2p, await own_addresses(started.p2p)
    answers, _ = await _ask(p2p, answering(await dial_all(p2p, settings.initial_peers)), own)
    answers = _witnesses(answers)
    if not answers:
        return None
    if len(answers) < ASKED_MIN:
        more, _ = await _ask(p2p, await _connect_soon(p2p, known[:KNOWN_MAX]), own)
        answers += _witnesses(more)
    if all(_could_dial(answer) != started.dialled for answer in answers):
        return True
    return started.dialled and not settings.announce_maddrs and with_observed(own, answers) != ()


async def _wait_for_relay(p2p: GuardedP2P) -> None:
    """Until one relays for this daemon, but not for long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RELAYED_SECONDS):
            while not any(Address.parse(text).relayed for text in await own_addresses(p2p)):
                await asyncio.sleep(RELAYED_PAUSE_SECONDS)


def _is_on_loopback(settings: NodeSettings) -> bool:
    return all(Address.parse(text).loopback for text in settings.host_maddrs)


async def own_addresses(p2p: GuardedP2P) -> list[str]:
    """The addresses at which this daemon claims to be reachable; there may be none, behind a router."""
    try:
        return [str(address) for address in await p2p.get_visible_maddrs(latest=True)]
    except ValueError:  # hivemind's word for none
        return []


async def _connect_soon(p2p: GuardedP2P, addresses: Sequence[str]) -> list[str]:
    """Those at which somebody answers in a moment: it is only to be more sure."""
    dials = {asyncio.create_task(dial(p2p, address)): address for address in addresses}
    if not dials:
        return []
    done, late = await asyncio.wait(dials, timeout=KNOWN_SECONDS)
    for task in late:
        task.cancel()
    return [dials[task] for task in done if not task.result()]


def _ids_of(addresses: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(Address.of_peer(text).peer_id for text in addresses))


async def _ask(p2p: GuardedP2P, reached: Sequence[str], own: Sequence[str]) -> tuple[list[DialAnswer], bool]:
    """What those who answer say when asked to dial this peer back; it waits for them if they are busy.

    Also whether somebody is busy still.
    """
    dialable = [
        address for address in map(Address.parse, own) if not address.loopback and not address.relayed
    ]
    # Behind a router that forwards the port, only the others know our address.
    seen = [f"/ip4/0.0.0.0/tcp/{port}" for port in tcp_ports(map(str, dialable))]
    asked = [*seen, *(address.way for address in dialable)][:ADDRESSES_MAX]
    peers = _ids_of(reached)[:ASKED_MAX]
    deadline = time.monotonic() + LATER_SECONDS
    while True:
        replies = await asyncio.gather(
            *(ask_to_dial(p2p, peer, asked) for peer in peers),
            return_exceptions=True,
        )
        answers = [reply for reply in replies if isinstance(reply, DialAnswer)]
        later = any(isinstance(each, CallError) and each.refusal is Refusal.LATER for each in replies)
        if _witnesses(answers) or not later or time.monotonic() > deadline:
            return answers, later
        logger.info("whether others can dial this peer is not known yet: those asked are busy")
        await asyncio.sleep(LATER_PAUSE_SECONDS)


def is_dialled(answers: Iterable[DialAnswer]) -> bool:
    """Whether most of those who could tell have dialled this peer."""
    return most(map(_could_dial, _witnesses(answers)))


def _witnesses(answers: Iterable[DialAnswer]) -> list[DialAnswer]:
    """Those of who sees where this peer comes from: over a relay nobody does, and nothing is checked."""
    return [answer for answer in answers if answer.observed]


def _could_dial(answer: DialAnswer) -> bool:
    return "" in answer.reasons.values()


def most(votes: Iterable[bool]) -> bool:
    """Whether more than half of ``votes`` are yes: of several, no single one decides."""
    counted = list(votes)
    return 2 * sum(counted) > len(counted)


def with_observed(own: Sequence[str], answers: Sequence[DialAnswer]) -> tuple[str, ...]:
    """Own addresses with the public one that most others dialled, if it is not among them; else nothing."""
    known, answers = [Address.parse(text) for text in own], _witnesses(answers)
    for host in dict.fromkeys(answer.observed for answer in answers):
        observed = Address(f"/ip4/{host}").host
        if observed is None or not observed.is_global or any(each.host == observed for each in known):
            continue
        if not most(answer.observed == host and _could_dial(answer) for answer in answers):
            continue
        reasons = [answer.reasons for answer in answers if answer.observed == host]
        dialled = {Address.parse(text) for each in reasons for text, reason in each.items() if not reason}
        seen = sorted(
            (each for each in dialled if each.host is not None and each.host.is_unspecified), key=str
        )
        return (*(each.with_host(observed).way for each in seen), *(each.way for each in known))
    return ()
