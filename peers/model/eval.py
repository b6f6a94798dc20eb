"""``dupt-model eval``: measure a model on a text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.errors import UsageError
from dupt_swarm.learning.documents import Piece, Source
from dupt_swarm.learning.left_out import LeftOut, TextFiles
from peers import options
from peers.screen.progress import show_evaluation
from peers.screen.words import about_left_out

if TYPE_CHECKING:
    from torch import nn

    from dupt_swarm.learning.evaluation import Evaluation
    from dupt_swarm.models.saved_model import SavedModel


@click.command("eval")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--corpus",
    required=True,
    metavar="PATH",
    help="File, folder or glob of .txt .md .rst .py .jsonl .parquet, or .gz, or a dump of Wikipedia.",
)
@click.option(
    "--stride",
    type=int,
    default=None,
    help="Tokens that each window predicts; fewer see more before them, and take longer. "
    "[default: the context's length]",
)
@options.field
@options.language
@options.strict
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
    """
    from dupt_swarm.learning.device import choose_device
    from dupt_swarm.learning.threads import Threads
    from dupt_swarm.models.saved_model import load_model

    text = Text(options.pick(TextFiles, chosen, path=corpus))
    device = choose_device(chosen["device"])
    saved = load_model(model)
    measure = MEASURES.get(saved.manifest.model.kind, _predicted)
    threads = Threads(chosen["threads"])
    with show_evaluation(text.size) as show_bytes:

        def look(predicted: int, read: int) -> None:
            threads.adapt()
            show_bytes(text.bytes_read * predicted / max(1, read))

        found = measure(
            saved.build(device),
            saved.tokenizer,
            text.pieces(),
            stride=chosen["stride"],
            batch_size=chosen["batch_size"],
            device=device,
            look=look,
        )
    for sentence in about_left_out(text.left_out):
        click.echo(sentence, err=True)
    if saved.tokenizer.lossy:
        reason = f"the tokenizer does not keep text as it is: {saved.tokenizer.lossy}"
        click.echo(f"note: {reason}; bits per byte are of the text that it keeps", err=True)
    show = _print_json if as_json else _print
    show(saved, found, text)


def _predicted(model: nn.Module, *args: Any, **options: Any) -> Evaluation:
    """By a decoder."""
    from dupt_swarm.learning.objectives import decoder_of
    from dupt_swarm.learning.rolling import evaluate_pieces

    return evaluate_pieces(decoder_of(model), *args, **options)


def _foretold(model: nn.Module, *args: Any, stride: int | None, **options: Any) -> Evaluation:
    """By an encoder.

    Raises:
        UsageError: a stride is given.
    """
    from dupt_swarm.learning.objectives.open import encoder_of
    from dupt_swarm.learning.pseudo_likelihood import evaluate_masked_pieces

    if stride is not None:
        raise UsageError(
            "an encoder sees what is before and after each token; leave it out", setting="stride"
        )
    return evaluate_masked_pieces(encoder_of(model), *args, **options)


MEASURES = {"decoder": _predicted, "encoder": _foretold}


class Text:
    """The documents to measure on, counted as they are read.

    Attributes:
        size: bytes of all files.
        bytes_read: of the files, so far.
        documents: read so far.
        left_out: files that could not be read.
    """

    def __init__(self, files: TextFiles) -> None:
        """Find the files.

        Raises:
            CorpusError: there is no text.
        """
        files.check()
        self._files = files
        self._sources: list[Source] = files.find()
        self.size = sum(source.size for source in self._sources)
        self.bytes_read = self.documents = 0
        self.left_out: list[LeftOut] = []

    def pieces(self) -> Iterator[Piece]:
        """The documents."""
        for piece in self._files.read(self._sources, self.left_out.append):
            self.bytes_read = piece.bytes_read
            self.documents += piece.last
            yield piece


def _print(saved: SavedModel, found: Evaluation, text: Text) -> None:
    pseudo = " (pseudo)" if saved.manifest.model.bidirectional else ""
    click.echo(
        f"{saved.manifest.swarm_id}, round {saved.state.round}\n"
        f"bits per byte   {found.bits_per_byte:.4f}\n"
        f"nats per token  {found.loss_nats:.4f}\n"
        f"perplexity      {found.perplexity:.2f}{pseudo}\n"
        f"tokens          {found.tokens:,}\n"
        f"bytes           {found.bytes:,}\n"
        f"documents       {text.documents:,}"
    )


def _print_json(saved: SavedModel, found: Evaluation, text: Text) -> None:
    line = {
        "swarm_id": saved.manifest.swarm_id,
        "round": saved.state.round,
        "state_digest": saved.state.digest,
        "bits_per_byte": _finite(found.bits_per_byte),
        "loss_nats": _finite(found.loss_nats),
        "perplexity": _finite(found.perplexity),
        "tokens": found.tokens,
        "bytes": found.bytes,
        "documents": text.documents,
        "left_out": [one.path for one in text.left_out],
    }
    click.echo(json.dumps(line))


def _finite(value: float) -> float | None:
    """JSON cannot represent non-finite numbers."""
    return value if math.isfinite(value) else None
