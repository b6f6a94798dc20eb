"""``dupt-model fill``: what is likeliest where a text has a gap."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.command_line.printable import printable
from peers import options


@click.command("fill")
@click.argument("model", type=UserPath(path_type=Path))
@click.option(
    "--text", required=True, help='With [MASK] where a word is to be predicted: "The capital is [MASK]".'
)
@click.option(
    "--most", type=click.IntRange(1), default=5, show_default=True, help="The likeliest so many of each."
)
@options.device
@options.as_json
@command_errors
def command(model: Path, text: str, most: int, device: str, as_json: bool) -> None:
    """Let MODEL, an encoder, say which tokens are likeliest at each [MASK] of a text, with probabilities."""
    from dupt_swarm.learning.device import choose_device
    from dupt_swarm.learning.generation.filling import fill
    from dupt_swarm.learning.objectives import encoder_of
    from dupt_swarm.models.saved_model import load_model

    chosen = choose_device(device)
    saved = load_model(model)
    found = fill(encoder_of(saved.build(chosen)), saved.tokenizer, text, most)
    if as_json:
        gaps = [[guess._asdict() for guess in gap] for gap in found]
        line = {"swarm_id": saved.manifest.swarm_id, "round": saved.state.round, "text": text, "gaps": gaps}
        click.echo(json.dumps(line))
        return
    for number, gap in enumerate(found, start=1):
        if len(found) > 1:
            click.echo(f"{number}. [MASK]")
        for guess in gap:
            shown = guess.text.replace("\n", "⏎") or "␣"  # a line break, and a space
            click.echo(f"{guess.probability:7.2%}  {printable(shown)}")
