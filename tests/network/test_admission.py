"""Peers that show each other their invitations: real daemons on loopback."""

import asyncio
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.errors import AdmissionError, NodeError
from dupt_swarm.network.admission import ByInvitation, Presented, build_admission
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.states.download import always
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.organiser import revocations
from dupt_swarm.organiser.invitation import Token
from dupt_swarm.replica.blob import Assembly, Blob
from dupt_swarm.settings import NodeSettings
from tests.support.held_loop import assert_not_held
from tests.support.hello import hello
from tests.support.tiny import tiny_manifest

ORGANISER = Ed25519PrivateKey.generate()
PUBLIC = ORGANISER.public_key().public_bytes_raw()
MANIFEST = tiny_manifest(admission={"kind": "invite", "organiser": PUBLIC.hex()})
BLOB = Blob.build({}, [bytes(3000)])


def token(uses: int = 1) -> Token:
    return Token.new(ORGANISER, MANIFEST.swarm_id, uses, 3600.0)


async def invited(peer, own: Token | None = None, revoked: Path | None = None) -> Exchange:
    """``peer`` comes by an invitation, gives a blob to those who do too, and says hello to everybody."""
    settings = NodeSettings("oracle", invitation=str(own or token()), revoked=revoked)
    peer.p2p.admission = build_admission(peer.p2p, settings, MANIFEST)
    await peer.p2p.serve(peer.p2p.admission)
    return await serves(peer)


async def serves(peer) -> Exchange:
    exchange = Exchange(peer.p2p)
    exchange.publish(hello(swarm_id=MANIFEST.swarm_id), [BLOB])
    await peer.p2p.serve(exchange)
    return exchange


async def again(peer, own: Token) -> None:
    """As if ``peer`` had been started anew: it knows nobody."""
    settings = NodeSettings("oracle", invitation=str(own))
    forgetful = build_admission(peer.p2p, settings, MANIFEST)
    assert isinstance(forgetful, ByInvitation)
    known = peer.p2p.admission
    assert isinstance(known, ByInvitation)
    known._guests = forgetful._guests


async def presentations(exchange: Exchange, peer, count: int) -> int:
    """How often this peer shows itself for ``count`` calls of ``peer``."""
    sent = []
    admission = exchange._p2p.admission
    assert isinstance(admission, ByInvitation)
    attempt = admission._present_to

    async def noted(other) -> None:
        sent.append(other)
        await attempt(other)

    admission._present_to = noted  # type: ignore[method-assign, assignment]
    try:
        await asyncio.gather(
            *(exchange.fetch_index(BLOB.digest, [str(peer.p2p.peer_id)]) for _ in range(count))
        )
    finally:
        admission._present_to = attempt  # type: ignore[method-assign]
    return len(sent)


async def test_each_shows_its_invitation_once(stations) -> None:
    """However many calls begin at once; the peer that was called may then call back."""
    async with stations(2) as [me, other]:
        mine, theirs = await invited(me), await invited(other)
        await connect(me.p2p, [other.address])
        assert await presentations(mine, other, 5) == 1
        assert await presentations(mine, other, 1) == 0
        assert (await theirs.fetch_index(BLOB.digest, [str(me.p2p.peer_id)])).digest == BLOB.digest
        assert me.p2p.refused == other.p2p.refused == {}


async def test_a_peer_that_was_started_anew_is_shown_it_again(stations) -> None:
    """A call is refused once and repeated; a stream is refused, and the next one passes."""
    async with stations(2) as [me, other]:
        own = token(9)
        mine, _ = await invited(me), await invited(other, own)
        await connect(me.p2p, [other.address])
        assert await presentations(mine, other, 1) == 1
        await again(other, own)
        assert await presentations(mine, other, 1) == 1
        assert other.p2p.refused == {"invitation": 1}
        await again(other, own)

        donors = always([str(other.p2p.peer_id)])
        index = BLOB.index
        with pytest.raises(NodeError, match="no credential was shown"):
            await mine.fetch(Assembly(index), donors, 10)
        assert (await mine.fetch(Assembly(index), donors, 10)).digest == BLOB.digest


async def test_strangers_hear_hello_and_nothing_else(stations) -> None:
    """Who has no invitation learns which swarm it is, and is refused all else; each refusal is counted."""
    async with stations(2) as [stranger, peer]:
        await invited(peer)
        exchange = Exchange(stranger.p2p)
        await connect(stranger.p2p, [peer.address])
        assert (await exchange.hello(str(peer.p2p.peer_id))).swarm_id == MANIFEST.swarm_id
        with pytest.raises(CallError, match="no credential was shown") as caught:
            await anext(exchange.links_of(str(peer.p2p.peer_id), []))
        assert caught.value.refusal is Refusal.NOT_INVITED
        assert peer.p2p.refused == {"invitation": 1}


async def test_nobody_calls_on_who_is_not_invited(stations) -> None:
    """A peer that shows nothing, or what does not count, is not asked for anything."""
    async with stations(2) as [me, impostor]:
        mine, theirs = await invited(me), await serves(impostor)
        await connect(me.p2p, [impostor.address])
        with pytest.raises(CallError, match=r"protocol|handler|supported"):
            await anext(mine.links_of(str(impostor.p2p.peer_id), []))
        impostor.p2p.admission = ByInvitation(impostor.p2p, _anybody(), "nonsense")
        await impostor.p2p.serve(impostor.p2p.admission)
        with pytest.raises(CallError, match="is no peer of this swarm: the invitation is not of"):
            await anext(mine.links_of(str(impostor.p2p.peer_id), []))
        assert me.p2p.refused == {"invitation": 1}
        del theirs


