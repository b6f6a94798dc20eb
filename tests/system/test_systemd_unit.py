"""The unit for volunteers without Docker, judged by systemd's own tools; no systemd need be running."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lacking import skip

UNIT = Path(__file__).parents[2] / "peers" / "systemd" / "dupt-peer.service"
INSTALLED = "/opt/dupt/bin/"
EXPOSURE_MAX = 25  # tenths, of 100; 22 when this was written

pytestmark = pytest.mark.system


def systemd_analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it to its end, or skip the test where there is none."""
    program = shutil.which("systemd-analyze")
    if program is None:
        skip("systemd-analyze is not installed (Debian package systemd)")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with the program of this environment, for systemd looks whether it is there."""
    text = UNIT.read_text()
    assert f"ExecStart={INSTALLED}dupt-peer join\n" in text
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace(INSTALLED, f"{Path(sys.executable).parent}/"))
    return copy


def test_systemd_understands_the_unit(unit: Path) -> None:
    """`systemd-analyze verify` finds no unknown word and nothing missing."""
    done = systemd_analyze("verify", unit)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_is_confined(unit: Path) -> None:
    """systemd's own score of what a service could do to the machine stays low."""
    done = systemd_analyze("security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", "--no-pager", unit)
    assert done.returncode == 0, done.stdout
