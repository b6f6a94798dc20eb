"""Running Python as somebody whom permissions bind, which they do not do to root."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.lacking import skip

# What lets root look and write where it may not.
RIGHTS = "-dac_override,-dac_read_search"


def run_as_ordinary(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python to its end, where our packages are found, without root's rights over files."""
    command = [sys.executable, *arguments]
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            skip("root needs setpriv to be bound by permissions")
        command = ["setpriv", f"--bounding-set={RIGHTS}", *command]
    paths = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(command, cwd=cwd, env=paths, capture_output=True, text=True, timeout=300)
