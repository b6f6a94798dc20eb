"""A swarm that admits by invitation, and somebody with plain hivemind who has none, or none that counts."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgpack
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2P, P2PHandlerError, PeerID
from hivemind.proto import dht_pb2

from dupt_swarm.errors import NodeError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.gossip import Request, Told
from dupt_swarm.network.p2p.rpc import ANSWERED, CallError
from dupt_swarm.organiser import revocations
from dupt_swarm.organiser.invitation import Token
from dupt_swarm.swarm import Swarm
from tests.support.contributions import put
from tests.support.driven_swarm import Cluster
from tests.support.saved_models import small_manifest
from tests.support.signed_records import fresh_key, tell_record
from tests.support.stranger import call_raw, peer_id_in, stranger_beside
from tests.support.waiting import wait_until

ORGANISER = Ed25519PrivateKey.generate()
HOUR = 3600.0
# One of each kind: an exchange of blobs, a stream, the DHT, records, rounds, proofs, dialling back.
CALLS = (
    ("Exchange.rpc_index", b"0" * 64),
    ("Exchange.rpc_links", b""),
    ("DHTProtocol.rpc_ping", dht_pb2.PingRequest().SerializeToString()),
    ("DHTProtocol.rpc_find", dht_pb2.FindRequest(keys=[bytes(20)]).SerializeToString()),
    ("Gossip.rpc_records", Request(b"", {}).pack()),
    ("Gossip.rpc_tell", Told(b"").pack()),
    ("Accusing.rpc_proofs", msgpack.packb([[], [], []])),
    ("DialBack.rpc_dial_back", b'{"addresses": []}'),
)
STREAM = ("Exchange.rpc_chunks", BytesValue(value=b'{"digest": "", "numbers": []}'))


def invited_manifest() -> Manifest:
    public = ORGANISER.public_key().public_bytes_raw().hex()
    return small_manifest(admission={"kind": "invite", "organiser": public})


def token_of(manifest: Manifest, uses: int = 1, seconds: float = HOUR) -> Token:
    return Token.new(ORGANISER, manifest.swarm_id, uses, seconds)


def refusal_in(reply: bytes) -> str:
    """Which one, and in words; empty: it is an answer."""
    if reply[:1] == ANSWERED:
        return ""
    error = CallError.read(reply)
    return f"{error.refusal.name.lower().replace('_', ' ')}: {error.detail}"


async def present(p2p: P2P, peer: PeerID, credential: str) -> str:
    """Show it to ``peer``; what that says against it."""
    request = msgpack.packb([credential, b"", b""])
    return refusal_in(await call_raw(p2p, str(peer), "ByInvitation.rpc_present", request))


async def refusals(p2p: P2P, peer: PeerID) -> list[str]:
    """What ``peer`` says against each call."""
    said = []
    for method, request in CALLS:
        try:
            reply = await call_raw(p2p, str(peer), method, request)
        except P2PHandlerError as error:  # hivemind's own have no other way to say it
            said.append(f"not invited: {error}")
            continue
        if not method.startswith("DHTProtocol"):
            said.append(refusal_in(reply))
    async for reply in await p2p.iterate_protobuf_handler(peer, *STREAM, BytesValue):
        said.append(refusal_in(reply.value))
    return list(filter(None, said))


def wiles_of(manifest: Manifest, used: Token, revoked: Token, honest: str) -> dict[str, tuple[str, str]]:
    """By what each attacker comes: its token, or a credential as it is, and what is said against that."""
    forged = Token.new(Ed25519PrivateKey.generate(), manifest.swarm_id, 1, HOUR)
    elsewhere = Token.new(ORGANISER, "other-0123456789ab", 1, HOUR)
    return {
        "nothing": ("", "no credential was shown"),
        "an expired invitation": (str(token_of(manifest, seconds=-1)), "has expired"),
        "one of another swarm": (str(elsewhere), "is to other-0123456789ab"),
        "one of another organiser": (str(forged), "not of the swarm"),
        "another peer's credential": (honest, "another peer"),
        "a revoked one": (str(revoked), "has been revoked"),
        "one that is used up": (str(used), "has admitted 1 peers already"),
    }


class Attackers:
    """Come all at once, each to one honest peer after the other, while the test goes on.

    Attributes:
        outcomes: of each, what was said against its credential and its calls, by the address.
    """

    def __init__(self, addresses: tuple[str, ...], wiles: dict[str, tuple[str, str]]) -> None:
        self._addresses, self._wiles = addresses, wiles
        self.outcomes: dict[str, list[tuple[str, list[str]]]] = {}
        self.failure: BaseException | None = None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """They are done when the block ends."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            thread.join(120)
        assert self.failure is None and not thread.is_alive(), self.failure

    def _run(self) -> None:
        try:
            asyncio.run(self._attack())
        except BaseException as error:
            self.failure = error

    async def _attack(self) -> None:
        await asyncio.gather(*(self._try(name, wile) for name, (wile, _) in self._wiles.items()))

    async def _try(self, name: str, wile: str) -> None:
        async with stranger_beside(*self._addresses) as p2p:
            credential = Token.parse(wile).credential(str(p2p.peer_id)) if "dupt-" in wile else wile
            self.outcomes[name] = [
                (await present(p2p, peer, credential), await refusals(p2p, peer))
                for peer in map(peer_id_in, self._addresses)
            ]


