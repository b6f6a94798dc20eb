"""The peer's image: built from the Dockerfile, and used as its user, all without Docker."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from dupt_swarm.version import VERSION
from tests.support.buildah import Buildah
from tests.support.lacking import skip
from tests.support.programs import LISTEN
from tests.support.smaller import make_smaller

ROOT = Path(__file__).parents[2]
USER = 10001
# With PyTorch for CPUs, and the base; 1490 when this was written.
MEGABYTES_MAX = 1700
# Docker gives 64 MB, of which hivemind's locks take nine pages, 36 KB; the parameters alone would take 1 MB.
SHARED_MEMORY = "128k"
ROUNDS = 2
DEADLINE_SECONDS = 300

# Its commands have time limits of their own; to install PyTorch takes as long as the package index does.
pytestmark = [pytest.mark.system, pytest.mark.timeout(3600)]


# As compose.yaml has it: a root that cannot be written but for /tmp and the volumes, no capability and no way
# to one; and the entry point is process 1, as in Docker. `buildah run` would offer neither.
CONTAINER = f"""
set -e
root=$1 shared=$2; shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o size={SHARED_MEMORY} tmpfs "$root/dev/shm"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$shared/state" "$root/state"
mount --bind "$shared/corpus" "$root/corpus"
exec chroot "$root" setpriv --reuid={USER} --regid={USER} --clear-groups \\
    --no-new-privs --bounding-set=-all -- "$@"
