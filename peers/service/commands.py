"""``dupt-peer service``: install, uninstall and ask the service that joins as the last `join` did."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.disk.files import write_atomically
from dupt_swarm.disk.folders import default_state_dir, folder_of
from dupt_swarm.errors import DuptError, UsageError
from peers import options
from peers.control.client import ask
from peers.service.last_join import LastJoin
from peers.service.launchd import Launchd
from peers.service.systemd import Systemd


def manager_here() -> Systemd | Launchd:
    """This machine's."""
    return Launchd() if sys.platform == "darwin" else Systemd()


@click.group("service")
def service() -> None:
    """Have this machine train whenever it runs: a service of your own user, with systemd or launchd."""


@service.command("install")
@options.state_dir
@click.option("--print", "only_print", is_flag=True, help="Print what would be written, and change nothing.")
@command_errors
def install(state_dir: Path | None, only_print: bool) -> None:
    """Start a service that does what the last `join` did, now and from now on.

    It takes the place of one that is there.
    """
    folder, manager = state_dir or default_state_dir(), manager_here()
    last = LastJoin.load(folder)
    if only_print:
        click.echo(manager.text(last), nl=False)
        return
    manager.check()
    if not manager.runs():
        _check_free(folder, last.swarm_id)
    manager.path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(manager.path, lambda path: _write(path, manager.text(last)))
    manager.start()
    click.echo(f"wrote {manager.path}, and started it: {' '.join(last.command)}", err=True)
    click.echo(manager.after, err=True)


@service.command("uninstall")
@command_errors
def uninstall() -> None:
    """Stop the service, and remove it; what the peer has kept stays, and `join` goes on from there."""
    manager = _installed()
    manager.check()
    manager.stop()
    manager.path.unlink(missing_ok=True)
    manager.forget()
    click.echo(f"removed {manager.path}; the peer's state stays", err=True)


@service.command("status")
@command_errors
def status() -> None:
    """Show how the service is; ends with 0 while it runs."""
    manager = _installed()
    manager.check()
    sys.exit(manager.status())


def _installed() -> Systemd | Launchd:
    manager = manager_here()
    if not manager.path.exists():
        raise DuptError(
            f"no service is installed ({manager.path} is not there); see `dupt-peer service install`"
        )
    return manager


def _check_free(state_dir: Path, swarm_id: str) -> None:
    """Two would want the same folder.

    Raises:
        UsageError: an oracle uses it now.
    """
    try:
        ask(folder_of(state_dir, swarm_id, "oracle"), "status")
    except OSError:
        return
    raise UsageError(
        f"an oracle of {swarm_id} runs here; end it with `dupt-peer stop`, then install the service"
    )


def _write(path: Path, text: bytes) -> None:
    path.touch(0o600)
    path.write_bytes(text)
