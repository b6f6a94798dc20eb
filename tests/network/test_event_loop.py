"""The node's event loop answers whatever the size of the model: passes over whole vectors run in threads."""

import asyncio
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dupt_swarm.disk.anonymous import anonymous_file
from dupt_swarm.network.host import Host
from dupt_swarm.network.service import NodeService
from dupt_swarm.node.commands import Adopt, EndRound, Join, Predecessor, Publish
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.replica import blob as blob_module
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.settings import NodeSettings
from tests.support.contributions import encoded, put
from tests.support.deciders import deciding_at
from tests.support.loopback import LOOPBACK
from tests.support.memory import leave
from tests.support.tiny import reduced_tables

NUMEL = 40_000
BYTES = NUMEL // 4  # the least that so many values take
TOKENIZER = b"{}"


class Passes(TorchDispatchMode):
    """Notes operations on whole vectors, and hashes of them, in the thread that entered it.

    Attributes:
        seen: what it noted. (Torch tells a mode of what its own thread does only.)
        elsewhere: how many hashes of whole vectors other threads computed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.elsewhere = 0
        self._thread = threading.get_ident()
        monkeypatch.setattr(blob_module, "hashlib", SimpleNamespace(sha256=self._sha256))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        touched = [each for each in tree_leaves((args, result)) if isinstance(each, torch.Tensor)]
        alias = func._schema.returns[0].alias_info if func._schema.returns else None
        is_view = alias is not None and not alias.is_write
        is_new = func is torch.ops.aten.empty.memory_format  # nothing is read or written yet
        if any(each.numel() >= NUMEL for each in touched) and not is_view and not is_new:
            self.seen.append(str(func))
        return result

    def _sha256(self, data: bytes | memoryview) -> Any:
        if len(data) >= BYTES and threading.get_ident() == self._thread:
            self.seen.append("sha256")
        self.elsewhere += len(data) >= BYTES and threading.get_ident() != self._thread
        return hashlib.sha256(data)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Passes]:
    with Passes(monkeypatch) as passes:
        yield passes


def test_what_counts_as_a_pass(passes: Passes) -> None:
    """Copies, sums and hashes do; views, empty memory, parts and what other threads do does not."""
    vector = torch.empty(NUMEL)
    parts = torch.split(vector.view(2, -1), 1)
    parts[0].zero_()
    thread = threading.Thread(target=lambda: torch.zeros(NUMEL).sum())
    thread.start()
    thread.join()
    assert passes.seen == []
    vector.fill_(1.0)
    vector.clone()
    blob_module.Blob.build({}, [vector.numpy().data])
    assert passes.seen == ["aten.fill_.Scalar", "aten.clone.default", "sha256"]


@pytest.mark.parametrize("tables", [{}, reduced_tables()], ids=["share", "reduce"])
@pytest.mark.usefixtures("nothing_left")
async def test_a_life_without_passes_on_the_loop(
    make_manifest, identities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any]
) -> None:
    """A node finds the state that another left, ends a round alone, and adopts a newer state."""
    manifest = make_manifest(tokenizer={"sha256": hashlib.sha256(TOKENIZER).hexdigest()}, **tables)
    state = first_state(manifest, [torch.randn(NUMEL)])
    contribution = torch.full((NUMEL,), 0.5)
    settings = NodeSettings(
        "oracle",
        host_maddrs=LOOPBACK,
        identity_path=identities[0],
        own_folder=tmp_path,
        manifest=manifest.canonical_bytes(),
        tokenizer=TOKENIZER,
    )
    fd = anonymous_file()
    memory = SharedMemory(fd, state.layout)
    leave(memory, state)
    size = put(memory.contribution, contribution, manifest)
    service = NodeService(Host(tmp_path, lambda _: None, lambda: None))
    with Passes(monkeypatch) as passes:
        try:
            joined = await service.execute(Join(settings, fd, Predecessor(state.layout, "ended")))
            await service.execute(Publish(RecordUpdate(state="training"), now=True))
            result: Any = await service.execute(EndRound(joined.state, size, 64))  # type: ignore[attr-defined]
            assert (result.state.round, result.reason) == (1, None)
            store = service._participant.store
            store.newer = await asyncio.to_thread(state.copied, store.empty)
            adopted: Any = await service.execute(Adopt(result.state))
            assert adopted.state == joined.state  # type: ignore[attr-defined]
        finally:
            await service.close()
    assert passes.seen == []
    assert passes.elsewhere >= 3  # the state found, what went into the round, and the state after it
    left = memory.load()
    assert left is not None
    assert left.digest == state.digest
    os.close(fd)


@pytest.mark.parametrize("tables", [{}, reduced_tables()], ids=["share", "reduce"])
async def test_a_round_without_passes_on_the_loop(
    stations, make_manifest, monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any]
) -> None:
    """Two peers decode, screen, average, encode, hash, and compute what follows in threads."""
    manifest = make_manifest(**tables)
    async with deciding_at(stations, 2, manifest=manifest, numel=NUMEL) as (peers, _):
        brought = [encoded(torch.full((NUMEL,), value), manifest) for value in (1.0, 3.0)]
        with Passes(monkeypatch) as passes:
            ending = (peer.deciding.end(each, 10) for peer, each in zip(peers, brought, strict=True))
            ended = await asyncio.gather(*ending)
        # Each checks what it is given, a chunk of a MiB at most, however large the vector is.
        assert passes.seen == ["sha256"] * (2 if manifest.rounds.exchange == "share" else 0)
        assert passes.elsewhere >= 2
        found = [each for each in ended if each is not None]
        [link] = {each.link for each in found}
        assert [each.computed and each.computed.after.digest for each in found] == [link.after] * 2
        assert set(link.choice.makers) == {peer.peer_id for peer in peers}
