"""The node process and the pipe to its parent."""

import asyncio
import threading
from multiprocessing import Pipe
from pathlib import Path

import pytest

from dupt_swarm.errors import NodeError
from dupt_swarm.network import process
from dupt_swarm.network.process import CommandLoop
from dupt_swarm.node.commands import Close, ReadView

EVENTS = 200


async def test_a_parent_that_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while it is suspended: the event loop goes on; only events are left out that later ones replace."""
    monkeypatch.setattr(process, "tell_story", lambda _: None)
    ours, theirs = Pipe()
    told, in_time, heard = threading.Event(), [False], list[tuple[object, object, object]]()

    def parent() -> None:
        ours.send((7, ReadView()))
        in_time[0] = told.wait(10.0)
        while (None, "newer", None) not in heard or not any(number == 7 for number, *_ in heard):
            heard.append(ours.recv())
        ours.send((None, Close()))

    reader = threading.Thread(target=parent)
    reader.start()
    loop = CommandLoop(theirs, tmp_path)
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0)
    for _ in range(EVENTS):
        loop._tell(b"a view of many peers" * 50_000)
    for state in ("new", "newer"):
        loop._tell(state)
    told.set()
    await running
    reader.join()
    ours.close()
    theirs.close()
    assert in_time == [True]
    [(nothing, error)] = [answer for number, *answer in heard if number == 7]
    assert nothing is None and isinstance(error, NodeError)
    events = [event for number, event, _ in heard if number is None]
    assert 0 < len(events) < EVENTS and "new" not in events
