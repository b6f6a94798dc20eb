"""In which order a member fetches the others' contributions."""

import asyncio
from collections.abc import Sequence
from typing import Any

import torch

from dupt_swarm.errors import NodeError
from dupt_swarm.network.averaging.group import SharingGroup
from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.network.averaging.session import Session
from dupt_swarm.network.averaging.share import AT_ONCE, Collection, RoundShelf
from dupt_swarm.network.host import background
from dupt_swarm.replica.blob import Assembly, Blob, Index
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.replay import contribution_form
from dupt_swarm.replica.voters import Voters
from tests.support.contributions import encoded
from tests.support.sharing_groups import STATE, SWARM, member_keys

NUMEL, VOTERS, NEWCOMERS = 10, 5, 3 * AT_ONCE


class Donors:
    """In place of an `Exchange`: voters give at once, and newcomers are waited for in vain."""

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


def test_newcomers_that_bring_nothing(make_manifest: Any) -> None:
    """They keep nobody from what the voters bring, and each is tried before one of them is tried again."""
    manifest, keys = make_manifest(), member_keys(VOTERS + NEWCOMERS)
    form, peers = contribution_form(manifest, NUMEL), list(keys)
    voters = peers[::3][:VOTERS]
    silent = set(peers) - set(voters)
    claims = [Claim(3, STATE, 10, peer) for peer in peers]
    made = [form.build(claim, encoded(torch.ones(NUMEL), manifest)) for claim in claims]
    statements = [
        Statement.make(SWARM, claim, blob.digest, keys[claim.maker])
        for claim, blob in zip(claims, made, strict=True)
    ]
    roll = Roll.call(voters[0], keys[voters[0]], statements)
    group = SharingGroup(SWARM, roll, Voters(dict.fromkeys(voters, (4, 3))))
    shelf = RoundShelf()
    shelf.begin(made[peers.index(voters[0])])
    donors = Donors({blob.digest: blob for blob in made}, silent)

    async def scenario() -> None:
        session = Session(group, voters[0], keys[voters[0]], manifest.rounds)
        collection = Collection(session, form, donors, shelf)  # type: ignore[arg-type]
        async with background(collection.run()):
            await collection.complete([peers.index(each) for each in voters])
            assert {*donors.asked[: VOTERS - 1], voters[0]} == set(voters)
            async with asyncio.timeout(20):
                while not silent <= set(donors.asked):
                    await asyncio.sleep(0.1)
        again = [peer for peer in donors.asked if peer in silent]
        assert len(again) <= len(silent) + AT_ONCE

    asyncio.run(asyncio.wait_for(scenario(), 60))
