"""`dupt-peer service` on a machine with systemd: a container with one of its own, as process 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.containers import CAREFUL, address_in, new_swarm, readable, soon
from tests.support.docker import Engine

pytestmark = [pytest.mark.system, pytest.mark.timeout(3600)]

UNIT = "/home/volunteer/.config/systemd/user/dupt-peer.service"


@pytest.fixture
def corpus_and_address(engine: Engine, tmp_path: Path) -> tuple[Path, str]:
    """Of a swarm whose first peer is in another container."""
    folder = readable(tmp_path) / "swarm"
    corpus = new_swarm(engine, folder)
    place = ("--name", "first", "--network", "host", "-v", f"{folder}:/swarm", *CAREFUL)
    command = ("bootstrap", "/swarm/run.toml", "--host-maddrs", "/ip4/0.0.0.0/tcp/0")
    engine("run", "--detach", *place, "dupt-peer:cpu", *command)
    return corpus, address_in(engine, "first")


class Machine:
    """The volunteer's, and what they type there."""

    def __init__(self, engine: Engine, corpus: Path) -> None:
        """Start it, and wait until its service managers are up."""
        self._engine = engine
        places = ("--network", "host", "--tmpfs", "/run", "--tmpfs", "/tmp", "-v", f"{corpus}:/texts:ro")
        # What systemd needs to be process 1: to mount, and to make control groups.
        rights = ("--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined")
        groups = ("--volume", "/sys/fs/cgroup:/sys/fs/cgroup")
        engine("run", "--detach", "--name", "machine", *places, *rights, *groups, "machine")
        linger = ("docker", "exec", "machine", "loginctl", "enable-linger", "volunteer")
        soon(lambda: engine.run(*linger, timeout=60).returncode == 0, "the machine is up")
        soon(lambda: self.run("systemctl", "--user", "show")[0] == 0, "the volunteer's systemd is up")

    def run(self, *command: str, detach: bool = False) -> tuple[int, str]:
        """Exit code and output of a command of the volunteer's."""
        home = ("--env", "HOME=/home/volunteer", "--env", "XDG_RUNTIME_DIR=/run/user/1000")
        options = (
            "--user",
            "volunteer",
            "--workdir",
            "/home/volunteer",
            *home,
            *(("--detach",) if detach else ()),
        )
        done = self._engine.run("docker", "exec", *options, "machine", *command, timeout=180)
        return done.returncode, done.stdout + done.stderr

    def property(self, name: str) -> str:
        """What systemd knows of the service."""
        return self.run("systemctl", "--user", "show", "dupt-peer", "--value", f"--property={name}")[
            1
        ].strip()

    def log(self) -> str:
        """All that the service has said."""
        return self.run("journalctl", "--user", "--unit", "dupt-peer", "--output", "cat")[1]


def test_a_service_repeats_the_last_join(engine: Engine, corpus_and_address: tuple[Path, str]) -> None:
    """It trains, starts again after a crash, is installed anew, and leaves well; the state stays."""
    corpus, address = corpus_and_address
    machine = Machine(engine, corpus)
    for command, said in (("status", "no service is installed"), ("install", "nobody has joined a swarm")):
        code, output = machine.run("dupt-peer", "service", command)
        assert (code, said in output) == (1, True), output
    join = ("dupt-peer", "join", "--initial-peers", address, "--corpus", "/texts", "--name", "50% of $HOME")
    machine.run(*join, detach=True)
    kept = "/home/volunteer/.local/state/dupt_swarm/last-join.json"
    soon(lambda: machine.run("test", "-e", kept)[0] == 0, "it has joined by hand")
    soon(lambda: "training" in machine.run("dupt-peer", "status", "--health")[1], "it trains by hand")
    code, output = machine.run("dupt-peer", "service", "install")
    assert (code, "once it has left" in output) == (2, True), output
    assert machine.run("dupt-peer", "stop")[0] == 0
    soon(lambda: machine.run("dupt-peer", "service", "install")[0] == 0, "it is installed once that has left")
    assert machine.run("test", "-e", UNIT)[0] == 0
    soon(lambda: machine.log().count("averaged alone") > 1, "it trains")
    assert "from the checkpoint" in machine.log()
    code, output = machine.run("dupt-peer", "service", "status")
    assert (code, "active (running)" in output) == (0, True), output
    assert (
        '"name": "50% of $HOME"'
        in machine.run("dupt-peer", "status", "--json", "--initial-peers", address)[1]
    )

    first = machine.property("MainPID")
    assert machine.run("sh", "-c", f"kill -KILL {first}")[0] == 0
    soon(lambda: machine.property("NRestarts") == "1", "it starts again")
    soon(lambda: "training" in machine.run("dupt-peer", "status", "--health")[1], "it trains again")
    second = machine.property("MainPID")
    assert machine.run("dupt-peer", "service", "install")[0] == 0
    assert machine.property("MainPID") not in ("0", first, second)
    soon(lambda: "training" in machine.run("dupt-peer", "status", "--health")[1], "it trains once more")

    code, output = machine.run("dupt-peer", "service", "uninstall")
    assert code == 0, output
    assert machine.log().count("left the swarm; the same command resumes from the checkpoint") == 2
    assert machine.run("test", "-e", UNIT)[0] == 1
    assert machine.property("LoadState") == "not-found"
    assert machine.run("test", "-e", kept)[0] == 0
    engine("rm", "--force", "machine", "first")
