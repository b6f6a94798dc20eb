"""`dupt-peer check` as a volunteer uses it."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.support.loopback import NOBODY
from tests.support.programs import LISTEN, dupt_peer

pytestmark = pytest.mark.usefixtures("nothing_left")


def found(output: str) -> dict[str, bool | None]:
    """What each check of ``--json`` came to."""
    return {check["name"]: check["ok"] for check in json.loads(output)["checks"]}


def test_a_machine_by_itself_is_fine(tmp_path: Path) -> None:
    """Without any option but the state folder: a line per check, exit code 0, and nothing is left behind."""
    done = dupt_peer("check", "--device", "cpu", *LISTEN, "--state-dir", str(tmp_path / "state"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "✓ libp2p: starts" in lines
    assert any(line.startswith("✓ device: cpu") for line in lines)
    assert any(line.startswith("– manifest: not known; give --manifest") for line in lines)
    assert not (tmp_path / "state").exists()


def test_all_is_held_against_a_running_swarm(
    bootstrap: dict[str, Any], manifest: Path, text: Path, tmp_path: Path
) -> None:
    """All is fine, and that another address is dead does not matter."""
    done = dupt_peer(
        *("check", "--initial-peers", bootstrap["address"], "--initial-peers", NOBODY, "--json"),
        *("--manifest", str(manifest), "--corpus", str(text), "--device", "cpu", *LISTEN),
        *("--state-dir", str(tmp_path / "oracle"), "--max-disk", "1GB"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checks = found(done.stdout)
    assert json.loads(done.stdout)["ok"] is True
    fine = {"libp2p", "clock", "version", "manifest", "device", "memory", "disk", "corpus"}
    assert {name for name, ok in checks.items() if ok} >= fine | {f"peer {bootstrap['address']}"}
    assert checks[f"peer {NOBODY}"] is None


def test_addresses_are_given_as_to_join(tmp_path: Path) -> None:
    """A port alone stands for all addresses with it, and what `join` refuses is refused."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        done = dupt_peer(
            *("check", "--host-port", str(port), "--public-ip", "203.0.113.7", "--json"),
            *("--state-dir", str(tmp_path)),
        )
    assert done.returncode == 1, done.stderr
    ports = {name: ok for name, ok in found(done.stdout).items() if name.startswith("port ")}
    assert ports == {f"port /ip4/0.0.0.0/tcp/{port}": False, f"port /ip4/0.0.0.0/udp/{port}/quic-v1": True}
    refused = dupt_peer("check", "--public-ip", "127.0.0.1", "--state-dir", str(tmp_path))
    assert (refused.returncode, "give the router's address" in refused.stderr) == (2, True)


def test_the_gravest_problem_decides(text: Path, tmp_path: Path) -> None:
    """A taken port alone is exit code 1; with a dead peer it is 11, and each has its own line."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"/ip4/127.0.0.1/tcp/{server.getsockname()[1]}"
        options = ("--host-maddrs", taken, "--json", "--state-dir", str(tmp_path))
        port = dupt_peer("check", *options)
        both = dupt_peer("check", *options, "--initial-peers", NOBODY, "--corpus", str(text / "missing"))
    assert port.returncode == 1
    assert found(port.stdout)[f"port {taken}"] is False
    assert both.returncode == 11
    wrong = {
        check["name"]: check["detail"] for check in json.loads(both.stdout)["checks"] if check["ok"] is False
    }
    assert wrong.keys() == {f"port {taken}", f"peer {NOBODY}", "corpus"}
    assert "refused" in wrong[f"peer {NOBODY}"]