"""


@dataclass(frozen=True)
class Image:
    """The files of the peer's image, in which commands run as in a container.

    Attributes:
        root: the files.
        config: what the image says of itself, by Docker's names.
        shared: has the folders `state` and `corpus`, which all commands see at their root.
    """

    root: Path
    config: dict[str, Any]
    shared: Path

    def popen(self, *arguments: str, stderr: Any) -> subprocess.Popen[str]:
        """Start a command as the image's user, with little shared memory."""
        container = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", CONTAINER, "sh")
        environment = dict(variable.split("=", 1) for variable in self.config["Env"])
        marks = {"DUPT_TEST_RUN": os.environ["DUPT_TEST_RUN"], "OMP_NUM_THREADS": "1", "HOME": "/state"}
        return subprocess.Popen(
            [*container, str(self.root), str(self.shared), *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment | marks,
        )

    def run(self, *arguments: str) -> str:
        """Standard output of a command that ends well."""
        with self.popen(*arguments, stderr=subprocess.PIPE) as process:
            output, messages = process.communicate(timeout=120)
        assert process.returncode == 0, output + messages
        return str(output)

    def dupt(self, *arguments: str) -> str:
        """What `docker run` with these arguments prints."""
        return self.run(*self.config["Entrypoint"], *arguments)

    @contextmanager
    def started(self, log: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """`docker run` with these arguments, in the background; messages go to ``log``."""
        with log.open("w") as messages:
            process = self.popen(*self.config["Entrypoint"], *arguments, stderr=messages)
        try:
            yield process
        finally:
            process.kill()  # and with it all that it started
            process.communicate(timeout=30)


def docker_stop(process: subprocess.Popen[str]) -> str:
    """SIGTERM to the container's first process, as `docker stop` does it; what it then printed."""
    [first] = psutil.Process(process.pid).children()
    first.send_signal(signal.SIGTERM)
    return process.communicate(timeout=60)[0]


def wait_for_rounds(oracle: subprocess.Popen[str], log: Path) -> None:
    """Wait until it has said of enough rounds that it averaged with one other."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(set(re.findall(r"  round (\d+)\b.*averaged with 1 other", log.read_text()))) < ROUNDS:
        assert oracle.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """A storage with a Debian to build on; removed afterwards."""
    missing = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        skip(f"{' and '.join(missing)} not installed" if missing else "it needs root")
    buildah = Buildah(tmp_path_factory.mktemp("buildah"))
    try:
        buildah.make_base("localhost/base", "python3", "python3-venv", "ca-certificates")
        yield buildah
    finally:
        buildah("rm", "--all", timeout=300)
        shutil.rmtree(buildah.folder)


def build(buildah: Buildah, target: str, shared: Path) -> Image:
    """That target of the Dockerfile, with PyTorch for CPUs if the package index here has that."""
    name = f"localhost/dupt-{target}"
    arguments = ("--build-arg", "BASE_IMAGE=localhost/base", "--build-arg", "TORCH_INDEX=")
    buildah.build(name, ROOT, target, *arguments)
    root = buildah("mount", buildah("from", name, timeout=300))
    for folder in ("state", "corpus"):
        (shared / folder).mkdir()
    os.chown(shared / "state", USER, USER)
    for module in ("argparse", "inspect", "typing", "tarfile"):
        shutil.copy(Path(os.__file__).with_name(f"{module}.py"), shared / "corpus")
    return Image(Path(root), buildah.config(name), shared)


@pytest.fixture(scope="module")
def image(buildah: Buildah, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The peer's, with real text for a corpus."""
    return build(buildah, "peer", tmp_path_factory.mktemp("peer"))


def test_the_image_says_what_docker_must_know(image: Image) -> None:
    """User, entry point, volumes, health check and version are in its configuration."""
    assert image.config["User"] == f"{USER}:{USER}"
    assert image.config["Entrypoint"] == ["tini", "--", "dupt-peer"]
    assert set(image.config["Volumes"]) == {"/state", "/corpus"}
    assert image.config["Healthcheck"]["Test"] == ["CMD", "dupt-peer", "status", "--health"]
    assert image.config["Labels"]["org.opencontainers.image.version"] == VERSION


def test_the_image_holds_no_more_than_it_needs(image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither pip nor a compiler is in it; its size, which is shown, is that of PyTorch and little else."""
    packages = next(image.root.glob("opt/dupt/lib/python3*/site-packages"))
    sizes = subprocess.run(
        ["du", "--block-size=MB", image.root], capture_output=True, text=True, check=True
    ).stdout
    parts = [line.split("MB\t") for line in sizes.splitlines()]
    megabytes = {Path(path): int(size) for size, path in parts}
    biggest = sorted(
        (path for path in megabytes if path.parent == packages), key=lambda path: -megabytes[path]
    )
    shown = [f"{megabytes[path]:6} MB {path.name}" for path in biggest[:8]]
    with capsys.disabled():
        print("\n".join(["", f"{megabytes[image.root]:6} MB in all, of which", *shown]))
    assert megabytes[image.root] < MEGABYTES_MAX
    assert not (packages / "pip").exists()
    assert image.run("sh", "-c", "command -v gcc cc g++ clang || echo none").strip() == "none"


def test_the_image_is_used_by_nobody_special(image: Image) -> None:
    """Its user owns the state, and can change neither the program nor the system."""
    script = (
        "id -u; for place in /state /tmp /corpus /opt/dupt /etc; do test -w $place && echo $place; done; true"
    )
    assert image.run("sh", "-c", script).split() == [str(USER), "/state", "/tmp"]
    assert [(image.root / place).stat().st_uid for place in ("state", "corpus", "opt/dupt")] == [
        USER,
        USER,
        0,
    ]


def test_help_comes_out_of_the_image(image: Image) -> None:
    """`docker run IMAGE --help` names the commands."""
    assert "join" in image.dupt("--help")


@pytest.mark.usefixtures("nothing_left")
def test_preflight_finds_the_image_fit(image: Image) -> None:
    """`docker run IMAGE check` has no complaint: libp2p starts, and the corpus of `join` is found."""
    said = image.dupt("check", *LISTEN)
    assert "libp2p: starts" in said
    assert "corpus: 4 files" in said


@pytest.mark.usefixtures("nothing_left")
def test_two_peers_train_in_the_image(image: Image, tmp_path: Path) -> None:
    """Two joins from the image train two rounds together, in little shared memory, and leave on SIGTERM."""
    image.dupt("new", "/state/run.toml", "--preset", "tiny", "--corpus", "/corpus")
    make_smaller(image.shared / "state" / "run.toml")
    with ExitStack() as running:

        def start(name: str, *arguments: str) -> subprocess.Popen[str]:
            place = ("--state-dir", f"/state/{name}", *LISTEN, "--json")
            return running.enter_context(image.started(tmp_path / name, *arguments, *place))

        bootstrap = start("bootstrap", "bootstrap", "/state/run.toml")
        assert bootstrap.stdout is not None
        about = bootstrap.stdout.readline()
        assert about, (tmp_path / "bootstrap").read_text()
        address = json.loads(about)["addresses"][0]
        oracles = {
            name: start(name, "join", "--initial-peers", address, "--name", name) for name in ("one", "two")
        }
        for name, oracle in oracles.items():
            wait_for_rounds(oracle, tmp_path / name)
            # The image's HEALTHCHECK, which looks in the default state folder: here each peer has its own.
            healthcheck = image.config["Healthcheck"]["Test"][1:]
            assert "round" in image.run(*healthcheck, "--state-dir", f"/state/{name}")
        summaries = [json.loads(docker_stop(oracle)) for oracle in oracles.values()]
        docker_stop(bootstrap)
        assert [process.returncode for process in (*oracles.values(), bootstrap)] == [0, 0, 0]
    assert all(summary["rounds"] >= ROUNDS for summary in summaries)
    kept = (image.shared / "state").glob("*/*/checkpoint-*/replica.safetensors")
    assert {path.parents[2].name for path in kept} == {"bootstrap", *oracles}


def test_the_monitor_has_an_image_too(buildah: Buildah, tmp_path: Path) -> None:
    """The target `monitor` starts dupt-monitor, which is asked whether it is well, on its port."""
    image = build(buildah, "monitor", tmp_path)
    assert image.config["Entrypoint"] == ["tini", "--", "dupt-monitor"]
    assert "http://127.0.0.1:9464/healthz" in image.config["Healthcheck"]["Test"][-1]
    assert set(image.config["ExposedPorts"]) == {"9464/tcp"}
    assert "DUPT_MONITOR_HOST=0.0.0.0" in image.config["Env"]
    assert "--initial-peers" in image.dupt("--help")
