"""``dupt-peer``: a file of this folder for each command, imported when it runs, so that --help is quick."""

from __future__ import annotations

import click

from dupt_swarm.disk.folders import keep_compiled_kernels
from dupt_swarm.version import VERSION
from peers.lazy_group import LazyGroup

COMMANDS = {
    "new": "Write a manifest: with a new tokenizer, or from a model that exists.",
    "bootstrap": "Start the first peer of a swarm, and print the command to join it.",
    "invite": "Print a token with which to join a swarm that admits by invitation.",
    "revoke": "Revoke invitations, and cut off who came by them.",
    "join": "Train as an oracle of a swarm, on its text or on your own.",
    "evaluate": "Measure each new state of a swarm, on its text or on your own.",
    "check": "Check whether this machine is fit to join.",
    "pause": "Pause a peer on this machine: it stops training for a while.",
    "resume": "Resume a paused peer.",
    "finish": "Have a peer contribute at the end of this round, then leave.",
    "stop": "Have a peer save a checkpoint and leave now.",
    "service": "Train as a service of your own, as the last `join` did.",
    "status": "Show a swarm as it is now.",
    "ledger": "Show who has given what to a swarm, ever.",
    "audit": "Compute past rounds of a swarm again.",
    "demo": "Watch a small swarm learn on this machine.",
}
TOGETHER = dict.fromkeys(("pause", "resume", "finish", "stop"), "control.owner")
TOGETHER |= {"service": "service.commands"}


@click.group(
    cls=LazyGroup,
    package="peers",
    commands=COMMANDS,
    together=TOGETHER,
    context_settings={"auto_envvar_prefix": "DUPT_PEER"},
)
@click.version_option(VERSION)
def main() -> None:
    """Train one model together: independent peers, private corpora, no central server.

    Every option can also be set by DUPT_PEER_<COMMAND>_<OPTION>.
    """
    keep_compiled_kernels()
