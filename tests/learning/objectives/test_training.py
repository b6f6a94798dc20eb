"""What an oracle is handed: an objective with this machine's data."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.batches import Batches
from dupt_swarm.learning.interruptible import Abandoned
from dupt_swarm.learning.objectives import build_model, check_data, kind_of, tables
from dupt_swarm.learning.objectives.language import Language
from dupt_swarm.learning.objectives.scores import evaluate_task
from dupt_swarm.learning.objectives.task import SupervisedTask
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest, Objective
from dupt_swarm.settings import EvaluatorSettings, OracleSettings, WeightedCorpus
from tests.support.foreign_tokenizers import KINDS
from tests.support.saved_models import TEXT, small_tokenizer
from tests.support.tasks import small_task, two_languages, write_lines
from tests.support.tiny import tiny_manifest

CPU = torch.device("cpu")
LANGUAGES = Objective(kind="classification", labels=["de", "en"])
SCORES = Objective(kind="similarity")


def no_look(done: int, total: int) -> None:
    """Nobody looks in."""


def task_of(objective: Objective, data: Path, **settings: Any) -> tuple[SupervisedTask, TaskModel]:
    manifest, model = small_task(objective)
    opened = kind_of(manifest).open(
        manifest, small_tokenizer(), OracleSettings(data, **settings), data.parent
    )
    assert isinstance(opened, SupervisedTask)
    return opened, model


@pytest.fixture
def languages(tmp_path: Path) -> Path:
    """Two hundred labelled examples, two of them unusual."""
    rows = two_languages(200, seed=1)
    rows[0]["text"], rows[1]["text"] = "bear " * 40, " "
    return write_lines(tmp_path / "rows.jsonl", rows)


def test_a_step_is_cut_by_examples(languages: Path, tmp_path: Path) -> None:
    """An example counts as much as a context of text: a step has tokens_per_step ÷ context_length of them."""
    manifest, _ = small_task(LANGUAGES, rounds={"tokens_per_step": 16 * 12})
    opened = kind_of(manifest).open(manifest, small_tokenizer(), OracleSettings(languages), tmp_path)
    batches, micro_batches = opened.batches(8, "peer")
    tokens, lengths, labels = next(batches)
    assert (len(tokens), len(lengths), len(labels), micro_batches) == (6, 6, 6, 2)
    assert batches.tokens_per_example == 16
    assert len(opened.example(8)[0]) == 8, "what is tried out need not divide a step"


def test_sequences_of_an_example_share_the_batch_size(tmp_path: Path) -> None:
    """Where an example has two sequences, half as many examples are processed at once."""
    rows = [{"first": f"bear {number}", "second": "bridge", "label": number / 10} for number in range(40)]
    opened, _ = task_of(SCORES, write_lines(tmp_path / "rows.jsonl", rows))
    batches, micro_batches = opened.batches(4, "peer")
    tokens, _, _ = next(batches)
    assert tokens.shape[:2] == (2, 2)
    assert micro_batches == 64 // 16 // 2
    assert opened.example(6)[0].shape[:2] == (3, 2)


def test_a_task_is_measured_on_examples_held_out(languages: Path) -> None:
    """L2 and accuracy are those of the examples that are not trained on; an evaluator's, of all examples."""
    opened, model = task_of(LANGUAGES, languages)
    train, held_out = opened.examples.split(1)
    found = opened.measure_held_out(model, CPU, 7, 64, no_look)
    expected = evaluate_task(model, [held_out.batch(range(len(held_out)))], CPU)
    assert found.counts == {"examples": len(held_out)}
    assert found.loss_nats == pytest.approx(expected.loss, abs=1e-5)
    assert (found.accuracy, found.bits_per_byte) == (expected.accuracy, None)
    assert (opened.size, opened.unit) == (len(train), "examples")
    assert opened.measure_held_out(model, CPU, 7, 64, no_look, 5).loss_nats == pytest.approx(found.loss_nats)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "EXAMPLES_PER_BLOCK", 4)
        part = opened.measure_held_out(model, CPU, 3, 1, no_look, 2)
    others = evaluate_task(model, [held_out.batch([place % len(held_out) for place in range(8, 12)])], CPU)
    assert part.counts == {"examples": 4} and part.loss_nats == pytest.approx(others.loss, abs=1e-5)
    every = opened.measure_all(model, CPU, 7, None, no_look)
    assert every.counts == {"examples": len(train) + len(held_out)}
    assert opened.measure_all(model, CPU, 7, 9, no_look).counts == {"examples": 9}


def test_scores_have_no_accuracy(tmp_path: Path) -> None:
    """Of a task whose answers are numbers only the squared error is known."""
    rows = [{"first": f"bear {number}", "second": "bridge", "label": number / 10} for number in range(40)]
    opened, model = task_of(SCORES, write_lines(tmp_path / "rows.jsonl", rows))
    found = opened.measure_all(model, CPU, 8, None, no_look)
    assert (found.accuracy, found.bits_per_byte) == (None, None)
    assert found.loss_nats > 0


