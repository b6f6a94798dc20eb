"""Dockerfile and compose.yaml, as far as they can be checked without Docker."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dupt_swarm.errors import AdmissionError, DeviceError, ManifestError, UsageError
from dupt_swarm.version import VERSION

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "compose.yaml"
SERVICES: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
OWN = {name for name, service in SERVICES.items() if "build" in service}
UNPINNED = re.compile(r"[^:]+(:latest)?")


def mounts(service: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Source, target and whether it is read-only, of each volume in either of the two ways to write it."""
    found = []
    for volume in service.get("volumes", []):
        if isinstance(volume, str):
            source, target, *options = volume.split(":")
            found.append((source, target, options == ["ro"]))
        else:
            found.append((volume["source"], volume["target"], volume.get("read_only", False)))
    return found


def test_the_base_image_is_pinned_by_digest() -> None:
    """A tag can be moved to another image; the digest cannot."""
    [base] = re.findall(r"^ARG BASE_IMAGE=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base)


def test_the_image_is_labelled_with_the_version() -> None:
    """The Dockerfile's version is the package's."""
    assert f"ARG VERSION={VERSION}\n" in (ROOT / "Dockerfile").read_text()


def test_docker_sees_all_that_it_copies() -> None:
    """What the Dockerfile copies is there, and .dockerignore lets it through."""
    copied = [
        source
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    assert copied
    for source in copied:
        assert (ROOT / source).exists()
        assert source.split("/")[0] in let_through, source


def test_compose_file_keeps_to_the_specification() -> None:
    """The schema of the Compose specification accepts it."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, COMPOSE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_profiles_are_those_of_the_documentation() -> None:
    """Each profile that the head of the file explains has services, and no other has."""
    head = COMPOSE.read_text().partition("\nname:")[0]
    explained = re.findall(r"^#   ([a-z-]+) ", head, re.MULTILINE)
    assert set(explained) == {profile for service in SERVICES.values() for profile in service["profiles"]}


def test_variables_are_explained_and_none_is_demanded() -> None:
    """The head of the file says what each variable is; none is required whatever the profile."""
    text = COMPOSE.read_text()
    head, _, body = text.partition("\nname:")
    used = re.findall(r"\$\{(\w+)(:-[^}]*)?\}", body)
    assert used
    for name, default in used:
        assert default, f"{name} has no default"
        assert re.search(rf"^#   {name} ", head, re.MULTILINE), f"{name} is not explained"
    assert ":?" not in body


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_pinned_and_confined(name: str) -> None:
    """A fixed tag, no privilege, a root that cannot be written, and a health check."""
    service = SERVICES[name]
    assert not UNPINNED.fullmatch(service["image"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service
    assert name in OWN or "healthcheck" in service  # our own images bring theirs


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_restarts_where_that_may_help(name: str) -> None:
    """Ours do after a failure, but for the exit codes at which systemd gives up too; others always."""
    service = SERVICES[name]
    if name not in OWN:
        assert service["restart"] == "unless-stopped"
        return
    assert service["restart"] == "on-failure"
    unit = (ROOT / "peers/systemd/dupt-peer.service").read_text()
    [final] = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    errors = (UsageError, ManifestError, AdmissionError, DeviceError)
    assert final.split() == [str(error.exit_code) for error in errors]
    tini, *arguments, program = service["entrypoint"]
    assert tini == "tini" and program in ("dupt-peer", "dupt-monitor")
    assert arguments == [*(word for code in final.split() for word in ("-e", code)), "--"]


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_mounts_is_there(name: str) -> None:
    """Bind mounts of this repository exist and are read-only; named volumes are declared."""
    declared = yaml.safe_load(COMPOSE.read_text())["volumes"]
    for source, target, read_only in mounts(SERVICES[name]):
        if source.startswith("${"):
            assert read_only, f"{target} is the owner's"
        elif source.startswith("./"):
            assert read_only, f"{target} is the repository's"
            assert (ROOT / source).exists()
        else:
            assert source in declared


def test_only_this_machine_reaches_the_monitoring() -> None:
    """Ports are published on loopback only, and Grafana wants the password that a file holds."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    assert environment["GF_SECURITY_ADMIN_PASSWORD__FILE"] == "/run/secrets/grafana-password"
    assert SERVICES["grafana"]["secrets"] == ["grafana-password"]


def test_prometheus_may_call_the_monitor_by_its_name() -> None:
    """The monitor answers to the name that its service has in the network of the containers."""
    targets = yaml.safe_load((ROOT / "monitor/prometheus/targets-compose/monitors.yml").read_text())
    names = {target.partition(":")[0] for each in targets for target in each["targets"]}
    assert names == set(SERVICES["monitor"]["environment"]["DUPT_MONITOR_ALLOW_HOST"].split())
    assert names <= set(SERVICES)


def test_only_the_gpu_peer_asks_for_gpus() -> None:
    """The profile `peer` reserves the GPUs, and its image is the one with CUDA."""
    with_devices = {name for name, service in SERVICES.items() if "deploy" in service}
    assert with_devices == {"peer"}
    cpu_index = {name: "TORCH_INDEX" in SERVICES[name]["build"].get("args", {}) for name in OWN}
    assert cpu_index == {"peer": False, "peer-cpu": True, "bootstrap": True, "monitor": False}
