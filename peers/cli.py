"""``dupt-peer``: one command per file of this folder, imported when it runs, so that --help is quick."""

from __future__ import annotations

from importlib import import_module

import click

from dupt_swarm.command_line.verbosity import with_verbosity
from dupt_swarm.disk.folders import keep_compiled_kernels
from dupt_swarm.version import VERSION

COMMANDS = {
    "new": "Write a manifest and train its tokenizer.",
    "bootstrap": "Start the first peer of a swarm, and print the command to join it.",
    "join": "Train on your own corpus as an oracle of a swarm.",
    "evaluate": "Measure each new state of a swarm on a corpus of your own.",
    "check": "Check whether this machine is fit to join.",
    "pause": "Pause a peer on this machine: it stops training for a while.",
    "resume": "Resume a paused peer.",
    "finish": "Have a peer contribute at the end of this round, then leave.",
    "stop": "Have a peer save a checkpoint and leave now.",
    "status": "Show a swarm as it is now.",
    "demo": "Watch a small swarm learn on this machine.",
}


class LazyGroup(click.Group):
    """Knows its commands' names and first lines without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of first use."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, from the module of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"peers.{cmd_name}").command
        return with_verbosity(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in ``dupt-peer --help``."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"auto_envvar_prefix": "DUPT_PEER"})
@click.version_option(VERSION)
def main() -> None:
    """Train one GPT together: independent peers, private corpora, no central server.

    Every option can also be set by DUPT_PEER_<COMMAND>_<OPTION>.
    """
    keep_compiled_kernels()
