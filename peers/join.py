"""``dupt-peer join``: an oracle that trains on its own corpus, or on text that the swarm offers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.errors import DuptError
from dupt_swarm.manifest.layout import count_values
from dupt_swarm.oracle.status import Status
from dupt_swarm.settings import LISTEN_EVERYWHERE, Hours, NodeSettings, OracleSettings, WeightedCorpus
from peers import options
from peers.address_options import address_options, take_addresses
from peers.checks.machine import describe_device
from peers.control.actions import PeerControl
from peers.control.socket import serve_control
from peers.interruption import Interruption
from peers.screen.facts import About
from peers.screen.log import Screen, open_screen
from peers.screen.words import about_left_out, amount
from peers.service.last_join import LastJoin

if TYPE_CHECKING:
    from dupt_swarm.learning.objectives.training import TrainingObjective
    from dupt_swarm.oracle.oracle import Oracle
    from dupt_swarm.swarm import Swarm
    from peers.metrics.collector import PeerMetrics


@click.command("join")
@options.initial_peers
@options.corpora(
    "File, folder or glob of .txt .md .rst .py .jsonl .parquet, or .gz, or a dump of Wikipedia; for a task "
    "labelled examples in .csv .jsonl .parquet."
)
@options.data
@options.devices
@options.batch_size_that_fits
@options.threads
@options.gpu_memory
@click.option(
    "--max-temperature",
    type=options.Numbers(20, 110),
    default=None,
    metavar="CELSIUS",
    help="Rest while an NVIDIA GPU is hotter. [default: no limit]",
)
@click.option(
    "--max-power",
    type=options.Numbers(10),
    default=None,
    metavar="WATTS",
    help="Rest so that an NVIDIA GPU draws no more in the mean. [default: no limit]",
)
@click.option("--compile/--no-compile", default=None, help="Use torch.compile. [default: on CUDA]")
@options.saving
@click.option("--rounds", type=click.IntRange(1), default=None, help="Stop after this many rounds.")
@click.option(
    "--checkpoint-seconds",
    type=options.Numbers(1),
    default=300.0,
    show_default=True,
    help="How often to save.",
)
@click.option(
    "--hours",
    multiple=True,
    metavar="FROM-TO",
    help="Train only in these hours, local time, such as 22-07. Repeatable. [default: always]",
)
@click.option(
    "--when-idle", is_flag=True, help="Train only while others leave this machine's cores and GPU alone."
)
@options.max_disk
@options.nice
@options.swarm_id
@options.invitation
@address_options(LISTEN_EVERYWHERE)
@options.running
@options.as_json
@command_errors
def command(initial_peers: tuple[str, ...], state_dir: Path | None, as_json: bool, **chosen: Any) -> None:
    """Join a swarm as an oracle: train its model, and average with the others.

    It trains on text that the swarm offers, or on a corpus of your own, which never leaves this machine.

    Ctrl-C saves a checkpoint and leaves; the same command resumes from it.
    """
    from peers.metrics.http import serve_metrics

    chosen = take_addresses(LISTEN_EVERYWHERE, chosen)
    chosen["hours"] = Hours.parse(chosen["hours"])
    with (
        Interruption() as interruption,
        serve_metrics(chosen["metrics_addr"]) as metrics,
        open_screen() as screen,
    ):
        screen.say("joining the swarm …")
        from dupt_swarm.learning.device import choose_devices, in_short
        from dupt_swarm.learning.objectives import check_data
        from dupt_swarm.oracle.oracle import Oracle
        from dupt_swarm.swarm import Swarm

        check_data(options.pick(OracleSettings, chosen))
        chosen["device"] = in_short(choose_devices(chosen["device"]))
        own = options.pick(OracleSettings, chosen)
        settings = options.pick(NodeSettings, chosen, role="oracle")
        os.nice(chosen["nice"])  # the node inherits it
        check = partial(check_data, own)
        with Swarm.join(initial_peers, state_dir, settings, screen.downloading, check) as swarm:
            metrics.joined(swarm, settings)
            screen.say(f"joined {swarm.manifest.swarm_id} at round {swarm.state.round}, {swarm.beginning}")
            swarm.folder.limit(chosen["max_disk"])
            control = PeerControl(swarm, "oracle", settings.name)
            with serve_control(swarm.folder.path, control.actions):
                progress = control.beaten_by(screen.preparing)
                oracle = Oracle(swarm, own, progress)
                _keep_command(swarm, screen)
                if chosen["metrics_addr"] is not None:
                    metrics.trains(oracle, own.device)
                interruption.on_stop(oracle.stop)
                control.oracle = oracle
                _begin(screen, describe(swarm, oracle, settings, own.corpora), oracle.objective)
                oracle.run(lambda status: _report(status, swarm, control, metrics, screen))
            summary = summarise(oracle)
        screen.say("left the swarm; the same command resumes from the checkpoint")
    if as_json:
        click.echo(json.dumps(summary))
    interruption.exit_if_received()


def _report(status: Status, swarm: Swarm, control: PeerControl, metrics: PeerMetrics, screen: Screen) -> None:
    control.beat(status.state, status.round, str(status.activity))
    metrics.report(status)
    screen.show(status, swarm.view, swarm.traffic)


def _keep_command(swarm: Swarm, screen: Screen) -> None:
    """Keep this command for `dupt-peer service`; if that fails, it says so and trains."""
    try:
        LastJoin.of_this_process(swarm.manifest.swarm_id).save(swarm.folder.path.parent)
    except (DuptError, OSError, ValueError) as error:
        screen.say(f"`dupt-peer service` will not know of this: {error}")


def _begin(screen: Screen, about: About, objective: TrainingObjective) -> None:
    for sentence in (*about_left_out(objective.left_out), *objective.notes):
        screen.say(sentence)
    screen.begin(about)


def describe(
    swarm: Swarm, oracle: Oracle, settings: NodeSettings, corpora: Sequence[WeightedCorpus]
) -> About:
    """What the screen shows of this peer from beginning to end."""
    return About(
        name=settings.name or f"oracle {swarm.peer_id[-8:]}",
        peer_id=swarm.peer_id,
        manifest=swarm.manifest,
        weights=count_values(swarm.layout),
        device=describe_device(settings.device),
        corpus=f"{_named(swarm, corpora)}: {amount(oracle.objective.size)} {oracle.objective.unit}",
        max_upload=settings.max_upload,
        max_download=settings.max_download,
    )


def _named(swarm: Swarm, corpora: Sequence[WeightedCorpus]) -> str:
    """The corpora on the screen; alone, what the swarm offers has its title there."""
    if len(corpora) == 1 and corpora[0].path is None:
        return swarm.manifest.offer.described
    return ", ".join(map(str, corpora))


def summarise(oracle: Oracle) -> dict[str, Any]:
    """What this session did, for ``--json``; null: it ended before that was measured, or has none.

    So is what is not finite, which JSON cannot represent.
    """
    status: Status = oracle.status()
    first, latest = status.first, status.latest
    found: dict[str, Any] = {
        "rounds": status.rounds_done,
        "failed_rounds": status.failed_rounds,
        "tokens_total": status.contributed_tokens,
        "heldout_loss_before": first and first.loss_nats,
        "heldout_loss_after": latest and latest.loss_nats,
        "bits_per_byte_before": first and first.bits_per_byte,
        "bits_per_byte_after": latest and latest.bits_per_byte,
        "accuracy_before": first and first.accuracy,
        "accuracy_after": latest and latest.accuracy,
        "nsp_accuracy_before": first and first.nsp_accuracy,
        "nsp_accuracy_after": latest and latest.nsp_accuracy,
    }
    return {name: value if value is None or math.isfinite(value) else None for name, value in found.items()}
