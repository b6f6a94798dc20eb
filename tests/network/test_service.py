"""A node's service with a real daemon and a real DHT, in this process: what its parent's commands do."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from hivemind.p2p import P2P

from dupt_swarm.disk.anonymous import anonymous_file
from dupt_swarm.errors import ManifestError, NodeError, UnreachableError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.host import Host
from dupt_swarm.network.p2p.daemon import dial
from dupt_swarm.network.service import NodeService
from dupt_swarm.node.commands import (
    Adopt,
    CancelRound,
    Check,
    Close,
    Command,
    Discover,
    EndRound,
    Join,
    Predecessor,
    Publish,
    ReadView,
    Save,
)
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.messages import Adopted, CatchingUp, Joined, StateName
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import load_state, save_state
from dupt_swarm.settings import NodeSettings
from tests.support.contributions import put
from tests.support.loopback import LOOPBACK, NOBODY
from tests.support.memory import leave

TOKENIZER = b"{}"
NOWHERE = StateName(0, 0, "ab" * 32)


@pytest.fixture
def manifest(make_manifest: Callable[..., Manifest]) -> Manifest:
    """Of a swarm whose tokenizer is `TOKENIZER`."""
    return make_manifest(tokenizer={"sha256": hashlib.sha256(TOKENIZER).hexdigest()})


@pytest.fixture
def state(manifest: Manifest) -> ReplicaState:
    """Round 0 of a very small model."""
    return first_state(manifest, [torch.arange(6.0).reshape(2, 3)])


@pytest.fixture
def first_peer(
    manifest: Manifest, state: ReplicaState, tmp_path: Path, identities: list[Path]
) -> NodeSettings:
    """Settings of a bootstrap that begins with ``state``."""
    path = tmp_path / "replica.safetensors"
    save_state(state, path)
    return NodeSettings(
        "bootstrap",
        host_maddrs=LOOPBACK,
        identity_path=identities[0],
        own_folder=tmp_path,
        checkpoint=path,
        manifest=manifest.canonical_bytes(),
        tokenizer=TOKENIZER,
    )


class Parent:
    """A parent process's side: a service, the memory shared with it, and what it told."""

    def __init__(self, run_dir: Path) -> None:
        run_dir.mkdir()
        self.told: list[object] = []
        self.gave_up = asyncio.Event()
        self.service = NodeService(Host(run_dir, self.told.append, self.gave_up.set))
        self.fd = anonymous_file()

    async def call(self, command: Command[Any]) -> Any:
        return await self.service.execute(command)

    async def join(self, settings: NodeSettings, predecessor: Predecessor | None = None) -> Joined:
        return await self.call(Join(settings, self.fd, predecessor))


@pytest.fixture
def parent(tmp_path: Path) -> Callable[..., Any]:
    """``async with parent("a") as one`` has a service until the block is left."""

    @asynccontextmanager
    async def live(name: str) -> AsyncIterator[Parent]:
        one = Parent(tmp_path / name)
        try:
            yield one
        finally:
            await one.service.close()
            os.close(one.fd)

    return live