def test_a_measurement_can_be_given_up(languages: Path) -> None:
    """Whoever looks in between two batches may end it."""
    opened, model = task_of(LANGUAGES, languages)

    def impatient(done: int, total: int) -> None:
        assert total > 2
        if done == 1:
            raise Abandoned

    with pytest.raises(Abandoned):
        opened.measure_all(model, CPU, 8, None, impatient)


def test_what_was_done_to_examples_is_said(languages: Path) -> None:
    """Cut texts and examples without text are counted."""
    opened, _ = task_of(LANGUAGES, languages)
    cut, without = opened.notes
    assert cut == "examples with a text that was too long, and was cut: 1 of 199"
    assert without == "examples left out, for a text of theirs is empty: 1"


def test_columns_are_called_as_the_table_calls_them(tmp_path: Path) -> None:
    """`columns` renames what the task asks for; what it does not have is refused."""
    rows = [{"review": row["text"], "label": row["label"]} for row in two_languages(40, seed=2)]
    table = write_lines(tmp_path / "rows.jsonl", rows)
    opened, _ = task_of(LANGUAGES, table, columns={"text": "review"})
    assert len(opened.examples) == 40
    manifest, _ = small_task(LANGUAGES)
    with pytest.raises(CorpusError, match="no column `text`: it has `review`, `label`"):
        check_data(OracleSettings(table), manifest)
    with pytest.raises(UsageError, match="the examples have no column `premise`"):
        check_data(OracleSettings(table, columns={"premise": "review"}), manifest)


def test_data_are_checked_before_anything_is_fetched(tmp_path: Path) -> None:
    """Without a manifest what could be of use passes; with it, only what the swarm can learn from."""
    of_task, of_language = small_task(LANGUAGES)[0], tiny_manifest()
    table, text = tmp_path / "rows.csv", tmp_path / "words.txt"
    table.write_text("text,label\nbear,en\n")
    text.write_text("some words")
    for settings in (OracleSettings(table), OracleSettings(text), EvaluatorSettings(table)):
        check_data(settings)
    check_data(OracleSettings(table), of_task)
    check_data(OracleSettings(text), of_language)
    with pytest.raises(CorpusError, match="no such file"):
        check_data(OracleSettings(tmp_path / "nothing"))
    both = OracleSettings([WeightedCorpus(text), WeightedCorpus(table, 0.3)])
    check_data(both)
    for settings in (both, OracleSettings([WeightedCorpus(text), WeightedCorpus(tmp_path / "nothing")])):
        with pytest.raises(CorpusError, match=r"(rows\.csv|nothing): "):
            check_data(settings, of_language)
    with pytest.raises(UsageError, match="examples are one corpus"):
        check_data(both, of_task)
    with pytest.raises(CorpusError, match="unsupported file type"):
        check_data(OracleSettings(text), of_task)
    with pytest.raises(CorpusError, match="unsupported file type"):
        check_data(OracleSettings(table), of_language)
    with pytest.raises(UsageError, match="learns language, and not a task"):
        check_data(OracleSettings(text, columns={"text": "review"}), of_language)
    table.write_text("text,label\n")
    with pytest.raises(CorpusError, match="there are no rows"):
        check_data(OracleSettings(table), of_task)


def test_language_is_measured_as_before(tmp_path: Path) -> None:
    """Held-out text and all of it, in blocks, with bits per byte and no accuracy."""
    (tmp_path / "words.txt").write_text("the bear walks over the bridge. " * 200)
    manifest = tiny_manifest()
    opened = kind_of(manifest).open(
        manifest, small_tokenizer(), OracleSettings(tmp_path / "words.txt"), tmp_path / "tokens"
    )
    assert isinstance(opened, Language)
    assert opened.example(3)[0].shape == (3, 16)
    model = build_model(manifest)
    found = opened.measure_held_out(model, CPU, 4, 2, no_look)
    assert found.counts["tokens"] == 32
    assert found.accuracy is None
    assert found.bits_per_byte is not None
    looks: list[tuple[int, int]] = []
    every = opened.measure_all(model, CPU, 4, None, lambda *look: looks.append(look))
    [corpus] = opened.mixture.corpora
    blocks = (len(corpus.train) - 1) // 16 + (len(corpus.held_out) - 1) // 16
    assert every.counts["tokens"] == 16 * blocks
    assert [done for done, _ in looks] == list(range(looks[0][1]))


def test_a_manifest_of_a_task_says_so() -> None:
    """What is learnt is part of the swarm's identity; a task's manifest reads back to itself."""
    manifest, _ = small_task(LANGUAGES)
    assert json.loads(manifest.canonical_bytes())["objective"]["kind"] == "classification"
    assert Manifest.parse(manifest.to_toml()) == manifest


