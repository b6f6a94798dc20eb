"""The images and compose.yaml on a real Docker engine, as a volunteer uses them.

What needs an NVIDIA runtime is not here: `--gpus all`, and compose's profile `peer`. Neither are the images
of Grafana, and of Prometheus, for which Debian's program stands in: tests get no images from a registry.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest

from dupt_swarm.version import VERSION
from tests.support.containers import CAREFUL, ROOT, USER, address_in, new_swarm, readable, soon
from tests.support.docker import Engine

# With PyTorch for CPUs, and the base; 1470 when this was written.
MEGABYTES_MAX = 1700
# Docker gives 64 MB, of which hivemind's locks take nine pages, 36 KB; the parameters alone would take 1 MB.
LITTLE_SHARED_MEMORY = "128k"
STOP_SECONDS = 120  # of the volunteer's guide
ROUND = re.compile(r"  round (\d+)\b.*averaged with 1 other")

# Its commands have time limits of their own; to install PyTorch takes as long as the package index does.
pytestmark = [pytest.mark.system, pytest.mark.timeout(3600)]


def in_image(engine: Engine, *command: str) -> str:
    """What a command of the image's system prints, in a careful container."""
    entry = ("--entrypoint", command[0])
    return engine("run", "--rm", "--network", "none", *CAREFUL, *entry, "dupt-peer:cpu", *command[1:])


def test_the_image_says_what_docker_must_know(engine: Engine) -> None:
    """User, entry point, volumes, health check and version are in its configuration."""
    config = engine.inspect("dupt-peer:cpu")["Config"]
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == ["tini", "--", "dupt-peer"]
    assert set(config["Volumes"]) == {"/state", "/corpus"}
    assert config["Healthcheck"]["Test"] == ["CMD", "dupt-peer", "status", "--health"]
    assert config["Labels"]["org.opencontainers.image.version"] == VERSION


