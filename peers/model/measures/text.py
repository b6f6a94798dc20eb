"""A text, whose tokens a decoder predicts one after another, and an encoder each from all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.documents import Piece
from dupt_swarm.learning.left_out import LeftOut, TextFiles
from peers import options
from peers.model.measures.report import Machine, Report, finite
from peers.screen.progress import show_evaluation
from peers.screen.words import about_left_out

if TYPE_CHECKING:
    from dupt_swarm.learning.evaluation import Evaluation
    from dupt_swarm.models.saved_model import SavedModel


def measure_decoder(saved: SavedModel, corpus: str, machine: Machine, chosen: dict[str, Any]) -> Report:
    """How well a decoder predicts a text; see `Measure`.

    Raises:
        CorpusError: there is no text, or it cannot be read.
        UsageError: an option does not go with a text, or is impossible.
    """
    from dupt_swarm.learning.objectives import decoder_of
    from dupt_swarm.learning.rolling import evaluate_pieces

    measure = partial(evaluate_pieces, decoder_of(saved.build(machine.device)), stride=chosen["stride"])
    return _report(saved, corpus, machine, chosen, measure)


def measure_encoder(saved: SavedModel, corpus: str, machine: Machine, chosen: dict[str, Any]) -> Report:
    """How well an encoder predicts a text; see `Measure`. Perplexity is another one (Salazar et al. 2020).

    Raises:
        CorpusError: there is no text, or it cannot be read.
        UsageError: an option does not go with a text, or is impossible: an encoder takes no stride.
    """
    from dupt_swarm.learning.objectives import encoder_of
    from dupt_swarm.learning.pseudo_likelihood import evaluate_masked_pieces

    if chosen["stride"] is not None:
        raise UsageError(
            "an encoder sees what is before and after each token; leave it out", setting="stride"
        )
    measure = partial(evaluate_masked_pieces, encoder_of(saved.build(machine.device)))
    return _report(saved, corpus, machine, chosen, measure, " (pseudo)")


class Text:
    """The documents to measure on, counted as they are read.

    Attributes:
        size: bytes of all files.
        bytes_read: of the files, so far.
        documents: read so far.
        left_out: files that could not be read.
    """

    def __init__(self, corpus: str, chosen: dict[str, Any]) -> None:
        """Find the files at a path.

        Raises:
            CorpusError: there is no text.
            UsageError: columns are renamed, of which a text has none.
        """
        if chosen["columns"]:
            raise UsageError("text has no columns; leave them out", setting="columns")
        self._files = options.pick(TextFiles, chosen, path=corpus)
        self._files.check()
        self._sources = self._files.find()
        self.size = sum(source.size for source in self._sources)
        self.bytes_read = self.documents = 0
        self.left_out: list[LeftOut] = []

    def pieces(self) -> Iterator[Piece]:
        """The documents."""
        for piece in self._files.read(self._sources, self.left_out.append):
            self.bytes_read = piece.bytes_read
            self.documents += piece.last
            yield piece


def _report(
    saved: SavedModel,
    corpus: str,
    machine: Machine,
    chosen: dict[str, Any],
    measure: Callable[..., Evaluation],
    remark: str = "",
) -> Report:
    """What ``measure`` finds, while a bar shows how far it is; the remark belongs to the perplexity."""
    text = Text(corpus, chosen)
    with show_evaluation(text.size) as show_bytes:

        def look(predicted: int, read: int) -> None:
            machine.threads.adapt()
            show_bytes(text.bytes_read * predicted / max(1, read))

        found = measure(
            saved.tokenizer, text.pieces(), batch_size=chosen["batch_size"], device=machine.device, look=look
        )
    notes = [*about_left_out(text.left_out)]
    if saved.tokenizer.lossy:
        reason = f"the tokenizer does not keep text as it is: {saved.tokenizer.lossy}"
        notes.append(f"note: {reason}; bits per byte are of the text that it keeps")
    figures = {
        "bits per byte": f"{found.bits_per_byte:.4f}",
        "nats per token": f"{found.loss_nats:.4f}",
        "perplexity": f"{found.perplexity:.2f}{remark}",
        "tokens": f"{found.tokens:,}",
        "bytes": f"{found.bytes:,}",
        "documents": f"{text.documents:,}",
    }
    tree = {
        "bits_per_byte": finite(found.bits_per_byte),
        "loss_nats": finite(found.loss_nats),
        "perplexity": finite(found.perplexity),
        "tokens": found.tokens,
        "bytes": found.bytes,
        "documents": text.documents,
        "left_out": [one.path for one in text.left_out],
    }
    return Report(figures, tree, notes)
