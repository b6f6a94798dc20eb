"""buildah with a storage of its own, so that tests can build and use images without Docker."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Of what a command says before it fails, so much is worth reading.
TAIL = 4000
# Before it runs anything, buildah copies itself into sealed memory, which a busy kernel refuses now and then.
BUSY, TRIES = "sealing memfd copy: Device or resource busy", 3


@dataclass(frozen=True)
class Buildah:
    """Runs buildah with images and containers in ``folder``."""

    folder: Path

    def command(self, *arguments: str) -> list[str]:
        """What to execute."""
        storage = ("--root", f"{self.folder}/root", "--runroot", f"{self.folder}/run")
        return ["buildah", *storage, "--storage-driver", "vfs", *arguments]

    def __call__(self, *arguments: str, timeout: float = 120) -> str:
        """Run a command to its end; its output, without white space around it."""
        command = self.command(*arguments)
        for _ in range(TRIES):
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
            if BUSY not in done.stderr:
                break
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.returncode}\n{said[-TAIL:]}"
        return done.stdout.strip()

    def make_base(self, name: str, *packages: str) -> None:
        """An image of Debian bookworm with ``packages``, without what only its making needed."""
        container = self("from", "scratch")
        root = self("mount", container)
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", "bookworm", root]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout[-TAIL:]
        for archive in Path(root).glob("var/cache/apt/archives/*.deb"):
            archive.unlink()
        self("umount", container)
        self("commit", "--quiet", "--rm", container, name, timeout=300)

    def build(self, name: str, source: Path, target: str, *arguments: str) -> None:
        """Build ``target`` of the Dockerfile in ``source`` with this machine's package index."""
        self(
            *("build", "--isolation", "chroot", "--format", "docker", "--target", target, "--tag", name),
            *(*own_index(self.folder), *arguments, str(source)),
            timeout=1200,
        )

    def config(self, name: str) -> dict[str, Any]:
        """What the image says of itself, by Docker's names."""
        config: dict[str, Any] = json.loads(self("inspect", "--type", "image", name))["Docker"]["config"]
        return config


def own_index(folder: Path) -> list[str]:
    """Arguments of `build` with which pip finds in a container what it finds here.

    Its configuration becomes one file in ``folder``; what that names is mounted.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    options = dict(re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    if not options:
        return []
    lines = ["[global]", *(f"{key} = {value}" for key, value in options.items())]
    (folder / "pip.conf").write_text("\n".join(lines) + "\n")
    named = re.findall(r"(?:^|\s|file://)(/\S+)", "\n".join(options.values()))
    # Two levels down: an index refers to files beside it.
    mounted = sorted({Path(*Path(path).parts[:3]) for path in named})
    volumes = [f"{folder}/pip.conf:/etc/pip.conf:ro", *(f"{path}:{path}:ro" for path in mounted)]
    return [argument for volume in volumes for argument in ("--volume", volume)]
