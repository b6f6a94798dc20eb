"""A peer that fetches text which the swarm offers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dupt_swarm.network.host import background
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.offered import OfferedFiles


@asynccontextmanager
async def fetching(
    joiner: Any, folder: Path, donors: Sequence[str], tell: Callable[[object], None] = lambda _: None
) -> AsyncIterator[OfferedFiles]:
    """The station ``joiner`` fetches into ``folder`` what it is told to want."""
    files = OfferedFiles(folder, Exchange(joiner.p2p), lambda: donors, tell)
    async with background(files.fetch_forever()):
        yield files
