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
from buildah import CHROOT, Buildah

from dupt_swarm.version import VERSION

ROOT = Path(__file__).parents[2]
USER = 10001
LISTEN = ("--host-maddrs", "/ip4/127.0.0.1/tcp/0")
# With PyTorch for CPUs, and the base; 1420 when this was written.
MEGABYTES_MAX = 1700
# Docker gives 64 MB, of which nothing is needed: these are two pages.
SHARED_MEMORY = "8k"
ROUNDS = 2
DEADLINE_SECONDS = 300

pytestmark = pytest.mark.system


@dataclass(frozen=True)
class Image:
    """A container of the peer's image, in which many commands run.

    Attributes:
        buildah: which made it.
        container: its name.
        config: the image's, by Docker's names.
        shared: a folder of the host that all commands see as /swarm.
    """

    buildah: Buildah
    container: str
    config: dict[str, Any]
    shared: Path

    def command(self, *arguments: str) -> list[str]:
        """What the host executes to run something as the image's user, with next to no shared memory."""
        run = self.buildah.command(
            *("run", *CHROOT, "--volume", f"{self.shared}:/swarm"),
            *("--env", f"DUPT_TEST_RUN={os.environ['DUPT_TEST_RUN']}", "--env", "OMP_NUM_THREADS=1"),
            *(self.container, "--", *arguments),
        )
        small = f'mount -t tmpfs -o size={SHARED_MEMORY} tmpfs /dev/shm && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", small, "sh", *run]

    def run(self, *arguments: str) -> str:
        """Standard output of a command that ends well."""
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def dupt_peer(self, *arguments: str) -> str:
        """What `docker run` with these arguments prints."""
        return self.run(*self.config["Entrypoint"], *arguments)

    @contextmanager
    def started(self, log: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """`docker run` with these arguments, in the background; messages go to ``log``."""
        with log.open("w") as messages:
            process = subprocess.Popen(
                self.command(*self.config["Entrypoint"], *arguments),
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
            process.communicate(timeout=30)


def docker_stop(process: subprocess.Popen[str]) -> str:
    """SIGTERM to the container's first process, as `docker stop` does it; what it then printed."""
    [first] = [
        child for child in psutil.Process(process.pid).children(recursive=True) if child.name() == "tini"
    ]
    first.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    return output


def wait_for_rounds(oracle: subprocess.Popen[str], log: Path) -> None:
    """Wait until it has said of enough rounds that it averaged with one other."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(set(re.findall(r"  round (\d+)  .*averaged with 1 other", log.read_text()))) < ROUNDS:
        assert oracle.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The Dockerfile's target `peer`, built on a Debian made for it; removed afterwards."""
    missing = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        reason = f"{' and '.join(missing)} not installed" if missing else "it needs root"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("image")
    buildah = Buildah(folder / "storage")
    shared = folder / "swarm"
    for made in (buildah.folder, shared):
        made.mkdir()
    os.chown(shared, USER, USER)
    try:
        buildah.make_base("localhost/base", "python3", "python3-venv", "ca-certificates")
        arguments = ("--build-arg", "BASE_IMAGE=localhost/base", "--build-arg", "TORCH_INDEX=")
        buildah.build("localhost/dupt-peer", ROOT, "peer", *arguments)
        container = buildah("from", "localhost/dupt-peer", timeout=300)
        yield Image(buildah, container, buildah.config("localhost/dupt-peer"), shared)
    finally:
        buildah("rm", "--all", timeout=300)
        shutil.rmtree(folder)


def test_the_image_says_what_docker_must_know(image: Image) -> None:
    """User, entry point, volumes, health check and version are in its configuration."""
    assert image.config["User"] == f"{USER}:{USER}"
    assert image.config["Entrypoint"] == ["tini", "--", "dupt-peer"]
    assert set(image.config["Volumes"]) == {"/state", "/corpus"}
    assert image.config["Healthcheck"]["Test"] == ["CMD", "dupt-peer", "status", "--health"]
    assert image.config["Labels"]["org.opencontainers.image.version"] == VERSION


def test_the_image_holds_no_more_than_it_needs(image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither pip nor a compiler is in it; its size, which is shown, is that of PyTorch and little else."""
    root = image.buildah("mount", image.container)
    packages = next(Path(root).glob("opt/dupt/lib/python3*/site-packages"))
    sizes = subprocess.run(
        ["du", "--block-size=MB", "--summarize", root, *packages.iterdir()],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.replace(f"{packages}/", "")
    biggest = sorted(sizes.splitlines(), key=lambda line: -int(line.split("MB")[0]))[:8]
    image.buildah("umount", image.container)
    with capsys.disabled():
        print("\n" + "\n".join(biggest).replace(root, "the whole image"))
    assert int(biggest[0].split("MB")[0]) < MEGABYTES_MAX
    assert not (packages / "pip").exists()
    assert image.run("sh", "-c", "command -v gcc cc g++ clang || echo none").strip() == "none"


def test_the_image_is_used_by_nobody_special(image: Image) -> None:
    """Its user owns the state, and can change neither the program nor the system."""
    script = (
        f"test $(id -u) = {USER} && touch /state/mine && rm /state/mine && test -w /state"
        " && test ! -w /opt/dupt && test ! -w /etc && echo well"
    )
    assert image.run("sh", "-c", script).strip() == "well"


def test_help_comes_out_of_the_image(image: Image) -> None:
    """`docker run IMAGE --help` names the commands."""
    assert "join" in image.dupt_peer("--help")


@pytest.mark.usefixtures("nothing_left")
def test_two_peers_train_in_the_image(image: Image, tmp_path: Path) -> None:
    """Two joins from the image train two rounds together, without shared memory, and leave on SIGTERM."""
    for module in ("argparse", "inspect", "typing", "tarfile"):
        shutil.copy(Path(os.__file__).with_name(f"{module}.py"), image.shared)
    # A folder mounted there would be hidden: buildah, unlike Docker, puts the image's own volume on top.
    image.run("sh", "-c", "cp /swarm/*.py /corpus")
    image.dupt_peer("new", "/swarm/run.toml", "--preset", "tiny", "--corpus", "/corpus")
    make_smaller(image.shared / "run.toml")
    with ExitStack() as running:

        def start(name: str, *arguments: str) -> subprocess.Popen[str]:
            place = ("--state-dir", f"/state/{name}", *LISTEN, "--json")
            return running.enter_context(image.started(tmp_path / name, *arguments, *place))

        bootstrap = start("bootstrap", "bootstrap", "/swarm/run.toml")
        assert bootstrap.stdout is not None
        address = json.loads(bootstrap.stdout.readline())["addresses"][0]
        oracles = {
            name: start(name, "join", "--initial-peers", address, "--name", name) for name in ("one", "two")
        }
        for name, oracle in oracles.items():
            wait_for_rounds(oracle, tmp_path / name)
        summaries = [json.loads(docker_stop(oracle)) for oracle in oracles.values()]
        docker_stop(bootstrap)
        assert [process.returncode for process in (*oracles.values(), bootstrap)] == [0, 0, 0]
    assert all(summary["rounds"] >= ROUNDS for summary in summaries)
    kept = image.run("find", "/state", "-name", "replica.safetensors").splitlines()
    assert {path.split("/")[2] for path in kept} == {"bootstrap", *oracles}


def make_smaller(manifest: Path) -> None:
    """A smaller model and shorter rounds than the preset's: the image is tested, not the training."""
    smaller = {"layers": 1, "width": 64, "hidden_width": 128, "tokens_per_round": 8192}
    text = manifest.read_text()
    for key, value in smaller.items():
        text, changed = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        assert changed == 1, key
    manifest.write_text(text)