def test_the_image_holds_no_more_than_it_needs(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither pip nor a compiler is in it; its size, which is shown, is that of PyTorch and little else."""
    [packages] = in_image(engine, "sh", "-c", "echo /opt/dupt/lib/python3*/site-packages").split()
    listed = in_image(engine, "du", "--block-size=MB", "--max-depth=1", packages).splitlines()
    biggest = sorted(listed, key=lambda line: -int(line.split("MB")[0]))[1:9]
    megabytes = engine.inspect("dupt-peer:cpu")["Size"] / 1e6
    with capsys.disabled():
        print("\n".join(["", f"{megabytes:.0f} MB in all, of which", *biggest]))
    assert megabytes < MEGABYTES_MAX
    assert not any(line.endswith("/pip") for line in listed)
    compilers = in_image(engine, "sh", "-c", "for each in gcc cc g++ clang; do command -v $each; done; true")
    assert compilers == ""


def test_the_image_is_used_by_nobody_special(engine: Engine) -> None:
    """Its user owns the state, and can change neither the program nor the system."""
    script = (
        "id -u; for place in /state /tmp /corpus /opt/dupt /etc; do test -w $place && echo $place; done; "
        "stat --format %u /state /corpus /opt/dupt"
    )
    entry = ("--entrypoint", "sh", "dupt-peer:cpu", "-c", script)
    said = engine("run", "--rm", "--network", "none", *entry).split()
    assert said == [str(USER), "/state", "/tmp", "/corpus", str(USER), str(USER), "0"]


def test_help_comes_out_of_the_image(engine: Engine) -> None:
    """`docker run IMAGE --help` names the commands."""
    assert "join" in engine("run", "--rm", "dupt-peer:cpu", "--help")


@dataclass(frozen=True)
class Swarm:
    """A small one whose first peer is compose.yaml's.

    Attributes:
        folder: has its manifest; compose's variable `DUPT_SWARM`.
        corpus: a folder of text, `DUPT_CORPUS`.
        address: of the first peer.
    """

    engine: Engine
    folder: Path
    corpus: Path
    address: str

    def compose(self, *arguments: str) -> str:
        """`docker compose` in the project's folder."""
        settings = {
            "DUPT_INITIAL_PEERS": self.address,
            "DUPT_CORPUS": str(self.corpus),
            "DUPT_SWARM": str(self.folder),
        }
        files = ("--file", str(ROOT / "compose.yaml"))
        return self.engine("compose", *files, *arguments, variables=settings)

    def join(self, name: str, *options: str) -> None:
        """As the volunteer's guide has it, but for the GPU."""
        places = ("-v", f"{name}:/state", "-v", f"{self.corpus}:/corpus:ro")
        waits = ("--network", "host", "--stop-timeout", str(STOP_SECONDS))
        command = ("dupt-peer:cpu", "join", "--initial-peers", self.address, "--name", name)
        self.engine("run", "--detach", "--name", name, *waits, *places, *options, *command)

    def healthy(self, container: str) -> None:
        """Wait until its health check says so."""

        def is_healthy() -> bool:
            return bool(self.engine.inspect(container)["State"]["Health"]["Status"] == "healthy")

        soon(is_healthy, f"{container} is healthy")

    def rounds(self, container: str) -> set[str]:
        """Numbers of those that it has averaged with one other."""
        return set(ROUND.findall(self.engine.logs(container)))


@pytest.fixture(scope="module")
def swarm(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Its first peer is that of compose.yaml, and runs."""
    folder = readable(tmp_path_factory.mktemp("swarm"))
    corpus = new_swarm(engine, folder / "own")
    swarm = Swarm(engine, folder / "own", corpus, "")
    swarm.compose("--profile", "bootstrap", "up", "--detach", "--no-build")
    yield Swarm(engine, folder / "own", corpus, address_in(engine, "dupt-bootstrap-1"))
    engine("rm", "--force", "dupt-bootstrap-1")


def test_preflight_finds_the_image_fit(swarm: Swarm) -> None:
    """`docker run IMAGE check` has no complaint: libp2p starts, and the corpus of `join` is found."""
    place = ("-v", f"{swarm.corpus}:/corpus:ro")
    said = swarm.engine("run", "--rm", "--network", "host", *CAREFUL, *place, "dupt-peer:cpu", "check")
    assert "libp2p: starts" in said
    assert re.search(r"corpus: \d+ files", said)


def test_a_volunteer_joins_stops_and_comes_back(swarm: Swarm, capsys: pytest.CaptureFixture[str]) -> None:
    """Two run the guide's line: they average, are healthy, stop, resume, survive a kill."""
    engine, began = swarm.engine, time.monotonic()
    swarm.join("one")
    swarm.join("two", "--shm-size", LITTLE_SHARED_MEMORY)
    soon(lambda: swarm.rounds("one"), "a round of both")
    with capsys.disabled():
        print(f"\n{time.monotonic() - began:.0f} s from `docker run` to the first averaged round")
    for name in ("one", "two", "dupt-bootstrap-1"):
        swarm.healthy(name)

    engine("stop", "one")
    state, said = engine.inspect("one")["State"], engine.logs("one")
    assert state["ExitCode"] == 0
    assert said.endswith("left the swarm; the same command resumes from the checkpoint\n")
    engine("rm", "one")
    swarm.join("one")
    soon(lambda: swarm.rounds("one"), "a round of both after the stop")
    assert re.search(r"joined \S+ at round [1-9]\d*, from the checkpoint", engine.logs("one"))

    engine("kill", "one")
    assert engine.inspect("one")["State"]["ExitCode"] == 137
    engine("rm", "one")
    swarm.join("one")
    soon(lambda: swarm.rounds("one"), "a round of both after it was killed")
    engine("stop", "one", "two")
    assert [engine.inspect(name)["State"]["ExitCode"] for name in ("one", "two")] == [0, 0]
    engine("rm", "one", "two")


def test_compose_starts_again_what_failed(swarm: Swarm) -> None:
    """The profile `peer-cpu` trains; when its program dies, the container starts again and resumes."""
    engine, container = swarm.engine, "dupt-peer-cpu-1"
    swarm.compose("--profile", "peer-cpu", "up", "--detach", "--no-build")
    soon(lambda: "averaged alone" in engine.logs(container), "a round")
    engine("exec", container, "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
    soon(lambda: engine.inspect(container)["RestartCount"] == 1, "it starts again")
    soon(lambda: engine.logs(container).count("joining the swarm") == 2, "it joins again")
    soon(lambda: "averaged alone" in engine.logs(container).split("joining the swarm")[-1], "another round")
    swarm.compose("--profile", "peer-cpu", "stop", "peer-cpu")
    assert engine.inspect(container)["State"]["ExitCode"] == 0
    assert engine.logs(container).endswith("left the swarm; the same command resumes from the checkpoint\n")
    swarm.compose("--profile", "peer-cpu", "rm", "--force", "peer-cpu")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["join", "--nice", "99"], 2, "'--nice'"),
        (["join", "--swarm", "run-000000000000"], 10, "run-000000000000"),
        (["join", "--device", "cuda"], 13, "cuda"),
    ],
)
def test_compose_gives_up_where_nothing_gets_better(
    swarm: Swarm, tmp_path: Path, command: list[str], code: int, said: str
) -> None:
    """Wrong usage, another swarm and an unsuitable device are said once."""
    assert_gives_up(swarm, tmp_path, command, code, said)


