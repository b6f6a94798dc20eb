"""``dupt-model eval``: measure a model, on what its kind takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from peers import options
from peers.model.measures.pairs import measure_encoder_decoder
from peers.model.measures.report import Machine, Measure
from peers.model.measures.text import measure_decoder, measure_encoder

MEASURES: dict[str, Measure] = {
    "decoder": measure_decoder,
    "encoder": measure_encoder,
    "encoder-decoder": measure_encoder_decoder,
}


@click.command("eval")
@click.argument("model", type=UserPath(path_type=Path))
@click.option(
    "--corpus",
    type=options.TEXT_PATH,
    required=True,
    metavar="PATH",
    help="File, folder or glob of .txt .md .rst .py .jsonl .parquet, or .gz, or a dump of Wikipedia; for an "
    "encoder-decoder a table of pairs, .csv .jsonl .parquet, or a folder of them.",
)
@click.option(
    "--stride",
    type=int,
    default=None,
    help="Tokens that each window predicts; fewer see more before them, and take longer. "
    "[default: the context's length]",
)
@options.data
@options.batch_size
@options.device
@options.threads
@options.as_json
@command_errors
def command(model: Path, corpus: str, as_json: bool, **chosen: Any) -> None:
    """Measure MODEL on a text: bits per byte, nats per token, perplexity.

    Each document begins anew, and each of its tokens is predicted once, in windows of the context's length
    that slide over it, as lm-evaluation-harness does it. Compare figures of one and the same text.

    An encoder's tokens are masked one by one, and predicted from all others: pseudo-perplexity, which takes
    long, and is not comparable with a decoder's.

    An encoder-decoder is measured on pairs, a table with the columns `source` and `target`: how well it
    predicts each token of the targets from those before it, and chrF and BLEU of what it writes by itself,
    as `dupt-model translate` does.
    """
    from dupt_swarm.learning.device import choose_device
    from dupt_swarm.learning.threads import Threads
    from dupt_swarm.models.saved_model import load_model

    device = choose_device(chosen["device"])
    saved = load_model(model)
    measure = MEASURES[saved.manifest.model.kind]
    report = measure(saved, corpus, Machine(device, Threads(chosen["threads"])), chosen)
    for note in report.notes:
        click.echo(note, err=True)
    about = saved.manifest.swarm_id, saved.state.round
    if as_json:
        named = dict(zip(("swarm_id", "round", "state_digest"), (*about, saved.state.digest), strict=True))
        click.echo(json.dumps(named | dict(report.tree)))
        return
    click.echo("{}, round {}".format(*about))
    for name, value in report.figures.items():
        click.echo(f"{name:15} {value}")
