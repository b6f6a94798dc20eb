"""A real Docker engine with a socket, data and, once images are built, a network of its own.

It runs in namespaces of its own: as they end, so do containers, mounts and networks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from tests.support.debian import make_tree
from tests.support.waiting import wait_until

# Of what a command says before it fails, so much is worth reading.
TAIL = 4000
# Debian's client, which brings the builder, goes with Debian's engine; another one may come first in PATH.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# What an engine makes outside of its own folder.
ELSEWHERE = tuple(map(Path, ("/etc/docker", "/run/docker", "/run/containerd")))
CGROUP = "dupt-test"
# This machine as its peers see it, for those in containers too; nothing leads anywhere else.
OWN_ADDRESS = "10.77.0.1"
NETWORK = f"""
ip link set lo up
ip link add own0 type bridge
ip address add {OWN_ADDRESS}/24 dev own0
ip link set own0 up
ip route add default dev own0
"""
# Process 1 takes care of orphans, and ends when the engine does.
FIRST_PROCESS = """
"$@" &
trap "kill $!" TERM
wait $! || wait $! || true
"""
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
TRIXIE = "http://deb.debian.org/debian trixie main"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Engine:
    """A running engine, and what `docker` does with it."""

    def __init__(self, folder: Path) -> None:
        """``folder``: gets all that it writes."""
        self.folder = folder
        config = folder / "client"
        (config / "cli-plugins").mkdir(parents=True, exist_ok=True)
        self.environment = {
            "PATH": PATH,
            "HOME": str(folder),
            "DOCKER_HOST": f"unix://{folder}/docker.sock",
            "DOCKER_CONFIG": str(config),
            "DOCKER_BUILDKIT": "1",
        }

    @contextmanager
    def running(self, *, isolated: bool) -> Iterator[None]:
        """Until the end of the block; ``isolated``: its host network is one of its own, without a way out."""
        # It ends with this process, however that ends.
        command = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        command += ["--net"] if isolated else []
        engine = ["dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none"]
        engine += ["--host", self.environment["DOCKER_HOST"], "--cgroup-parent", f"/{CGROUP}"]
        for option, name in (("data-root", "data"), ("exec-root", "exec"), ("pidfile", "exec/pid")):
            engine += [f"--{option}", str(self.folder / name)]
        script = (NETWORK if isolated else "") + FIRST_PROCESS
        new = [path for path in ELSEWHERE if not path.exists()]
        (self.folder / "exec").mkdir()
        with (self.folder / "engine.log").open("w") as log:
            self._process = subprocess.Popen(
                [*command, "sh", "-ec", script, "sh", *engine],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.environment,
            )
        try:
            wait_until(lambda: self._is_up() or self._process.poll() is not None, "the engine starts")
            assert self._process.poll() is None, (self.folder / "engine.log").read_text()[-TAIL:]
            yield
            if containers := self("ps", "--all", "--quiet").split():
                self("rm", "--force", *containers)
            os.kill(self._first_process(), signal.SIGTERM)
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait(30)
            # Its files say which process is containerd; the next engine has others of these numbers.
            for path in [self.folder / "exec", *new]:
                shutil.rmtree(path, ignore_errors=True)
            _remove_cgroups()

    def _is_up(self) -> bool:
        return self.run("docker", "info", timeout=60).returncode == 0

    def _first_process(self) -> int:
        """That of the engine's namespaces."""
        [child] = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(child)

    def __call__(
        self, *arguments: str, timeout: float = 180, variables: Mapping[str, str] | None = None
    ) -> str:
        """What `docker` with these arguments, and ``variables`` in its environment, prints to stdout."""
        done = self.run("docker", *arguments, timeout=timeout, variables=variables)
        said = (done.stdout + done.stderr)[-TAIL:]
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.returncode}\n{said}"
        return done.stdout.strip()

    def run(
        self, *command: str, timeout: float, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Any command with the engine's environment, run to its end."""
        return subprocess.run(
            command,
            env={**self.environment, **(variables or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def beside(self, *command: str) -> str:
        """What a command prints that runs on this machine, in the network of an ``isolated`` engine."""
        done = self.run("nsenter", "--target", str(self._first_process()), "--net", *command, timeout=60)
        assert done.returncode == 0, done.stderr[-TAIL:]
        return done.stdout

    def inspect(self, name: str) -> dict[str, Any]:
        """What the engine knows of a container or an image."""
        [found] = json.loads(self("inspect", name))
        answer: dict[str, Any] = found
        return answer

    def logs(self, name: str) -> str:
        """All that a container has said, to stdout and to stderr."""
        done = self.run("docker", "logs", name, timeout=60)
        return done.stdout + done.stderr

    def make_base(self, name: str, pip_conf: str, *packages: str) -> None:
        """An image of Debian bookworm with ``packages`` and this configuration of pip."""
        root = self.folder / "base"
        make_tree(root, "bookworm", *packages)
        for archive in root.glob("var/cache/apt/archives/*.deb"):
            archive.unlink()
        (root / "etc" / "pip.conf").write_text(pip_conf)
        shutil.copy(CERTIFICATES, root / "etc" / "ssl" / "certs")
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(
                ["docker", "import", "-", name],
                env=self.environment,
                stdin=tar.stdout,
                stdout=subprocess.DEVNULL,
                timeout=300,
                check=True,
            )
        shutil.rmtree(root)

    def build(self, tag: str, source: Path, target: str, base: str) -> None:
        """Build ``target`` of the Dockerfile in ``source`` with this machine's package index, on ``base``."""
        arguments = ("--build-arg", f"BASE_IMAGE={base}", "--build-arg", "TORCH_INDEX=", "--target", target)
        self("build", "--network", "host", "--tag", tag, *arguments, str(source), timeout=1800)

    def build_from(self, tag: str, dockerfile: str) -> None:
        """Build an image from no file but this one."""
        place = self.folder / "image"
        place.mkdir(exist_ok=True)
        (place / "Dockerfile").write_text(dockerfile)
        self("build", "--network", "host", "--tag", tag, str(place), timeout=900)

    def add_compose(self) -> None:
        """`docker compose`, from Debian 13: that of bookworm is of the time before it was Docker's own."""
        apt = self.folder / "apt"
        (apt / "lists" / "partial").mkdir(parents=True)
        (apt / "sources.list").write_text(f"deb [signed-by={KEYRING}] {TRIXIE}\n")
        places = {
            "Dir::State::status": "/dev/null",
            "Dir::State::lists": apt / "lists",
            "Dir::Cache": apt,
            "Dir::Etc::sourcelist": apt / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "APT::Sandbox::User": "root",
        }
        options = [f"--option={key}={value}" for key, value in places.items()]
        for action in (("update",), ("download", "docker-compose")):
            subprocess.run(
                ["apt-get", "-qq", *options, *action], cwd=apt, check=True, capture_output=True, timeout=300
            )
        [package] = apt.glob("docker-compose_*.deb")
        subprocess.run(["dpkg-deb", "--extract", package, apt / "files"], check=True, timeout=60)
        [plugin] = apt.glob("files/usr/libexec/docker/cli-plugins/docker-compose")
        shutil.copy(plugin, self.folder / "client" / "cli-plugins")


def left_by(folder: Path) -> list[str]:
    """What is left of an engine that has ended: processes, mounts and control groups."""
    commands = (" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))
    mounts = Path("/proc/mounts").read_text().splitlines()
    return [
        *(command for command in commands if str(folder) in command),
        *(mount for mount in mounts if str(folder) in mount),
        *map(str, _cgroups()),
    ]


@contextmanager
def package_index(folder: Path) -> Iterator[str]:
    """pip's configuration for a container on the host's network: it finds there what pip finds here.

    The folders that the configuration of here names are served; files that it names are not.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    options = dict(re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Served, directory=str(folder))) as server:

        def there(found: re.Match[str]) -> str:
            path = Path(found[2])
            top = path.parent if found[1] else path  # an index refers to files beside it
            link = folder / top.relative_to("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.symlink_to(top)
            return f"http://127.0.0.1:{server.server_port}{path}/"

        lines = ["[global]", "trusted-host = 127.0.0.1"]
        for key, value in options.items():
            if key not in ("cert", "constraint"):
                lines.append(f"{key} = " + re.sub(r"(?<!\S)(file://)?(/\S+)", there, value))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield "\n".join([*lines, ""])
        finally:
            server.shutdown()


class _Served(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _cgroups() -> list[Path]:
    top = Path("/sys/fs/cgroup")
    return [*top.glob(CGROUP), *top.glob(f"*/{CGROUP}")]


def _remove_cgroups() -> None:
    for top in _cgroups():
        for folder, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):  # somebody else's, or still ending
                Path(folder).rmdir()
