"""Checks of the way to the swarm: ports, addresses, clocks, versions, manifests."""

from __future__ import annotations

from collections.abc import Sequence

from dupt_swarm.command_line.exit_codes import message
from dupt_swarm.errors import ManifestError
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.messages import Answer, Checkup
from dupt_swarm.version import VERSION
from peers.checks.report import MISMATCH, REJECTED, UNREACHABLE, Check

CLOCK_SECONDS = 3.0  # hivemind refuses peers whose clocks are further apart


def check_network(checkup: Checkup) -> list[Check]:
    """Ports to listen on, libp2p, and each initial peer's address."""
    checks = [
        Check(f"port {address}", not problem, problem or "free") for address, problem in checkup.ports.items()
    ]
    problem = checkup.problem
    checks.append(Check("libp2p", not problem, problem or "starts"))
    reached = any(not answer.problem for answer in checkup.answers.values())
    for address, answer in checkup.answers.items():
        if answer.problem and reached:
            hint = "another address answers, so this one is not needed"
            checks.append(Check(f"peer {address}", None, answer.problem, hint))
        elif answer.problem:
            hint = "check the address and that this peer runs"
            checks.append(Check(f"peer {address}", False, answer.problem, hint, UNREACHABLE))
        else:
            checks.append(Check(f"peer {address}", True, "answers"))
    if checkup.rejection is not None:
        admitted = not checkup.rejection
        detail = checkup.rejection or "the swarm admits this peer"
        checks.append(Check("invitation", admitted, detail, exit_code=REJECTED))
        reached = reached and admitted
    return [*checks, *_check_reach(checkup)] if reached else checks


def check_peers(answers: Sequence[Answer]) -> list[Check]:
    """Clocks and versions of those who answered, against ours."""
    return [_check_clock(answers), _check_version(answers)] if answers else []


def check_manifest(
    own: Manifest | None, answers: Sequence[Answer], swarm_id: str
) -> tuple[Check, Manifest | None]:
    """Whether all have one manifest, which is ours if we have one; and that manifest.

    Args:
        own: from ``--manifest``.
        answers: of the peers that answered.
        swarm_id: the swarm expected; empty: any.
    """
    try:
        offers = [Manifest.from_bytes(answer.manifest) for answer in answers]
    except ManifestError as error:
        return Check("manifest", False, message(error), exit_code=MISMATCH), own
    manifest = own or next(iter(offers), None)
    if manifest is None:
        return Check("manifest", None, "not known", "give --manifest or --initial-peers"), None
    for offer in offers:
        if difference := manifest.difference(offer):
            detail = f"{offer.swarm_id} differs from {manifest.swarm_id}: {difference}"
            hint = "get the swarm's run.toml, or join another swarm"
            return Check("manifest", False, detail, hint, MISMATCH), manifest
    if swarm_id not in ("", manifest.swarm_id):
        detail = f"the swarm is {manifest.swarm_id}, not {swarm_id}"
        return Check("manifest", False, detail, "check --swarm", MISMATCH), manifest
    return Check("manifest", True, manifest.swarm_id), manifest


def _check_reach(checkup: Checkup) -> list[Check]:
    """Not being reachable is no failure: other peers relay then."""
    hint = "others reach you over a relay; forward the port in your router to be dialled directly"
    if not checkup.dialled:
        return [Check("reachable", None, "no peer dialled back")]
    return [
        Check(f"reachable {way}", None, reason, hint)
        if reason
        else Check(f"reachable {way}", True, "from outside")
        for way, reason in checkup.dialled.items()
    ]


def _check_clock(answers: Sequence[Answer]) -> Check:
    known = [answer.ahead_seconds for answer in answers if answer.ahead_seconds is not None]
    if not known:
        return Check("clock", None, "no peer told the time")
    most = max(known, key=abs)
    if abs(most) <= CLOCK_SECONDS:
        return Check("clock", True, f"within {max(abs(most), 0.1):.1f} s of the peers'")
    way = "behind" if most > 0 else "ahead of"
    hint = "set it, preferably by NTP: peers more than 3 s apart refuse each other"
    return Check("clock", False, f"{abs(most):.1f} s {way} a peer's", hint)


def _check_version(answers: Sequence[Answer]) -> Check:
    other = next((answer.version for answer in answers if answer.version != VERSION), VERSION)
    if other == VERSION:
        return Check("version", True, VERSION)
    detail = f"`version` is {VERSION} here and {other} there"
    return Check("version", False, detail, f"install dupt_swarm {other}", MISMATCH)
