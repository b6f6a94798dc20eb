"""Starting our programs as people do, for tests."""

import os
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
LISTEN = ("--host-maddrs", "/ip4/127.0.0.1/tcp/0")


def dupt_peer(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    command = [str(BIN / "dupt-peer"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | environment, check=False
    )


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start it, and let it run."""
    command = [str(BIN / "dupt-peer"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    """Read its stderr until a line has ``text``."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if text in line:
            return
    raise AssertionError(f"it ended without saying {text!r}: {''.join(seen)}")
