"""Whom a newcomer hears of those that it was told to ask: real daemons on loopback."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.errors import AdmissionError
from dupt_swarm.network.admission import build_admission
from dupt_swarm.network.joining.connection import _come_in
from dupt_swarm.network.joining.handshake import Handshake
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.organiser import revocations
from dupt_swarm.organiser.invitation import Token
from dupt_swarm.settings import NodeSettings
from tests.network.conftest import identities, quick_daemons, stations
from tests.support.hello import hello
from tests.support.tiny import tiny_manifest

__all__ = ["identities", "quick_daemons", "stations"]

ORGANISER = Ed25519PrivateKey.generate()
PUBLIC = ORGANISER.public_key().public_bytes_raw()
MANIFEST = tiny_manifest(admission={"kind": "invite", "organiser": PUBLIC.hex()})


def token() -> Token:
    return Token.new(ORGANISER, MANIFEST.swarm_id, 1, 3600.0)


@pytest.mark.parametrize("others", [("admitted", "revoked", "silent"), ("revoked", "silent")])
@pytest.mark.parametrize("alone", [False, True])
async def test_a_peer_that_is_not_admitted_has_no_say(
    stations, tmp_path: Path, others: tuple[str, ...], alone
) -> None:
    """Also where it has answered: its hello needs no invitation. Where that leaves nobody, we go on alone."""
    revoked, list_of_revoked = token(), tmp_path / "revoked.bin"
    ended = revocations.revoke([revoked.invitation.id], ORGANISER, MANIFEST.swarm_id)
    revocations.add(list_of_revoked, ended, ORGANISER.public_key().public_bytes_raw(), MANIFEST.swarm_id)
    tokens = {"admitted": token(), "revoked": revoked}
    said = hello("0" * 64, swarm_id=MANIFEST.swarm_id)
    async with stations(1 + len(others)) as [me, *rest]:
        for kind, peer in zip(others, rest, strict=True):
            if kind in tokens:
                own = NodeSettings("oracle", invitation=str(tokens[kind]))
                peer.p2p.admission = build_admission(peer.p2p, own, MANIFEST)
                await peer.p2p.serve(peer.p2p.admission)
        await connect(me.p2p, [peer.address for peer in rest])
        ids = {kind: str(peer.p2p.peer_id) for kind, peer in zip(others, rest, strict=True)}
        mine = NodeSettings("oracle", invitation=str(token()), revoked=list_of_revoked)
        handshake = Handshake(dict.fromkeys(ids.values(), said), MANIFEST)
        if "admitted" not in ids and not alone:
            with pytest.raises(AdmissionError, match=r"no initial peer has shown .* or name others"):
                await _come_in(me.p2p, mine, handshake, alone=alone)
            return
        heard = await _come_in(me.p2p, mine, handshake, alone=alone)
        assert heard.peer_ids == [ids[kind] for kind in others if kind == "admitted"]
