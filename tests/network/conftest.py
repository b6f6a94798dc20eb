import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

os.environ.setdefault("HIVEMIND_LOGLEVEL", "CRITICAL")
os.environ.setdefault("GOLOG_LOG_LEVEL", "fatal")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.joining.entry import enter_dht
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.reach.starting import start_daemon
from dupt_swarm.settings import NodeSettings
from tests.support.loopback import LOOPBACK
from tests.support.unpacked import use_unpacked


@dataclass
class Station:
    """A libp2p daemon with its address and a folder, and the DHT node on it if the test wants one."""

    p2p: P2P
    address: str
    key: Ed25519PrivateKey
    folder: Path
    dht: DHTNode | None = None

    @property
    def peer_id(self) -> str:
        """Its peer id."""
        return str(self.p2p.peer_id)


@pytest.fixture(scope="session", autouse=True)
def quick_daemons() -> None:
    """hivemind's daemons start from the unpacked executable in this process too."""
    use_unpacked()


@pytest.fixture
def no_garbage_collected() -> Iterator[None]:
    """What is gone during the test was so at once, and not as garbage."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def identities(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Five private keys on disk, made once."""
    folder = tmp_path_factory.mktemp("keys")
    paths = [folder / str(number) for number in range(5)]
    for path in paths:
        load_identity(path)
    return paths


@pytest.fixture
def stations(
    identities: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., AbstractAsyncContextManager[list[Station]]]:
    """``async with stations(3)`` starts three daemons on loopback; with a manifest, DHT nodes too."""

    @asynccontextmanager
    async def start(count: int, manifest: Manifest | None = None) -> AsyncIterator[list[Station]]:
        started: list[Station] = []
        try:
            for number in range(count):
                settings = NodeSettings("oracle", host_maddrs=LOOPBACK, identity_path=identities[number])
                folder = tmp_path_factory.mktemp("p")
                p2p = await start_daemon(settings, folder)
                [address, *_] = await p2p.get_visible_maddrs()
                started.append(Station(p2p, str(address), load_identity(identities[number]), folder))
                if manifest is not None:
                    if number:
                        await connect(p2p, [station.address for station in started[:-1]])
                    started[-1].dht = await enter_dht(
                        p2p,
                        [started[0].address] if number else [],
                        client_mode=False,
                    )
            yield started
        finally:
            for station in started:
                with contextlib.suppress(Exception):  # the test may have ended it
                    if station.dht is not None:
                        await asyncio.wait_for(station.dht.shutdown(), 5)
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(station.p2p.shutdown(), 5)

    return start