def daemons() -> list[psutil.Process]:
    """The libp2p daemons that this process has; those of ended programs may stay as zombies."""
    children = psutil.Process().children()
    return [child for child in children if child.name() == "p2pd" and child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(
    "command", [ReadView(), Adopt(NOWHERE), Save(Path("x")), CancelRound(), Publish(RecordUpdate())]
)
async def test_commands_before_joining(command: Command[Any], parent: Callable[..., Any]) -> None:
    """What takes a swarm is refused before there is one."""
    async with parent("a") as one:
        with pytest.raises(NodeError, match="has not joined"):
            await one.call(command)


async def test_unknown_command(parent: Callable[..., Any]) -> None:
    """What the process itself must do is no command of the service."""
    async with parent("a") as one:
        with pytest.raises(TypeError, match="not a command"):
            await one.call(Close())


@pytest.mark.usefixtures("nothing_left")
async def test_the_life_of_a_first_oracle(
    first_peer: NodeSettings,
    state: ReplicaState,
    manifest: Manifest,
    parent: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """It holds its state in the shared memory, ends a round alone, saves, and leaves nothing running."""
    async with parent("a") as one:
        joined = await one.join(replace(first_peer, role="oracle"))
        assert joined.state == StateName(0, 0, state.digest)
        assert joined.tokenizer == TOKENIZER
        await one.call(Publish(RecordUpdate(state="training"), now=True))
        assert joined.host_maddrs != LOOPBACK  # the port that was free
        memory = SharedMemory(one.fd, joined.layout)
        assert torch.equal(memory.vectors.at(joined.state.place), state.anchor)
        size = put(memory.contribution, torch.full_like(state.anchor, 0.5), manifest)
        result = await one.call(EndRound(joined.state, size, 64))
        assert (result.reason, result.tokens, result.mates) == (None, 64, ())
        after = SharedMemory(one.fd, joined.layout).load()
        assert after is not None
        assert result.state == StateName(1, 64, after.digest)
        late = await one.call(EndRound(joined.state, size, 64))
        assert (late.state, late.reason) == (None, "stale")
        assert CatchingUp(fetching=False, newer=result.state) in one.told
        assert await one.call(Save(tmp_path / "saved")) == result.state
        assert load_state(tmp_path / "saved").digest == result.state.digest
        assert await one.call(Adopt(joined.state)) == Adopted(result.state, {joined.peer_id: 64})
        await one.call(Publish(RecordUpdate(loss=2.5), now=True))
        reached = [(joined.peer_id, 1)]
        # Until the record of the new state is stored, the one before is found.
        while [(peer.peer_id, peer.record.round) for peer in (await one.call(ReadView())).peers] != reached:
            await asyncio.sleep(0.05)
    assert daemons() == []


@pytest.mark.usefixtures("nothing_left")
async def test_an_observer(first_peer: NodeSettings, manifest: Manifest, parent: Callable[..., Any]) -> None:
    """An observer finds manifest and records, and says so when it has lost everybody."""
    async with parent("a") as one, parent("b") as other:
        joined = await one.join(first_peer)
        assert await other.call(Discover(joined.addresses, "")) == manifest.canonical_bytes()
        checkup = await other.call(Check(NodeSettings("oracle", initial_peers=joined.addresses)))
        assert [answer.problem for answer in checkup.answers.values()] == [""]
        seen = await other.join(NodeSettings("observer", initial_peers=joined.addresses))
        assert (seen.manifest, seen.state, seen.addresses) == (manifest.canonical_bytes(), None, ())
        while not (await other.call(ReadView())).peers:
            await asyncio.sleep(0.05)
        with pytest.raises(NodeError, match="takes no part"):
            await other.call(Adopt(NOWHERE))
        await one.service.close()
        with pytest.raises(NodeError, match="no peer of the swarm can be reached"):
            while True:
                await other.call(ReadView())
                await asyncio.sleep(0.05)


@pytest.mark.usefixtures("nothing_left")
async def test_a_new_process_goes_on(
    first_peer: NodeSettings,
    state: ReplicaState,
    parent: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node that replaces another begins with what is in the shared memory, and the log says why."""
    caplog.set_level("INFO", "dupt_swarm")
    async with parent("a") as one:
        later = replace(state, round=7, swarm_tokens=70)
        leave(SharedMemory(one.fd, state.layout), later)
        before = replace(first_peer, checkpoint=None, initial_peers=(NOBODY,))
        joined = await one.join(before, Predecessor(state.layout, "fell silent"))
        assert joined.state == StateName(7, 70, later.digest)
    assert "started again, because the node before fell silent" in caplog.messages
    assert any(line.startswith("joined test-") for line in caplog.messages)


@pytest.mark.usefixtures("nothing_left")
async def test_a_join_that_fails_closes_what_it_started(
    first_peer: NodeSettings, parent: Callable[..., Any]
) -> None:
    """When nobody answers or the tokenizer is another, no daemon is left, and one may try again."""
    async with parent("a") as one:
        with pytest.raises(UnreachableError):
            await one.join(NodeSettings("oracle", initial_peers=(NOBODY,), host_maddrs=LOOPBACK))
        assert daemons() == []
        with pytest.raises(ManifestError, match="tokenizer"):
            await one.join(replace(first_peer, tokenizer=b"another"))
        assert daemons() == []
        assert (await one.join(first_peer)).state is not None


@pytest.mark.usefixtures("nothing_left")
async def test_each_initial_peer_is_dialled_once(
    first_peer: NodeSettings,
    parent: Callable[..., Any],
    identities: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that does not answer delays a join only once; where none answers, each has its reason."""
    dialled: list[str] = []

    async def noting(p2p: P2P, address: str) -> str:
        dialled.append(address)
        return await dial(p2p, address)

    monkeypatch.setattr("dupt_swarm.network.p2p.daemon.dial", noting)
    settings = NodeSettings(
        "oracle", host_maddrs=("/ip4/0.0.0.0/tcp/0",), identity_path=identities[1], own_folder=tmp_path / "b"
    )
    async with parent("a") as one, parent("b") as other:
        [address] = (await one.join(first_peer)).addresses
        with pytest.raises(UnreachableError) as caught:
            await other.join(replace(settings, initial_peers=(NOBODY, "junk")))
        reasons = {NOBODY: "connection refused", "junk": "not a multiaddr that ends in /p2p/<peer id>"}
        assert caught.value.reasons == reasons
        assert dialled == [NOBODY, "junk"]
        dialled.clear()
        await other.join(replace(settings, initial_peers=(NOBODY, address)))
        assert dialled == [NOBODY, address]


@pytest.mark.usefixtures("nothing_left")
async def test_a_dead_daemon_ends_the_node(
    first_peer: NodeSettings, parent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node whose daemon was killed gives up, so that its parent starts another."""
    monkeypatch.setattr("dupt_swarm.network.p2p.daemon.PROBE_SECONDS", 0.1)
    async with parent("a") as one:
        await one.join(first_peer)
        assert not one.gave_up.is_set()
        [daemon] = daemons()
        daemon.kill()
        await one.gave_up.wait()