@pytest.mark.parametrize(("kind", "notes"), [("llama2", 0), ("openai-gpt", 1)])
def test_a_tokenizer_that_loses_something(kind: str, notes: int, tmp_path: Path) -> None:
    """Who brings a text is told what the swarm's tokenizer changes in it, and whose bytes are counted."""
    tokenizer = Tokenizer.from_foreign(*KINDS[kind]())
    (tmp_path / "text.txt").write_text(TEXT * 20)
    manifest = tiny_manifest(vocabulary_size=tokenizer.vocabulary_size)
    opened = kind_of(manifest).open(
        manifest, tokenizer, OracleSettings(tmp_path / "text.txt"), tmp_path / "tokens"
    )
    assert len(opened.notes) == notes
    assert all("BertNormalizer" in note and "text that it keeps" in note for note in opened.notes)
    model = build_model(manifest)
    found = opened.measure_held_out(model, torch.device("cpu"), 4, 1000, no_look)
    assert found.bits_per_byte is not None and 1 < found.bits_per_byte < 10


@pytest.fixture
def two_texts(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of documents; those of the second one are of other words, and twice as many."""
    folders = tmp_path / "walks", tmp_path / "sleeps"
    for folder, count in zip(folders, (40, 80), strict=True):
        folder.mkdir()
        for number in range(count):
            (folder / f"{number}.txt").write_text(f"{number}: the bear {folder.name}. " * 8)
    return folders


def language_of(folder: Path, *corpora: WeightedCorpus) -> Language:
    opened = Language.open(tiny_manifest(), small_tokenizer(), OracleSettings(corpora), folder / "tokens")
    assert isinstance(opened, Language)
    return opened


def test_a_corpus_alone_is_dealt_out_as_ever(two_texts: tuple[Path, Path], tmp_path: Path) -> None:
    """Its weight says nothing, and the order is that of its blocks."""
    opened = language_of(tmp_path, WeightedCorpus(two_texts[0], 0.3))
    [corpus] = opened.mixture.corpora
    batches, _ = opened.batches(2, "peer")
    expected = Batches([corpus.train], 16, 2, 1, "peer")
    for _ in range(50):
        assert all(map(torch.equal, next(batches), next(expected)))


def test_several_corpora_are_mixed_by_their_weights(two_texts: tuple[Path, Path], tmp_path: Path) -> None:
    """What is trained on is all of the one and part of the other; the size is that of both."""
    opened = language_of(tmp_path, WeightedCorpus(two_texts[0]), WeightedCorpus(two_texts[1], 0.25))
    first, second = (len(corpus.train) for corpus in opened.mixture.corpora)
    batches, _ = opened.batches(2, "peer")
    assert isinstance(batches, Batches)
    assert batches.blocks == [(first - 1) // 16, round((second - 1) // 16 / 4)]
    assert (opened.size, opened.unit) == (first + second, "tokens")


def test_held_out_loss_is_of_the_mixture(two_texts: tuple[Path, Path], tmp_path: Path) -> None:
    """Each corpus counts for its share of the training, however many blocks of it are measured."""
    opened = language_of(tmp_path, WeightedCorpus(two_texts[0]), WeightedCorpus(two_texts[1], 0.1))
    model = build_model(tiny_manifest())
    alone = [
        language_of(tmp_path / path.name, WeightedCorpus(path)).measure_held_out(model, CPU, 4, 1000, no_look)
        for path in two_texts
    ]
    looks: list[tuple[int, int]] = []
    found = opened.measure_held_out(model, CPU, 4, 1000, lambda *done: looks.append(done))
    shares = opened.mixture.shares
    assert found.loss_nats == pytest.approx(
        sum(s * one.loss_nats for s, one in zip(shares, alone, strict=True))
    )
    assert found.counts["tokens"] == sum(one.counts["tokens"] for one in alone)
    bytes_per_token = sum(
        s * one.counts["bytes"] / one.counts["tokens"] for s, one in zip(shares, alone, strict=True)
    )
    assert found.bits_per_byte == pytest.approx(found.loss_nats / math.log(2) / bytes_per_token)
    assert looks == [(number, len(looks)) for number in range(len(looks))]
    few = opened.measure_held_out(model, CPU, 4, 2, no_look)
    assert few.counts["tokens"] == 3 * 16  # two of the one, and of the other not none


def test_all_of_several_corpora_is_measured_alike(two_texts: tuple[Path, Path], tmp_path: Path) -> None:
    """Who trains on nothing has no weights."""
    opened = language_of(tmp_path, WeightedCorpus(two_texts[0]), WeightedCorpus(two_texts[1], 0.1))
    model = build_model(tiny_manifest())
    every = opened.measure_all(model, CPU, 8, None, no_look)
    splits = [split for corpus in opened.mixture.corpora for split in (corpus.train, corpus.held_out)]
    assert every.counts["tokens"] == sum((len(split) - 1) // 16 * 16 for split in splits)
    assert opened.measure_all(model, CPU, 8, 3, no_look).counts["tokens"] == 3 * 16
