"""``dupt-peer service``: install, uninstall and ask the service that joins as the last `join` did."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.disk.files import write_secret
from dupt_swarm.disk.folders import default_state_dir, folder_of, is_in_use
from dupt_swarm.errors import DuptError, UsageError
from peers import options
from peers.service.last_join import LastJoin
from peers.service.launchd import Launchd
from peers.service.manager import Manager
from peers.service.systemd import Systemd


def manager_here() -> Manager:
    """This machine's."""
    return Launchd() if sys.platform == "darwin" else Systemd()


@click.group("service")
def service() -> None:
    """Train as the last `join` did, as a service of your own user: with systemd, or launchd on a Mac."""


@service.command("install")
@options.state_dir
@click.option("--print", "print_", is_flag=True, help="Print what would be written, and change nothing.")
@command_errors
def install(state_dir: Path | None, print_: bool) -> None:
    """Start a service that does what the last `join` did, now and from now on.

    It takes the place of one that is there.
    """
    folder, manager = state_dir or default_state_dir(), manager_here()
    last = LastJoin.load(folder)
    if print_:
        click.echo(manager.text(last), nl=False)
        return
    manager.check()
    _check(folder, last, manager)
    manager.path.parent.mkdir(parents=True, exist_ok=True)
    write_secret(manager.path, manager.text(last))
    manager.start()
    click.echo(f"wrote {manager.path}; now runs: {shlex.join(last.command)}", err=True)
    click.echo(f"{manager.after}\nto see whether all is well: dupt-peer service status", err=True)


@service.command("uninstall")
@command_errors
def uninstall() -> None:
    """Stop the service, and remove it; what the peer has kept stays, and `join` goes on from there."""
    manager = _installed()
    manager.stop()
    manager.path.unlink(missing_ok=True)
    manager.forget()
    click.echo(f"removed {manager.path}; the peer's state stays", err=True)


@service.command("status")
@command_errors
def status() -> None:
    """Show how the service is; ends with 0 while it runs."""
    sys.exit(_installed().status())


def _installed() -> Manager:
    """The manager of a service that is installed, which can be reached."""
    manager = manager_here()
    if not manager.path.exists():
        raise DuptError(
            f"no service is installed ({manager.path} is not there); see `dupt-peer service install`"
        )
    manager.check()
    return manager


def _check(state_dir: Path, last: LastJoin, manager: Manager) -> None:
    """Whether the service could do what it should.

    Raises:
        UsageError: the folder where that was typed is gone, or another peer uses the one that it needs.
    """
    if not last.directory.is_dir():
        raise UsageError(
            f"{last.directory}, where `join` was last typed, is gone; make it, or join once more"
        )
    folder = folder_of(state_dir, last.swarm_id, "oracle")
    own = manager.runs() and manager.path.exists() and last.swarm_id in manager.path.read_text()
    if is_in_use(folder) and not own:
        raise UsageError(
            f"an oracle of {last.swarm_id} uses {folder}; end it with `dupt-peer stop`, and install the "
            "service once it has left"
        )
