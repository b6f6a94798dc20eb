"""The admission that a manifest names."""

from __future__ import annotations

from hivemind.p2p import P2P

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.admission.admission import OPEN, Admission
from dupt_swarm.network.admission.by_invitation import ByInvitation
from dupt_swarm.network.admission.guests import Guests
from dupt_swarm.organiser.invitation import Token, check_invited
from dupt_swarm.settings import NodeSettings


def build_admission(p2p: P2P, settings: NodeSettings, manifest: Manifest) -> Admission:
    """How the peer of this daemon comes to the swarm, and lets others come.

    Raises:
        AdmissionError: it may not come, as far as its own invitation tells.
    """
    check_invited(manifest, settings.invitation)
    if manifest.admission.kind == "open":
        return OPEN
    guests = Guests(bytes.fromhex(manifest.admission.organiser), manifest.swarm_id)
    credential = Token.parse(settings.invitation).credential(str(p2p.peer_id))
    return ByInvitation(p2p, guests, credential, settings.revoked)
