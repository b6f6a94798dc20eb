"""What the first peer does while the swarm is at work."""

import errno
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm import Swarm
from dupt_swarm.checkpoint import REPLICA_FILE
from dupt_swarm.disk import folders
from dupt_swarm.disk.files import sync_files
from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.storage import saved_digest
from peers import bootstrap
from peers.control.actions import PeerControl
from peers.interruption import Interruption
from tests.support.driven_swarm import Cluster
from tests.support.saved_models import small_manifest
from tests.support.tiny import settings
from tests.support.waiting import wait_until

ORGANISER = Ed25519PrivateKey.generate()


@pytest.fixture
def manifest() -> Manifest:
    public = ORGANISER.public_key().public_bytes_raw().hex()
    return small_manifest(admission={"kind": "open", "organiser": public})


@contextmanager
def kept(swarm: Swarm, key: Ed25519PrivateKey | None) -> Iterator[None]:
    """`dupt-peer bootstrap` at work, until the end of the block."""
    stops: list[Callable[[], None]] = []

    class WithoutSignals(Interruption):
        def on_stop(self, stop: Callable[[], None]) -> None:
            stops.append(stop)

    keeper = bootstrap._Keeper(swarm, key, PeerControl(swarm, "bootstrap", ""))
    thread = threading.Thread(target=keeper.run, args=(WithoutSignals(),))
    thread.start()
    try:
        wait_until(lambda: bool(stops), "it has begun")
        yield
    finally:
        stops[0]()
        thread.join()


def saved(swarm: Swarm) -> str:
    assert swarm.folder.checkpoint is not None
    return saved_digest(swarm.folder.checkpoint / REPLICA_FILE)


@pytest.mark.usefixtures("nothing_left")
def test_it_saves_whenever_its_own_state_has_changed(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its interval, and at its end if need be; no state is saved twice, in the place of the one before."""
    monkeypatch.setattr(bootstrap, "CHECKPOINT_SECONDS", 1)
    with Cluster(tmp_path, manifest) as cluster:
        after = cluster.end_round()
        with kept(cluster.first, None):
            wait_until(lambda: saved(cluster.first) == after.digest, "it has saved")
            time.sleep(2.5)  # it could save again, and again at its end
        names = [path.name for path in cluster.first.folder.path.glob("checkpoint-*")]
        assert sorted(names) == ["checkpoint-00000001", "checkpoint-00000002"]
        monkeypatch.setattr(bootstrap, "CHECKPOINT_SECONDS", 1000)
        with kept(cluster.first, None):
            last = cluster.end_round()
        assert saved(cluster.first) == last.digest


@pytest.mark.usefixtures("nothing_left")
def test_a_state_that_could_not_be_saved_is_saved_later(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk is full when the checkpoint is complete, too, though the swarm makes no other state."""
    monkeypatch.setattr(bootstrap, "CHECKPOINT_SECONDS", 1)
    failed: list[str] = []

    def full(*arguments: Any) -> None:
        if not failed:
            failed.append("once")
            raise OSError(errno.ENOSPC, "No space left on device")
        sync_files(*arguments)

    with Cluster(tmp_path, manifest) as cluster:
        last = cluster.end_round()
        monkeypatch.setattr(folders, "sync_files", full)
        with kept(cluster.first, None):
            wait_until(lambda: bool(failed), "the disk is full")
        assert saved(cluster.first) == last.digest


@pytest.mark.usefixtures("nothing_left")
def test_a_peer_that_comes_hears_what_the_organiser_attests(manifest: Manifest, tmp_path: Path) -> None:
    """Signed where the key is, in the first peer's own process, and passed on by its node."""
    with Cluster(tmp_path, manifest) as cluster:
        cluster.end_round()
        with kept(cluster.first, ORGANISER):
            wait_until(
                lambda: _word(cluster, tmp_path) == "as its organiser attests", "newcomers hear it", 60
            )


@pytest.mark.usefixtures("nothing_left")
def test_a_state_is_attested_before_all_others_have_left(manifest: Manifest, tmp_path: Path) -> None:
    """Who comes just after them gets their last state, and not the one that was attested a while ago."""
    with Cluster(tmp_path, manifest) as cluster, kept(cluster.first, ORGANISER):
        cluster.end_round()
        wait_until(lambda: _word(cluster, tmp_path) == "as its organiser attests", "newcomers hear it", 60)
        last = cluster.end_round()
        wait_until(lambda: cluster.first.state.digest == last.digest, "the first peer has it")
        time.sleep(0.3)
        for oracle in cluster.oracles:
            oracle.close()
        with Swarm.join(cluster.first.addresses, tmp_path / "late", settings("evaluator")) as late:
            assert late.state.digest == last.digest


def _word(cluster: Cluster, folder: Path) -> str:
    with Swarm.join(cluster.first.addresses, folder / "new", settings("evaluator")) as newcomer:
        return newcomer.beginning


@pytest.mark.usefixtures("nothing_left")
def test_its_anchor_is_that_of_its_state(manifest: Manifest, tmp_path: Path) -> None:
    """Its node moves on by itself; who reads the anchor sees the state that it was told, and that whole."""
    with Cluster(tmp_path, manifest) as cluster:
        before = cluster.first.anchor.clone()
        for _ in range(4):
            after = cluster.end_round()
        assert cluster.first.state.round == 0
        assert torch.equal(cluster.first.anchor, before)
        assert cluster.first.adopt().state == cluster.first.state == after
        assert torch.equal(cluster.first.anchor, cluster.oracles[0].anchor)
        assert not torch.equal(cluster.first.anchor, before)
