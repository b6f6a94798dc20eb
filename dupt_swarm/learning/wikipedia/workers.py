"""Processes that remove markup, one per core: the parser holds Python's lock, and may never come back.

They are programs of their own and not forked, since this process has threads of PyTorch; each ends when its
input does, so none outlives whoever started it, however that one ends.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.cores import usable_cores

PROGRAM = Path(__file__).with_name("markup.py")
WORKERS_MAX = 32  # more than that one core can read a dump for
AHEAD = 8  # articles under way for each worker

Item = TypeVar("Item")


class Workers:
    """A process per core, each started when there is work for it; a context manager that ends them."""

    def __init__(self) -> None:
        self._count = min(usable_cores(), WORKERS_MAX)
        self._threads = ThreadPoolExecutor(self._count, "markup")
        self._own = threading.local()  # each thread talks to one process
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()  # of the list, and of whether more may be started
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._ended = True
            for process in self._processes:
                process.kill()
        self._threads.shutdown()
        for process in self._processes:
            _close(process)

    def check(self) -> None:
        """Have one article answered that any process can read.

        Raises:
            CorpusError: no process can be started, or it ends at once.
        """
        remedy = "free some memory, or install mwparserfromhell anew"
        try:
            asked = self._threads.submit(self._ask, {"title": "A", "wikitext": "a", "namespaces": []})
            answer = asked.result()
        except OSError as error:
            raise CorpusError(
                f"no process can be started to remove markup: {error.strerror or error}; {remedy}"
            ) from error
        if answer is None:
            raise CorpusError(f"the process that removes markup ends at once; {remedy}")

    def map(self, requests: Iterable[tuple[Item, dict[str, Any]]]) -> Iterator[tuple[Item, str | None]]:
        """The text of each article, in order, beside the item that came with its request.

        None: the article cannot be read, or would take too long or too much memory.
        """
        waiting: deque[tuple[Item, Future[str | None]]] = deque()
        for item, request in requests:
            waiting.append((item, self._threads.submit(self._ask, request)))
            if len(waiting) > AHEAD * self._count or waiting[0][1].done():
                first, text = waiting.popleft()
                yield first, text.result()
        for item, text in waiting:
            yield item, text.result()

    def _ask(self, request: dict[str, Any]) -> str | None:
        """Have this thread's process answer."""
        process = getattr(self._own, "process", None) or self._start()
        assert process.stdin and process.stdout
        answer = b""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        if not answer.endswith(b"\n"):  # it ended, and the next article gets another process
            self._own.process = None
            _close(process)
            return None
        text: str | None = json.loads(answer)
        return text

    def _start(self) -> subprocess.Popen[bytes]:
        # -P: the folder of the program is no place to import from. A group of its own: Ctrl-C is for us.
        self._own.process = process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        with self._lock:
            self._processes.append(process)
            if self._ended:  # it started while the others were killed
                process.kill()
        return process


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if pipe:
                pipe.close()
    process.wait()