def test_compose_gives_up_without_an_invitation(swarm: Swarm, tmp_path: Path) -> None:
    """Nobody lets it in, however often it asks."""
    folder, engine = swarm.folder.with_name("invited"), swarm.engine
    new_swarm(engine, folder, "--admission", "invite")
    options = ("--network", "host", "--volume", f"{folder}:/swarm")
    command = ("bootstrap", "/swarm/run.toml", "--host-maddrs", "/ip4/0.0.0.0/tcp/0")
    engine("run", "--detach", "--name", "inviting", *options, "dupt-peer:cpu", *command)
    address = address_in(engine, "inviting")
    assert_gives_up(swarm, tmp_path, ["join", "--initial-peers", address], 12, "invitation")
    engine("rm", "--force", "inviting")


def assert_gives_up(swarm: Swarm, folder: Path, command: list[str], code: int, said: str) -> None:
    """Started by compose it ends with 0, so that Docker lets it be; by itself with ``code``, and says why."""
    engine, container = swarm.engine, "dupt-peer-cpu-1"
    other = folder / "other.yaml"
    other.write_text(json.dumps({"services": {"peer-cpu": {"command": command}}}))
    swarm.compose("--file", str(other), "--profile", "peer-cpu", "up", "--detach", "--no-build", "peer-cpu")
    soon(lambda: engine.inspect(container)["State"]["Status"] == "exited", "it ends")
    state = engine.inspect(container)
    assert said in engine.logs(container)
    assert (state["State"]["ExitCode"], state["RestartCount"]) == (0, 0)
    swarm.compose("--profile", "peer-cpu", "rm", "--force", "peer-cpu")
    options = ("--rm", "--network", "host", "-v", f"{swarm.corpus}:/corpus:ro")
    address = ("--env", f"DUPT_PEER_JOIN_INITIAL_PEERS={swarm.address}")
    done = engine.run("docker", "run", *options, *address, "dupt-peer:cpu", *command, timeout=120)
    assert done.returncode == code, done.stderr


def test_compose_watches_the_swarm(swarm: Swarm) -> None:
    """The profile `monitor`: the page is on the port of this machine, and Prometheus finds the exporter."""
    engine = swarm.engine
    swarm.compose("--profile", "monitor", "up", "--detach", "--no-build", "monitor", "prometheus")

    def page(place: str) -> str:
        script = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=30).read().decode())"
        return engine.beside(sys.executable, "-c", script, f"http://127.0.0.1:{place}")

    def value(expression: str) -> str:
        found = json.loads(page(f"9090/api/v1/query?{urlencode({'query': expression})}"))["data"]["result"]
        return found[0]["value"][1] if found else ""

    for name in ("dupt-monitor-1", "dupt-prometheus-1"):
        swarm.healthy(name)
    assert page("9464/healthz").strip() == "ok"
    assert "<title>" in page("9464/")
    soon(
        lambda: value('sum(dupt_swarm_peers{role="bootstrap"})') == "1",
        "Prometheus has the swarm's first peer",
    )
    swarm.compose("--profile", "monitor", "rm", "--stop", "--force", "monitor", "prometheus")
