import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from multiaddr import Multiaddr

from dupt_swarm.network.p2p.daemon import answering, connect, dial_all
from dupt_swarm.network.reach import dialback, reachability
from dupt_swarm.network.reach.dialback import DialAnswer, DialBack
from dupt_swarm.network.reach.reachability import (
    Started,
    Verdict,
    is_dialled,
    is_outdated,
    most,
    own_addresses,
    probe,
    start_reachable,
    tell_whereabouts,
    whereabouts,
    with_observed,
)
from dupt_swarm.network.reach.starting import start_daemon
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.settings import NodeSettings
from tests.support.loopback import LOOPBACK, NOBODY

EVERYWHERE = ("/ip4/0.0.0.0/tcp/0",)


async def reached(folder: Path, host_maddrs: tuple[str, ...], *initial_peers: str) -> Started:
    """What a new peer finds out about itself; its daemon is gone when this returns."""
    settings = NodeSettings("oracle", initial_peers=initial_peers, host_maddrs=host_maddrs)
    started = await start_reachable(settings, folder)
    try:
        assert len(await started.p2p.list_peers()) == (len(initial_peers) if host_maddrs != LOOPBACK else 0)
        update = await whereabouts(started)
        assert update.reach == started.reach
        assert 0 < len(update.addresses) <= 3
        return started
    finally:
        await started.p2p.shutdown()


async def test_nobody_to_ask(tmp_path) -> None:
    """The first peer, and one that listens on loopback only, count as dialled."""
    assert (await reached(tmp_path, EVERYWHERE)).reach == "direct"
    nobody = "/ip4/127.0.0.1/tcp/1/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
    assert (await reached(tmp_path, LOOPBACK, nobody)).dialled


async def test_dialled_back(stations, tmp_path) -> None:
    """Who is dialled back by the peers that it joins is direct."""
    async with stations(1) as [one]:
        await one.p2p.serve(DialBack(one.p2p, list))
        started = await reached(tmp_path, EVERYWHERE, one.address)
        assert started.reach == "direct"


async def test_last_resort(stations, tmp_path) -> None:
    """Whom nobody could dial, and who finds no relay, is a client."""
    async with stations(1) as [one]:
        started = await reached(tmp_path, EVERYWHERE, one.address)
        assert started.reach == "client"


async def test_a_second_daemon_dials_those_who_answered(stations, tmp_path, monkeypatch) -> None:
    """Not those who did not, nor peers met before as if they were initial ones; each keeps its reason."""

    async def found(_p2p: Any, settings: NodeSettings, initial: list[str], _known: object) -> Verdict:
        assert initial == [one.address, late.address]
        await late.p2p.shutdown()
        return Verdict("public", settings)

    monkeypatch.setattr(reachability, "probe", found)  # loopback is not public
    async with stations(3) as [one, late, met]:
        initial_peers = (one.address, late.address, NOBODY)
        settings = NodeSettings("oracle", initial_peers=initial_peers, host_maddrs=EVERYWHERE, relay=False)
        started = await start_reachable(settings, tmp_path, (met.address,))
        try:
            assert started.initial == dict(zip(initial_peers, ("", *["connection refused"] * 2), strict=True))
            assert [str(each.peer_id) for each in await started.p2p.list_peers()] == [one.peer_id]
        finally:
            await started.p2p.shutdown()


async def test_no_address_at_all(tmp_path) -> None:
    """Who is to be called over relays only, and has none yet, has no address: that is no error."""
    p2p = await start_daemon(NodeSettings("observer"), tmp_path)
    try:
        assert await own_addresses(p2p) == []
        update = await whereabouts(Started(p2p, "client", {}))
        assert (update.reach, list(update.addresses)) == ("client", [])
    finally:
        await p2p.shutdown()