async def test_nobody_calls_on_who_was_revoked(stations) -> None:
    """Though it was admitted when it was called before."""
    async with stations(2) as [me, other]:
        own = token()
        mine, _ = await invited(me), await invited(other, own)
        await connect(me.p2p, [other.address])
        await anext(mine.links_of(other.peer_id, []))
        revoked = revocations.revoke([own.invitation.id], ORGANISER, MANIFEST.swarm_id)
        me.p2p.admission._guests.revoke(revocations.pack(revoked))
        with pytest.raises(CallError, match="is no peer of this swarm: the invitation has been revoked"):
            await anext(mine.links_of(other.peer_id, []))


def _anybody():
    """Guests who are all welcome; a stand-in for a program of an attacker's own."""

    class Anybody:
        def __init__(self) -> None:
            self.revoked: dict[bytes, bytes] = {}

        def admit(self, *_: object) -> str:
            return ""

        def objection(self, *_: object) -> str:
            return ""

        def revoke(self, *_: object) -> bool:
            return False

    return Anybody()


async def test_a_peer_that_comes_is_told_why_nobody_admits_it(stations) -> None:
    """When all first peers refuse it the error has the reason; when one admits it, there is none."""
    async with stations(3) as [me, one, two]:
        own = token()
        for peer in (one, two):
            await invited(peer)
        await invited(me, own)
        await connect(me.p2p, [one.address, two.address])
        revoked = revocations.revoke([own.invitation.id], ORGANISER, MANIFEST.swarm_id)
        await one.p2p.admission._take(revocations.pack(revoked))
        assert one.p2p.admission._news.is_set()  # and everybody is told
        peers = [one.peer_id, two.peer_id]
        await me.p2p.admission.introduce(peers)
        with pytest.raises(AdmissionError, match="does not admit this peer: the invitation has been revoked"):
            await me.p2p.admission.introduce(peers[:1])
        await me.p2p.admission.introduce([])


async def test_revocations_reach_everybody(stations, tmp_path: Path) -> None:
    """Two machines of the organiser revoke one each: both reach all three peers, and their files."""
    async with stations(3) as [first, second, third]:
        files = [tmp_path / name for name in ("1", "2", "3")]
        for peer, file in zip((first, second, third), files, strict=True):
            await invited(peer, revoked=file)
        await connect(second.p2p, [first.address])
        await connect(third.p2p, [second.address])
        for peer, other in ((second, first), (third, second)):
            await peer.p2p.admission.introduce([other.peer_id])
        revoked = revocations.revoke([b"somebody", b"another1"], ORGANISER, MANIFEST.swarm_id)
        for file, each in zip((files[0], files[2]), revoked, strict=True):
            revocations.add(file, {each: revoked[each]}, PUBLIC, MANIFEST.swarm_id)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(peer.p2p.admission.keep_forever()) for peer in (first, second, third)]
            async with asyncio.timeout(20):
                while any(revocations.load(file, PUBLIC, MANIFEST.swarm_id) != revoked for file in files):
                    await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()


async def test_many_revocations_at_once(stations, tmp_path: Path, monkeypatch) -> None:
    """Whoever brings hundreds of them, all signed by the organiser, does not hold the event loop for long."""
    revoked = revocations.revoke((b"%8d" % each for each in range(600)), ORGANISER, MANIFEST.swarm_id)
    async with stations(2) as [me, other]:
        for peer, file in zip((me, other), ("mine", "theirs"), strict=True):
            await invited(peer, revoked=tmp_path / file)
        await connect(me.p2p, [other.address])
        await me.p2p.admission._take(revocations.pack(revoked))
        with assert_not_held("ByInvitation.rpc_present", monkeypatch):
            await me.p2p.admission._present_to(other.p2p.peer_id)
        assert other.p2p.admission._guests.revoked == revoked
        assert revocations.load(tmp_path / "theirs", PUBLIC, MANIFEST.swarm_id) == revoked


async def test_only_what_the_other_lacks_is_sent(stations) -> None:
    """Peers that know the same revocations exchange a digest; others exchange statements once, both ways."""
    async with stations(2) as [me, other]:
        for peer in (me, other):
            await invited(peer)
        await connect(me.p2p, [other.address])
        statements = revocations.revoke([b"somebody", b"another1"], ORGANISER, MANIFEST.swarm_id)
        for peer, each in zip((me, other), statements, strict=True):
            await peer.p2p.admission._take(statements[each])
        shown = []
        show = me.p2p.admission._show

        async def noted(peer_id, revoked: bytes) -> Presented:
            shown.append((revoked, (reply := await show(peer_id, revoked)).revoked))
            return reply

        me.p2p.admission._show = noted
        for _ in range(2):
            await me.p2p.admission._present_to(other.p2p.peer_id)
        mine, theirs = statements.values()
        assert shown == [(b"", theirs), (mine, b""), (b"", b"")]
        assert me.p2p.admission._guests.revoked == other.p2p.admission._guests.revoked == statements


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc0", b"\x91" * 20_000, b"\x91\xa1a", b"\x93\xc4\x01a\xc4\x00\xc4\x00", b"\x93\xa0\xa0\xa0"],
)
def test_what_is_no_credential_is_refused(data: bytes) -> None:
    """Another form raises what the guard expects."""
    with pytest.raises(ValueError):
        Presented.read(data)
