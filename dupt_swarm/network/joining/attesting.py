"""The organiser's word on the swarm's state: made where its key is, kept and passed on by everybody."""

from __future__ import annotations

import asyncio
import logging

from dupt_swarm.errors import DuptError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.joining.handshake import Handshake
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.organiser.attestation import Attestation
from dupt_swarm.organiser.key import load_key_of
from dupt_swarm.settings import NodeSettings

ATTEST_SECONDS = 15.0

logger = logging.getLogger(__name__)


def newest(handshake: Handshake) -> tuple[Attestation, str] | None:
    """What the organiser has said last, of what the initial peers pass on; also as it was signed."""
    found, manifest = [], handshake.manifest
    for hello in handshake.hellos.values():
        text = hello.attestation
        try:
            organiser = bytes.fromhex(manifest.admission.organiser)
            found.append((Attestation.read(text, organiser, manifest.swarm_id), text))
        except ValueError:
            continue  # of nobody, mostly: many peers have none
    return max(found, key=lambda each: each[0].round, default=None)


async def attest_forever(
    settings: NodeSettings, manifest: Manifest, store: StateStore, exchange: Exchange
) -> None:
    """Where the organiser's key is, sign for the state that we are at, now and then."""
    path = settings.organiser_key
    if path is None or not manifest.admission.organiser or not path.exists():
        return
    try:
        key = load_key_of(manifest, path)
    except DuptError as error:
        logger.warning("nothing is attested: %s", error)
        return
    while True:
        state = store.current
        if state.round:
            said = Attestation(manifest.swarm_id, state.round, state.digest, tuple(sorted(state.voters)))
            exchange.attestation = said.signed(key)
        await asyncio.sleep(ATTEST_SECONDS)
