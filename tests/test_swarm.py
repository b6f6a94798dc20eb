"""What `Swarm` concludes from what its node tells; the node is a stand-in, as only its view matters."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dupt_swarm import swarm as swarm_module
from dupt_swarm.disk.folders import SwarmFolder, is_in_use
from dupt_swarm.node.heard import Hearing
from dupt_swarm.node.messages import StateName
from dupt_swarm.node.record import PeerRecord
from dupt_swarm.node.view import Peer, View
from dupt_swarm.swarm import Swarm


@pytest.fixture
def leaving():
    """An oracle that has done its last round, with 800 tokens in the state."""
    swarm = Swarm.__new__(Swarm)
    swarm.peer_id, swarm.state = "me", StateName(8, 800, "0" * 64)
    node: Any = SimpleNamespace(hearing=Hearing(lambda _: None))
    swarm._node = node
    return swarm


def see(swarm, **peers: PeerRecord) -> None:
    """Its node tells who is there."""
    view = View(time.time(), tuple(Peer(name, record) for name, record in peers.items()))
    swarm._node.hearing.hear(view)


def record(role: Any, swarm_tokens: int) -> PeerRecord:
    """That of a peer with so many tokens in its state."""
    digest = f"{swarm_tokens:064x}"
    return PeerRecord(
        role=role, state="training", time=0.0, round=8, state_digest=digest, swarm_tokens=swarm_tokens
    )


OTHER, FIRST = record("oracle", 800), record("bootstrap", 600)


def test_nothing_is_handed_over_to_one_who_is_leaving_too(leaving) -> None:
    """A first peer has to have the state; another oracle that has it may be going at this moment."""
    see(leaving, first=FIRST, other=OTHER)
    assert not leaving.handed_over
    see(leaving, first=FIRST.model_copy(update={"swarm_tokens": 800}), other=OTHER)
    assert leaving.handed_over


@pytest.mark.parametrize("others", [{}, {"other": OTHER}])
def test_a_first_peer_whose_record_is_late_is_waited_for(leaving, others, monkeypatch) -> None:
    """On a busy machine, or where our own node was started again: for a minute, and then it is gone."""
    see(leaving, first=FIRST, **others)
    see(leaving, **others)
    assert not leaving.handed_over
    monkeypatch.setattr(swarm_module, "FIRST_PEER_SECONDS", 0.0)
    assert leaving.handed_over


def test_without_a_first_peer_any_other_will_do(leaving) -> None:
    """And where there is nobody, nobody can have it."""
    assert leaving.handed_over
    see(leaving, other=OTHER.model_copy(update={"swarm_tokens": 500}))
    assert not leaving.handed_over
    see(leaving, other=OTHER)
    assert leaving.handed_over


def test_a_node_that_cannot_be_closed_keeps_no_folder(leaving, tmp_path: Path) -> None:
    """Another peer may use it."""

    def fail() -> None:
        raise OSError("no")

    leaving._node.close = fail
    leaving.folder = SwarmFolder(tmp_path, "test-000000000000")
    assert is_in_use(leaving.folder.path)
    with pytest.raises(OSError, match="no"):
        leaving.close()
    assert not is_in_use(leaving.folder.path)
