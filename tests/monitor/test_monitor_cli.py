import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from dupt_swarm.presets import manifest_from_preset
from dupt_swarm.settings import NodeSettings
from monitor.cli import main
from tests.support.loopback import LOOPBACK, free_port
from tests.support.programs import BIN
from tests.support.warm import Program

PEER_ID = "QmTm2ZWAGpQd4bE2Yx1v64kaztjyrmr6akKCtddWHuhXN3"
START_SECONDS = 90  # torch and the daemon start slowly where many tests run at once

Start = Callable[..., "Monitor"]


class Monitor:
    """A running `dupt-monitor` whose temporary files are in a folder of its own."""

    def __init__(self, temporary: Path, state_dir: Path, *arguments: str) -> None:
        self.temporary = temporary
        self.process = Program(
            [str(BIN / "dupt-monitor"), "--port", "0", "--state-dir", str(state_dir), *arguments],
            env=os.environ | {"TMPDIR": str(temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        own = psutil.Process(self.process.pid)
        self.family = [own, *own.children(recursive=True)]

    def scrape(self) -> str:
        with urllib.request.urlopen(self.url, timeout=5) as response:
            return str(response.read().decode())

    def end(self, number: signal.Signals) -> int:
        """The exit code after a signal, within 10 seconds."""
        self.process.send_signal(number)
        return self.process.wait(10)

    def assert_nothing_left(self) -> None:
        _, alive = psutil.wait_procs(self.family, timeout=5)
        assert alive == []
        assert list(self.temporary.iterdir()) == []
        shared = Path("/dev/shm")
        pids = {str(process.pid) for process in self.family}
        names = [path.name for path in shared.iterdir()] if shared.is_dir() else []
        assert [name for name in names if pids & set(re.split(r"\W|_", name))] == []


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts monitors; sockets have short paths only, so pytest's own folder is too deep."""
    monitors: list[Monitor] = []

    def run(*arguments: str) -> Monitor:
        monitors.append(Monitor(Path(tempfile.mkdtemp(prefix="mon")), tmp_path, *arguments))
        return monitors[-1]

    yield run
    for monitor in monitors:
        if monitor.process.poll() is None:
            monitor.process.kill()
        monitor.process.communicate()
        shutil.rmtree(monitor.temporary, ignore_errors=True)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real first peer of a small swarm."""
    import torch

    from dupt_swarm.swarm import Swarm

    tokenizer = b"{}"
    manifest = manifest_from_preset(
        "tiny",
        name="watched",
        seed=1,
        tokenizer_sha256=hashlib.sha256(tokenizer).hexdigest(),
        vocabulary_size=512,
    )
    settings = NodeSettings("bootstrap", name='first "peer"', host_maddrs=LOOPBACK)
    parameters = torch.nn.Linear(4, 4).parameters()
    folder = tmp_path_factory.mktemp("bootstrap")
    with Swarm.create(manifest, tokenizer, parameters, folder, settings) as swarm:
        yield swarm


def test_help_is_quick() -> None:
    """`--help` explains every option without loading torch or hivemind."""
    script = (
        "import sys\n"
        "from monitor.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print(sorted({'torch', 'hivemind', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for option in ("--initial-peers", "--swarm", "--host", "--port", "--max-peer-series"):
        assert option in done.stdout


def test_needs_an_address() -> None:
    """Without an address it is a usage error that names the option."""
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    assert "--initial-peers" in result.stderr


def test_port_taken() -> None:
    """A taken port, here given by the environment, ends it at once with code 2 and a remedy."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        environment = {
            "DUPT_MONITOR_PORT": str(taken.getsockname()[1]),
            "DUPT_MONITOR_INITIAL_PEERS": f"/ip4/127.0.0.1/tcp/1/p2p/{PEER_ID}",
        }
        done = subprocess.run(
            [str(BIN / "dupt-monitor")],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot listen there" in done.stderr
    assert "choose another --host or --port" in done.stderr


def test_unreachable_swarm(start: Start) -> None:
    """When no address answers it ends with code 11, names each with its reason, and leaves nothing."""
    address = f"/ip4/127.0.0.1/tcp/{free_port()}/p2p/{PEER_ID}"
    monitor = start("--initial-peers", address)
    stdout, stderr = monitor.process.communicate(timeout=START_SECONDS)

    assert (monitor.process.returncode, monitor.url, stdout) == (11, "", "")
    assert f"{address}: " in stderr
    assert "Traceback" not in stderr
    monitor.assert_nothing_left()


def test_watches_a_swarm(bootstrap: Any, start: Start) -> None:
    """It finds a real swarm, serves its metrics, ends on SIGTERM with 0, and leaves nothing behind."""
    monitor = start("--initial-peers", bootstrap.addresses[0], "--swarm", bootstrap.manifest.swarm_id)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", monitor.url)

    text = monitor.scrape()
    run = f'run="{bootstrap.manifest.swarm_id}"'
    assert "dupt_monitor_up 1.0" in text
    assert re.findall(rf'^dupt_swarm_peers\{{role="bootstrap",{run},.*\}} 1\.0$', text, re.MULTILINE)
    assert f'manifest_sha256="{bootstrap.manifest.sha256}"' in text
    assert f'name="first \\"peer\\"",peer_id="{bootstrap.peer_id}"' in text

    assert monitor.end(signal.SIGTERM) == 0
    monitor.assert_nothing_left()


def test_interrupted(bootstrap: Any, start: Start) -> None:
    """Ctrl-C ends it with 130, while a lost node is only counted until then."""
    monitor = start("--initial-peers", bootstrap.addresses[0])
    for process in monitor.family[1:2]:
        process.kill()
    deadline = time.monotonic() + 15
    while "dupt_monitor_up 0.0" not in monitor.scrape():
        assert time.monotonic() < deadline, "the monitor did not notice"
        time.sleep(0.2)
    assert "dupt_monitor_refresh_errors_total 0.0" not in monitor.scrape()

    assert monitor.end(signal.SIGINT) == 130
    monitor.assert_nothing_left()
