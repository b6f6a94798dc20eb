"""``dupt-model generate``: continue a text."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.command_line.printable import printable
from dupt_swarm.errors import UsageError
from peers import options

if TYPE_CHECKING:
    from dupt_swarm.learning.threads import Threads

STDIN = "-"


@click.command("generate")
@click.argument("model", type=UserPath(path_type=Path))
@click.option(
    "--prompt",
    default="",
    metavar="TEXT",
    help="What to continue; - reads it from stdin. [default: nothing, a text begins]",
)
@click.option("--tokens", type=int, default=200, show_default=True, help="Write so many tokens at most.")
@click.option(
    "--temperature",
    type=float,
    default=1.0,
    show_default=True,
    help="Below 1 is more careful; 0 always takes the likeliest token.",
)
@click.option(
    "--top-k", type=int, default=0, show_default=True, help="Choose among so many likeliest tokens; 0: all."
)
@click.option(
    "--top-p",
    type=float,
    default=1.0,
    show_default=True,
    help="Choose among the likeliest tokens that together have this probability.",
)
@click.option(
    "--repetition-penalty",
    type=float,
    default=1.0,
    show_default=True,
    help="Above 1 avoids tokens that were there already.",
)
@click.option("--seed", type=int, default=None, help="The same seed writes the same text. [default: random]")
@click.option(
    "--stop",
    type=options.WORDS,
    multiple=True,
    metavar="WORD",
    help="End before this word, which may be any text. Repeatable.",
)
@click.option(
    "--echo/--no-echo", default=None, help="Print the prompt first. [default: on a terminal, without --json]"
)
@options.device
@options.threads
@options.as_json
@command_errors
def command(
    model: Path, prompt: str, stop: tuple[str, ...], echo: bool | None, as_json: bool, **chosen: Any
) -> None:
    """Continue a text with MODEL, token by token, until the document ends or --tokens are written.

    Characters that a terminal would obey are printed as U+FFFD; --json has the text as it is.
    """
    from dupt_swarm.learning.device import choose_device
    from dupt_swarm.learning.generation.generate import lay_out_for_writing
    from dupt_swarm.learning.generation.sampling import Sampling
    from dupt_swarm.learning.generation.text import continue_text
    from dupt_swarm.learning.objectives import decoder_of
    from dupt_swarm.learning.threads import Threads
    from dupt_swarm.models.saved_model import load_model

    if chosen["seed"] is None:
        chosen["seed"] = random.SystemRandom().randrange(1 << 32)
    sampling = options.pick(Sampling, chosen)
    prompt = _stdin() if prompt == STDIN else prompt
    device = choose_device(chosen["device"])
    saved = load_model(model)
    decoder = decoder_of(saved.build(device))
    lay_out_for_writing(decoder)
    pieces = _adapting(
        continue_text(decoder, saved.tokenizer, prompt, sampling, stop), Threads(chosen["threads"])
    )
    if not as_json:
        _stream(pieces, prompt if (sys.stdout.isatty() if echo is None else echo) else "")
        return
    found = {
        "swarm_id": saved.manifest.swarm_id,
        "round": saved.state.round,
        "state_digest": saved.state.digest,
        "prompt": prompt,
        "text": "".join(pieces),
        "seed": sampling.seed,
    }
    click.echo(json.dumps(found))


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"stdin is not UTF-8: {error}; convert it", setting="prompt") from error


def _adapting(pieces: Iterable[str], threads: Threads) -> Iterator[str]:
    for piece in pieces:
        threads.adapt()
        yield piece


def _stream(pieces: Iterable[str], prompt: str) -> None:
    click.echo(printable(prompt), nl=False)
    try:
        for piece in pieces:
            click.echo(printable(piece), nl=False)
    finally:  # also when interrupted
        click.echo()
