"""``dupt-peer check``: is this machine fit to join? Nothing is joined, and nothing is left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dupt_swarm.command_line.exit_codes import command_errors, message
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.command_line.printable import one_line
from dupt_swarm.disk.folders import default_state_dir
from dupt_swarm.errors import ManifestError
from dupt_swarm.manifest import Manifest
from dupt_swarm.node import commands
from dupt_swarm.settings import LISTEN_EVERYWHERE, NodeSettings, OracleSettings
from peers import options
from peers.address_options import address_options, take_addresses
from peers.checks import initial_peers as swarm
from peers.checks import machine, report
from peers.checks.report import Check


@click.command("check")
@options.initial_peers_if_any
@click.option("--manifest", type=UserPath(path_type=Path), default=None, help="The swarm's run.toml.")
@options.corpora("What `join` would train on.")
@options.data
@options.devices
@options.batch_size_that_fits
@options.gpu_memory
@options.saving
@options.max_disk
@options.swarm_id
@options.invitation
@address_options(LISTEN_EVERYWHERE)
@options.state_dir
@options.as_json
@command_errors
def command(as_json: bool, **chosen: Any) -> None:
    """Check device, memory, disk and ports; with --initial-peers the way to the swarm, too.

    It takes the options of `join` for addresses, corpus, device, memory and disk. The exit code is that of
    the most serious problem: 10 manifest or version, 11 no peer reachable, 12 not invited, 13 device or
    memory, 1 anything else.
    """
    checks = run_checks(**take_addresses(LISTEN_EVERYWHERE, chosen))
    if as_json:
        click.echo(report.to_json(checks))
    else:
        for check in checks:
            click.echo(one_line(str(check)))
    sys.exit(report.exit_code(checks))


def run_checks(
    *,
    initial_peers: tuple[str, ...],
    host_maddrs: tuple[str, ...],
    announce_maddrs: tuple[str, ...],
    manifest: Path | None,
    swarm_id: str,
    invitation: str,
    **of_machine: Any,
) -> list[Check]:
    """All checks, the network's first: they provide the manifest that the machine is checked against."""
    from dupt_swarm.node.node import Node

    own, misread = _read_manifest(manifest)
    settings = NodeSettings(
        "oracle",
        initial_peers=initial_peers,
        host_maddrs=host_maddrs,
        announce_maddrs=announce_maddrs,
        swarm_id=swarm_id,
        invitation=invitation,
    )
    with Node() as node:
        checkup = node.ask(commands.Check(settings))
    answers = [answer for answer in checkup.answers.values() if not answer.problem]
    about_manifest, known = swarm.check_manifest(own, answers, swarm_id)
    return [
        *swarm.check_network(checkup),
        *swarm.check_peers(answers),
        misread or about_manifest,
        *_check_machine(known, **of_machine),
    ]


def _read_manifest(path: Path | None) -> tuple[Manifest | None, Check | None]:
    """The manifest at ``path``, or what is wrong with it."""
    try:
        return (Manifest.load(path) if path else None), None
    except ManifestError as error:
        return None, Check("manifest", False, message(error), exit_code=report.MISMATCH)


def _check_machine(
    manifest: Manifest | None, max_disk: int | None, state_dir: Path | None, **of_oracle: Any
) -> list[Check]:
    from dupt_swarm.learning.inner import MOMENTS
    from dupt_swarm.learning.room import Saving
    from peers.checks.footprint import estimate_footprint

    oracle = options.pick(OracleSettings, of_oracle)
    about_device, device = machine.check_device(oracle.device)
    checks, needed = [about_device], None
    kind = device.partition(":")[0].partition(",")[0] or "cpu"
    moments = MOMENTS[manifest.inner.optimizer] if manifest else 0
    ways = list(Saving.ways(oracle.offload, oracle.activation_checkpointing, moments))
    devices = 1 + device.count(",")
    footprints = [
        estimate_footprint(manifest, oracle.batch_size, kind, way, devices)
        for way in ways[: None if kind == "cuda" else 1]
        if manifest
    ]
    if device:
        checks += machine.check_memory(device, footprints, oracle.gpu_memory)
    about_corpora, text_bytes = machine.check_data(oracle, manifest)
    checks += about_corpora
    if manifest:
        needed = footprints[0].disk + machine.token_bytes(text_bytes, manifest)
        needed += machine.offered_bytes(oracle, manifest)
    swarm_id = manifest.swarm_id if manifest else ""
    return [*checks, machine.check_disk(state_dir or default_state_dir(), swarm_id, needed, max_disk)]
