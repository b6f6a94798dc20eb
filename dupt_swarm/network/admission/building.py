"""The admission that a manifest names."""

from __future__ import annotations

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.admission.by_invitation import ByInvitation
from dupt_swarm.network.admission.guests import Guests
from dupt_swarm.network.p2p.guard import OPEN, Admission, GuardedP2P
from dupt_swarm.organiser.invitation import Token
from dupt_swarm.settings import NodeSettings


def build_admission(p2p: GuardedP2P, settings: NodeSettings, manifest: Manifest) -> Admission:
    """How the peer of this daemon comes to the swarm, and lets others come.

    Whether its invitation counts is for others to say: `check_invited` tells beforehand, as far as it can.
    """
    if manifest.admission.kind == "open":
        return OPEN
    guests = Guests(bytes.fromhex(manifest.admission.organiser), manifest.swarm_id)
    p2p.limits.invited = guests  # strangers take nothing of what is theirs
    token = settings.invitation
    credential = Token.parse(token).credential(str(p2p.peer_id)) if token else ""
    return ByInvitation(p2p, guests, credential, settings.revoked)
