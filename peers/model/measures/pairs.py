"""Pairs of texts: how well an encoder-decoder predicts the targets, and what it writes by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dupt_swarm.disk.home import expanded
from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.generation.overlap import lacks_for_overlap, overlap
from dupt_swarm.learning.labelled.files import SUPPORTED, LabelledFiles, is_table
from dupt_swarm.learning.quality import Quality
from peers.model.measures.report import Machine, Report, finite
from peers.screen.progress import show_evaluation
from peers.screen.words import number, plural

if TYPE_CHECKING:
    from dupt_swarm.learning.labelled.pairs import Pairs
    from dupt_swarm.learning.tokenizer import Tokenizer
    from dupt_swarm.learning.transformer.encoder_decoder import EncoderDecoder
    from dupt_swarm.models.saved_model import SavedModel


def measure_encoder_decoder(
    saved: SavedModel, corpus: str, machine: Machine, chosen: dict[str, Any]
) -> Report:
    """How well an encoder-decoder writes; see `Measure`. Beam search is as in `translate` by default.

    Raises:
        CorpusError: there is no table, or a row is no pair of texts.
        UsageError: a stride is given, or a column is renamed that pairs lack.
    """
    from dupt_swarm.learning.evaluation import perplexity
    from dupt_swarm.learning.labelled.pairs import load_pairs
    from dupt_swarm.learning.objectives import writer_of

    tables, at_once = _tables(corpus, chosen), chosen["batch_size"]
    pairs = load_pairs(tables, saved.tokenizer, saved.manifest.model.context_length)
    model = writer_of(saved.build(machine.device))
    found = _predicted(model, pairs, machine, at_once)
    lacking = lacks_for_overlap()
    scores = {} if lacking else _overlap(model, saved.tokenizer, tables, machine, at_once)
    notes = [f"note: chrF and BLEU were not measured: {lacking}"] if lacking else []
    if pairs.truncated:
        notes.append(f"note: {plural(pairs.truncated, 'pair')} cut to the model's context")
    if pairs.empty:
        notes.append(f"note: {plural(pairs.empty, 'row')} with an empty text left out")
    assert found.accuracy is not None
    figures = {
        "nats per token": f"{found.loss_nats:.4f}",
        "perplexity": f"{perplexity(found.loss_nats):.2f}",
        "token accuracy": f"{found.accuracy:.4f}",
        **{name: number(value) for name, value in scores.items()},
        "tokens": f"{found.counts['tokens']:,}",
        "pairs": f"{len(pairs):,}",
    }
    tree = {
        "loss_nats": finite(found.loss_nats),
        "perplexity": finite(perplexity(found.loss_nats)),
        "accuracy": found.accuracy,
        "chrf": scores.get("chrF"),
        "bleu": scores.get("BLEU"),
        "tokens": found.counts["tokens"],
        "pairs": len(pairs),
        "truncated": pairs.truncated,
        "left_out": pairs.empty,
    }
    return Report(figures, tree, notes)


def _predicted(model: EncoderDecoder, pairs: Pairs, machine: Machine, at_once: int) -> Quality:
    """How well the targets are predicted, each token from those before it."""
    from dupt_swarm.learning.objectives.seq2seq import evaluate_pairs

    with show_evaluation(len(pairs)) as show:

        def look(done: int, _: int) -> None:
            machine.threads.adapt()
            show(min(done * at_once, len(pairs)))

        return evaluate_pairs(model, pairs.in_order(at_once, look), machine.device)


def _overlap(
    model: EncoderDecoder, tokenizer: Tokenizer, tables: LabelledFiles, machine: Machine, at_once: int
) -> dict[str, float]:
    """chrF and BLEU of what beam search writes for the sources."""
    from dupt_swarm.learning.generation.beam import BeamSearch
    from dupt_swarm.learning.generation.translate import translate
    from dupt_swarm.learning.labelled.pairs import read_pairs

    sources, targets = zip(*read_pairs(tables), strict=True)
    with show_evaluation(len(sources)) as show:

        def look(done: int, _: int) -> None:
            machine.threads.adapt()
            show(done)

        texts = translate(model, tokenizer, sources, BeamSearch(), at_once=at_once, look=look)
    return overlap([one.text for one in texts], targets)


def _tables(corpus: str, chosen: dict[str, Any]) -> LabelledFiles:
    """The pairs at a path."""
    if chosen["stride"] is not None:
        raise UsageError(
            "of a pair each token of the target is predicted once; leave it out", setting="stride"
        )
    path = expanded(corpus)
    if path.exists() and not is_table(path):
        raise CorpusError(
            f"{corpus}: an encoder-decoder is measured on a table of pairs, with the columns `source` and "
            f"`target`; give one of {SUPPORTED}"
        )
    return LabelledFiles(path, chosen["columns"])
