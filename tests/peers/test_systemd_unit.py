"""The unit for volunteers without Docker, as far as it can be checked without systemd's tools."""

import subprocess
from pathlib import Path

UNIT = Path(__file__).parents[2] / "peers" / "systemd" / "dupt-peer.service"


def test_the_recipe_hides_the_token(tmp_path: Path) -> None:
    """The command that its head gives makes a file that nobody else can read, whatever the umask."""
    [line] = [line for line in UNIT.read_text().splitlines() if line.startswith("#   sudo install ")]
    command = line.partition("sudo ")[2].partition("  ")[0].replace("/etc", str(tmp_path))
    subprocess.run(["sh", "-c", f"umask 0; {command}"], input=b"TOKEN=1\n", check=True, timeout=60)
    made = tmp_path / "dupt-peer.env"
    assert (made.read_bytes(), made.stat().st_mode & 0o777) == (b"TOKEN=1\n", 0o600)