async def test_verdicts(stations, tmp_path) -> None:
    """What a first daemon finds out, for each kind of answer, before anything is decided."""

    async def verdict(*initial_peers: str, **more: Any) -> Verdict:
        settings = NodeSettings("oracle", initial_peers=initial_peers, host_maddrs=EVERYWHERE, **more)
        p2p = await start_daemon(settings, tmp_path)
        try:
            return await probe(p2p, settings, answering(await dial_all(p2p, initial_peers)), ())
        finally:
            await p2p.shutdown()

    announced = ("/ip4/8.8.8.8/tcp/4001",)
    async with stations(1) as [one]:
        unasked = await verdict(announce_maddrs=announced)
        assert (unasked.kind, unasked.announced) == ("public", announced)
        refused = await verdict(one.address)
        assert (refused.kind, refused.relays) == ("client", ())
        assert refused.settings.host_maddrs != EVERYWHERE  # a second daemon would get the same port
        await one.p2p.serve(DialBack(one.p2p, list))
        dialled = await verdict(one.address)
        assert (dialled.kind, dialled.announced) == ("local", ())
        # What is announced is asked about in place of what is listened on.
        assert (await verdict(one.address, announce_maddrs=announced)).kind == "client"


async def test_whoever_is_asked_is_busy(stations, tmp_path, monkeypatch) -> None:
    """As when many join at once: it is asked again, but not for ever; then this counts as not asked."""
    monkeypatch.setattr(dialback, "CALLS_PER_HOST", 1)
    monkeypatch.setattr(reachability, "LATER_PAUSE_SECONDS", 0.01)
    moments: Iterator[float] = iter([0.0, *[1.0] * 5, 99.0, *[100.0] * 9])
    async with stations(1) as [one]:
        settings = NodeSettings("oracle", initial_peers=(one.address,), host_maddrs=EVERYWHERE)
        await one.p2p.serve(DialBack(one.p2p, list, lambda: next(moments)))
        p2p = await start_daemon(settings, tmp_path)
        try:
            initial = await connect(p2p, [one.address])
            verdicts = [await probe(p2p, settings, initial, ()) for _ in range(2)]
            monkeypatch.setattr(reachability, "LATER_SECONDS", 0.0)
            verdicts.append(await probe(p2p, settings, initial, ()))
            assert [(each.kind, each.unknown) for each in verdicts] == [
                *[("local", False)] * 2,
                ("local", True),
            ]
        finally:
            await p2p.shutdown()
    assert len(list(moments)) == 8  # at last it was asked once


async def test_what_nobody_could_tell_is_asked_soon(monkeypatch) -> None:
    """Where all that were asked were busy at the start: not only after an hour."""
    monkeypatch.setattr(reachability, "ADDRESSES_SECONDS", 0.001)
    monkeypatch.setattr(reachability, "PAUSES", {False: 3600.0, None: 0.01, True: 0.0})
    started: Any = Started(Moving(), "direct", {}, unknown=True)  # type: ignore[arg-type]

    async def look() -> bool:
        return True

    assert "another way" in await tell_whereabouts(started, Moving(), look)  # type: ignore[arg-type]


class Moving:
    """Stands in for the daemon of a laptop and for its record."""

    peer_id = "12D3KooWEJjk7jJbwCPWBuPqNvxBxCGvCWHtsd9SPN6jCsq2ybKd"

    def __init__(self) -> None:
        self.host = "203.0.113.7"
        self.told: list[RecordUpdate] = []

    async def get_visible_maddrs(self, latest: bool) -> list[Multiaddr]:
        """Where it is now."""
        assert latest
        return [Multiaddr(f"/ip4/{self.host}/tcp/4001/p2p/{self.peer_id}")]

    def update(self, update: RecordUpdate) -> None:
        """What the others get to know."""
        self.told.append(update)


@pytest.mark.parametrize(
    ("looks", "replaced"),
    [
        ([True, True], True),
        ([True, False], False),
        ([True, None, True, False], False),
        ([None, False], False),
    ],
)
async def test_a_laptop_that_moves(looks: list[bool | None], replaced: bool, monkeypatch) -> None:
    """Others are asked again: where they deny twice what was found out at the start, the node is replaced."""
    monkeypatch.setattr(reachability, "ADDRESSES_SECONDS", 0.001)
    monkeypatch.setattr(reachability, "PAUSES", {False: 3600.0, None: 0.0, True: 0.0})
    laptop, said = Moving(), looks.copy()

    async def look() -> bool | None:
        return said.pop(0)

    async def told(count: int) -> None:
        while len(laptop.told) < count:
            await asyncio.sleep(0.001)

    started: Any = Started(laptop, "direct", {})  # type: ignore[arg-type]
    telling = asyncio.create_task(tell_whereabouts(started, laptop, look))  # type: ignore[arg-type]
    await told(9)
    assert said == looks  # nothing has changed, and nobody is asked
    laptop.host = "192.168.1.20"
    try:
        while said:
            await asyncio.sleep(0.001)
        await told(len(laptop.told) + 9 * (not replaced))
        await asyncio.sleep(0)
        assert ("another way" in await telling) if replaced else not telling.done()
    finally:
        telling.cancel()
    assert said == []