@contextmanager
def invited_swarm(folder: Path) -> Iterator[Cluster]:
    with Cluster(folder, invited_manifest(), organiser=ORGANISER) as cluster:
        yield cluster


def revoke(cluster: Cluster, *tokens: Token) -> None:
    """As `dupt-peer revoke` does."""
    swarm_id, public = cluster.first.manifest.swarm_id, ORGANISER.public_key().public_bytes_raw()
    ids = [token.invitation.id for token in tokens]
    revocations.add(cluster.revoked, revocations.revoke(ids, ORGANISER, swarm_id), public, swarm_id)


async def admitted(p2p: P2P, token: Token, addresses: tuple[str, ...]) -> None:
    """This stranger comes by ``token``, and its calls are answered: the others' are no accident."""
    for peer in map(peer_id_in, addresses):
        assert await present(p2p, peer, token.credential(str(p2p.peer_id))) == ""
        assert not [each for each in await refusals(p2p, peer) if "not invited" in each]


def addresses_of(cluster: Cluster) -> tuple[str, ...]:
    return tuple(peer.addresses[0] for peer in (cluster.first, *cluster.oracles))


def refused_by(swarm: Swarm) -> int:
    """As `dupt_peer_refused_messages_total` has it."""
    return swarm.traffic.refused.get("invitation", 0)


def _answers(swarm: Swarm) -> bool:
    """Whether its node has joined."""
    with suppress(NodeError):
        swarm._node.refresh()
        return True
    return False


@pytest.mark.usefixtures("nothing_left")
def test_nobody_comes_uninvited(tmp_path: Path) -> None:
    """Whatever an attacker shows, each peer refuses all its calls, counts them, and rounds go on."""
    with invited_swarm(tmp_path) as cluster:
        manifest, addresses = cluster.first.manifest, addresses_of(cluster)
        used, gone = token_of(manifest), token_of(manifest, uses=100)

        async def use_up() -> None:
            async with stranger_beside(*addresses) as p2p:
                await admitted(p2p, used, addresses)

        asyncio.run(use_up())
        before = [refused_by(swarm) for swarm in (cluster.first, *cluster.oracles)]
        assert before == [0, 0, 0]
        revoke(cluster, gone)
        wait_until(lambda: len(list(tmp_path.glob("*/*/revoked"))) == 2, "both oracles keep what is revoked")
        honest = Token.parse(cluster.tokens["ada"]).credential(cluster.oracles[0].peer_id)
        wiles = wiles_of(manifest, used, gone, honest)
        attackers = Attackers(addresses, wiles)
        with attackers.at_work():
            for _ in range(3):
                cluster.end_round()
        calls = len(CALLS) + 1
        for name, (_, complaint) in wiles.items():
            for said, refused in attackers.outcomes[name]:
                assert "not invited: " in said and complaint in said
                assert len(refused) == calls, name
                assert all("not invited" in each and "no credential" in each for each in refused), name
        expected = len(wiles) * (calls + 1)
        wait_until(
            lambda: [refused_by(each) for each in (cluster.first, *cluster.oracles)] == [expected] * 3,
            "each peer counts what it refused",
        )
        assert cluster.end_round().round == 4


@pytest.mark.usefixtures("nothing_left")
def test_a_peer_that_is_invited_brings_nobody_else(tmp_path: Path) -> None:
    """The record of an uninvited peer is not believed, whoever passes it on, with whosever credential."""
    with invited_swarm(tmp_path) as cluster:
        manifest, addresses = cluster.first.manifest, addresses_of(cluster)
        honest = Token.parse(cluster.tokens["ada"]).credential(cluster.oracles[0].peer_id)

        async def pass_on() -> None:
            token = token_of(manifest)
            async with stranger_beside(*addresses) as p2p:
                await admitted(p2p, token, addresses)
                for fields in ({}, {"credential": honest}):
                    await tell_record(p2p, addresses[0], manifest, fresh_key(), seconds=5.0, **fields)

        asyncio.run(pass_on())
        wait_until(lambda: cluster.first.view.refused.get("invitation") == 2, "the records are counted")
        assert {peer.peer_id for peer in cluster.first.view.peers} == {
            peer.peer_id for peer in (cluster.first, *cluster.oracles)
        }


@pytest.mark.usefixtures("nothing_left")
def test_a_revoked_oracle_is_cut_off(tmp_path: Path) -> None:
    """Within seconds no peer sees its record or answers it, and the others go on."""
    with invited_swarm(tmp_path) as cluster:
        cluster.end_round()
        ada, eve = cluster.oracles
        revoke(cluster, Token.parse(cluster.tokens["eve"]))
        expected = {cluster.first.peer_id, ada.peer_id}
        for swarm in (cluster.first, ada):
            wait_until(
                lambda swarm=swarm: {peer.peer_id for peer in swarm.view.peers} == expected,  # type: ignore[misc]
                "eve is gone",
                seconds=20,  # its record would live for 30
            )
        wait_until(lambda: refused_by(cluster.first) > 0 and refused_by(ada) > 0, "eve's calls are refused")
        # A node that is started again asks nobody whether it may go on.
        eve._node.replace_process("the test")
        wait_until(lambda: eve.restarts and _answers(eve), "eve's node is there again")
        for swarm in (ada, eve):
            size = put(swarm.contribution, torch.randn_like(swarm.anchor) * 1e-3, swarm.manifest)
            result = swarm.average(size, 640).result()
            swarm.state = result.state or swarm.state
            assert (result.reason, swarm.state.round) == (None, 2)
