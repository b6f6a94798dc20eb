"""The trainer's side with a real node process."""

import hashlib
import os
import signal
import subprocess
from pathlib import Path

import pytest
import torch

from dupt_swarm.disk.anonymous import anonymous_file
from dupt_swarm.errors import NodeError
from dupt_swarm.node.commands import Adopt, Check, EndRound, LogTo, ReadView
from dupt_swarm.node.link import Link
from dupt_swarm.node.messages import Adopted, StateName
from dupt_swarm.node.node import Node
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.storage import save_state
from tests.support.contributions import put
from tests.support.tiny import settings, tiny_manifest
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")
TOKENIZER = b"{}"


@pytest.fixture(autouse=True)
def from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here nodes start as they do for people, not as forks."""
    monkeypatch.setattr("dupt_swarm.node.link.subprocess", subprocess)


def test_a_link_answers_and_ends(tmp_path: Path) -> None:
    """Each command gets its own answer, an error too; once the process is gone, all get one."""
    fd = anonymous_file()
    link = Link(fd, lambda _: None)
    try:
        assert link.submit(LogTo(tmp_path / "node.log")).result(60) is None
        early, checkup = link.submit(ReadView()), link.submit(Check(settings()))
        with pytest.raises(NodeError, match="has not joined a swarm yet"):
            early.result(60)
        assert checkup.result(60).problem == ""
        assert link.ailment() == ""
        os.kill(link._process.pid, signal.SIGSTOP)
        waiting = link.submit(Adopt(StateName(0, 0, "ab" * 32)))
        link.kill()
        with pytest.raises(NodeError, match="has ended"):
            waiting.result(0)
        assert link.ailment() == "exited"
    finally:
        link.kill()
        os.close(fd)


def test_a_node_tells_its_story(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A node that is killed is replaced, with its state; node.log and the trainer's log tell all of it."""
    caplog.set_level("INFO", "dupt_swarm")
    manifest = tiny_manifest(hashlib.sha256(TOKENIZER).hexdigest())
    state = first_state(manifest, [torch.arange(6.0).reshape(2, 3)])
    save_state(state, tmp_path / "replica.safetensors")
    first = settings(
        "oracle",
        checkpoint=tmp_path / "replica.safetensors",
        identity_path=tmp_path / "identity",
        own_folder=tmp_path,
        manifest=manifest.canonical_bytes(),
        tokenizer=TOKENIZER,
    )
    with Node() as node:
        node.log_to(tmp_path / "node.log")
        joined = node.join(first)
        memory = node.attach()
        node.supervise()
        node.publish(RecordUpdate(state="training"), now=True)
        size = put(memory.contribution, torch.full((6,), 0.5), manifest)
        assert joined.state is not None
        result = node.average(EndRound(joined.state, size, 64), 60).result(60)
        assert result.state is not None
        os.kill(node._link._process.pid, signal.SIGKILL)
        wait_until(lambda: node.hearing.catching_up.newer == result.state)
        assert node.restarts == {"exited": 1}
        assert node.adopt(joined.state) == Adopted(result.state, {joined.peer_id: 64})  # as its chain tells
        assert [peer.peer_id for peer in node.refresh().peers] in ([], [joined.peer_id])
    told = [
        f"joined {manifest.swarm_id} as oracle {joined.peer_id}, direct at {joined.addresses[0]}",
        f"at round 0: state {joined.state.digest[:8]}",
        f"round 1 averaged with 0 others in * s, 64 tokens: state {result.state.digest[:8]}",
        "started again, because the node before ended",
        f"at round 1: state {result.state.digest[:8]}",
    ]
    for text in ((tmp_path / "node.log").read_text(), caplog.text):
        places = [text.find(part) for line in told for part in line.split("*")]
        assert -1 not in places
        assert places == sorted(places)