async def test_asked_again(stations, tmp_path) -> None:
    """It is outdated where those who can tell find the contrary, and not where nobody can."""
    async with stations(1) as [one]:
        settings = NodeSettings("oracle", initial_peers=(one.address,), host_maddrs=EVERYWHERE)
        p2p = await start_daemon(settings, tmp_path)

        async def found(*, dialled: bool, **changes: Any) -> bool | None:
            started = Started(p2p, "direct" if dialled else "client", {})
            return await is_outdated(started, replace(settings, **changes), ())

        try:
            assert await found(dialled=True) is await found(dialled=False) is None
            await one.p2p.serve(DialBack(one.p2p, list))
            assert await found(dialled=True) is False
            assert await found(dialled=False) is True
            assert await found(dialled=False, initial_peers=()) is None
            assert await found(dialled=False, host_maddrs=LOOPBACK) is None
        finally:
            await p2p.shutdown()


def answer(observed: str, reasons: dict[str, str]) -> DialAnswer:
    return DialAnswer(observed=observed, reasons=reasons, relays=())


def test_observed_address() -> None:
    """A public address that only the others know of is announced when it was dialled."""
    own = ["/ip4/10.0.0.5/tcp/4001/p2p/Qm", "/ip4/127.0.0.1/tcp/4001/p2p/Qm"]
    asked, seen = "/ip4/0.0.0.0/tcp/4001", "/ip4/8.8.8.8/tcp/4001"
    told = with_observed(own, [answer("8.8.8.8", {asked: ""})])
    assert told == (seen, "/ip4/10.0.0.5/tcp/4001", "/ip4/127.0.0.1/tcp/4001")
    assert with_observed(own, [answer("10.0.0.5", {asked: ""})]) == ()
    assert with_observed([f"{seen}/p2p/Qm"], [answer("8.8.8.8", {asked: ""})]) == ()
    assert with_observed(own, []) == ()


def test_most_decide() -> None:
    """Of several none decides alone; of one it does, and of two both are needed."""
    assert [most(votes) for votes in ([True], [False], [], [True, False], [True, True])] == [
        *(True, False, False, False, True)
    ]
    assert most([True, True, False]) and not most([True, False, False])


def test_a_peer_that_is_asked_over_a_relay_has_no_vote() -> None:
    """It checks nothing, as it does not see where the peer comes from: of the others most decide."""
    own, asked = ["/ip4/10.0.0.5/tcp/4001/p2p/Qm"], "/ip4/0.0.0.0/tcp/4001"
    dialled, blind = answer("8.8.8.8", {asked: ""}), answer("", {asked: "not checked"})
    assert is_dialled([blind, dialled, blind])
    assert with_observed(own, [blind, dialled, blind])[0] == "/ip4/8.8.8.8/tcp/4001"
    assert not is_dialled([blind, dialled, answer("8.8.8.8", {asked: "refused"})])
    assert not is_dialled([blind])


def test_an_address_that_one_has_observed() -> None:
    """What one of three says it has seen, and dialled, is not announced."""
    own, asked = ["/ip4/10.0.0.5/tcp/4001/p2p/Qm"], "/ip4/0.0.0.0/tcp/4001"
    liar, honest = answer("9.9.9.9", {asked: ""}), answer("8.8.8.8", {asked: ""})
    expected = ("/ip4/8.8.8.8/tcp/4001", "/ip4/10.0.0.5/tcp/4001")
    assert with_observed(own, [liar, honest, honest]) == expected
    assert with_observed(own, [liar, honest]) == ()
    assert with_observed(own, [answer("8.8.8.8", {asked: "refused"}), liar, honest]) == ()
