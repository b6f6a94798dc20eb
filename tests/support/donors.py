"""Donors that give nothing, and a peer that fetches text which the swarm offers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dupt_swarm.network.host import background
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.states.exchange import NOT_HELD, Exchange
from dupt_swarm.network.states.offered import OfferedFiles


class SilentDonor(Exchange):
    """Never sends anything."""

    @Exchange.rpc_chunks.override
    async def rpc_chunks(self, _request, _caller):
        await asyncio.Event().wait()
        yield b""


class ForgetfulDonor(Exchange):
    """Knows the blob's index, but not its chunks any more."""

    @Exchange.rpc_chunks.override
    async def rpc_chunks(self, _request, _caller):
        raise CallError(Refusal.NOT_HELD, NOT_HELD)
        yield b""


@asynccontextmanager
async def fetching(
    joiner: Any, folder: Path, donors: Sequence[str], tell: Callable[[object], None] = lambda _: None
) -> AsyncIterator[OfferedFiles]:
    """The station ``joiner`` fetches into ``folder`` what it is told to want."""
    files = OfferedFiles(folder, Exchange(joiner.p2p), lambda: donors, tell)
    async with background(files.fetch_forever()):
        yield files
