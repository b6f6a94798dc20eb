"""In which order a member fetches the others' contributions."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import torch

from dupt_swarm.errors import NodeError
from dupt_swarm.network.host import background
from dupt_swarm.network.rounds.share import ANY_AT_ONCE, MEMBERS_AT_ONCE, Share
from dupt_swarm.replica.blob import Assembly, Blob, Index
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Brought
from dupt_swarm.replica.replay import contribution_form
from tests.support.contributions import encoded
from tests.support.deciders import first_state

NUMEL, MEMBERS, NEWCOMERS = 10, 5, 3 * MEMBERS_AT_ONCE


class Donors:
    """In place of an `Exchange`: members give at once, and newcomers are waited for in vain."""

    def __init__(self, blobs: dict[str, Blob], silent: set[str]) -> None:
        self._blobs, self._silent = blobs, silent
        self.asked: list[str] = []

    async def fetch_index(self, digest: str, donors: Sequence[str]) -> Index:
        self.asked.append(donors[0])
        if donors[0] in self._silent:
            await asyncio.sleep(1.0)
            raise NodeError("nobody gives it")
        return self._blobs[digest].index

    async def fetch(self, assembly: Assembly, donors: object, seconds: float) -> Blob:
        del donors, seconds
        return self._blobs[assembly.index.digest]


class Everything:
    """In place of a session: all bring something, and each holds its own alone."""

    roll = proposed = None

    def __init__(self, before: Any, brought: Sequence[Brought]) -> None:
        self.before, self.wanted = before, list(brought)

    def donors(self, brought: Brought) -> list[str]:
        """See `Floor`."""
        return [brought.maker]

    def hold(self, digests: Collection[str]) -> None:
        """See `Floor`."""
        self.wanted = [each for each in self.wanted if each.digest not in digests]

    async def change(self, seconds: float) -> None:
        """See `Floor`."""
        await asyncio.sleep(seconds)


async def test_newcomers_that_bring_nothing(make_manifest: Any) -> None:
    """They keep nobody from what members bring, and each is tried before one of them is tried again."""
    manifest = make_manifest()
    form = contribution_form(manifest, NUMEL)
    peers = [f"peer{number:02}" for number in range(MEMBERS + NEWCOMERS)]
    members = peers[::3][:MEMBERS]
    silent = set(peers) - set(members)
    before = first_state(manifest, NUMEL, Electorate().after(members, weak=True))
    claims = [Claim(before.round, before.digest, 10, peer) for peer in peers]
    made = [form.build(claim, encoded(torch.ones(NUMEL), manifest)) for claim in claims]
    brought = [Brought(claim.maker, blob.digest, 10) for claim, blob in zip(claims, made, strict=True)]
    donors = Donors({blob.digest: blob for blob in made}, silent)
    floor = Everything(before, brought)
    share = Share(manifest, NUMEL, donors)  # type: ignore[arg-type]
    async with background(share.run(floor)):  # type: ignore[arg-type]
        async with asyncio.timeout(20):
            while not silent <= set(donors.asked):
                await asyncio.sleep(0.1)
        assert {each.maker for each in floor.wanted} == silent
        assert set(donors.asked[:MEMBERS]) == set(members)
    again = [peer for peer in donors.asked if peer in silent]
    assert len(again) <= len(silent) + ANY_AT_ONCE
