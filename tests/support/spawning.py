"""Starting a daemon without a fork of the node that starts it.

uvloop forks, which takes 30 ms of a core in a process that has imported all that a node has; asyncio, by
`subprocess`, does not copy the process (vfork), which takes one. Hundreds of nodes begin with that.
"""

import asyncio
import importlib
import subprocess
from asyncio.subprocess import Process, SubprocessStreamProtocol
from asyncio.unix_events import _UnixSubprocessTransport  # type: ignore[attr-defined]
from collections.abc import Mapping
from types import SimpleNamespace

LIMIT = 1 << 16  # of a line, as asyncio has it


async def create_subprocess_exec(*command: str, stdout: int, stderr: int, env: Mapping[str, str]) -> Process:
    """As that of asyncio with its own event loop, whichever runs."""
    loop = asyncio.get_running_loop()
    protocol, begun = SubprocessStreamProtocol(limit=LIMIT, loop=loop), loop.create_future()
    transport = _UnixSubprocessTransport(
        loop, protocol, command, False, None, stdout, stderr, 0, waiter=begun, env=env
    )

    def ended(_: int, code: int) -> None:
        loop.call_soon_threadsafe(transport._process_exited, code)

    asyncio.ThreadedChildWatcher().add_child_handler(transport.get_pid(), ended)
    await begun
    return Process(transport, protocol, loop)


def spawn_lightly() -> None:
    """Have hivemind start its daemons so in this process and its forks."""
    names = vars(asyncio) | {
        "subprocess": SimpleNamespace(
            PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT, create_subprocess_exec=create_subprocess_exec
        )
    }
    vars(importlib.import_module("hivemind.p2p.p2p_daemon"))["asyncio"] = SimpleNamespace(**names)
