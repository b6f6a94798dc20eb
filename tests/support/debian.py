"""Trees of Debian, made on the spot."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.support.lacking import skip


def need(*programs: str) -> None:
    """Skip the test where these are not installed, or this is not root."""
    if missing := [name for name in programs if shutil.which(name) is None]:
        skip(f"{' and '.join(missing)} not installed")
    if os.geteuid() != 0:
        skip("it needs root")


def make_tree(root: Path, suite: str, *packages: str) -> None:
    """A small system with ``packages`` at ``root``; takes a minute or two."""
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
