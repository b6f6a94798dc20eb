"""What an evaluator measures, without a network; with one see tests/peers/test_evaluate.py."""

import hashlib
import threading
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from dupt_swarm.command_line.printable import is_harmless
from dupt_swarm.errors import CorpusError, ManifestError, UsageError
from dupt_swarm.evaluator import Evaluator, Measurement, Sampler, check_prompt
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.pairs import read_rows
from dupt_swarm.learning.objectives import build_model, check_data
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.strategies.flat import flatten
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Objective
from dupt_swarm.manifest.layout import layout_of
from dupt_swarm.node.messages import Adopted, CatchingUp, StateName
from dupt_swarm.node.record import (
    LOSS_MAX,
    SAMPLE_BYTES_MAX,
    EvaluationRecord,
    RecordUpdate,
)
from dupt_swarm.settings import EvaluatorSettings
from peers.screen.words import figure
from tests.support.pairs import seq2seq_tables, two_tongues
from tests.support.tasks import write_lines
from tests.support.tiny import tiny_manifest

BLOCK = 16  # tokens, the context of the tiny manifest


class FakeSwarm(SimpleNamespace):
    """In place of a membership: has newer states ready, and keeps what is published."""

    left: int
    state: StateName
    anchor: Tensor
    published: list[EvaluationRecord | None]

    @property
    def catching_up(self) -> CatchingUp:
        return CatchingUp(fetching=False, newer=StateName(1, 1, "b" * 64) if self.left else None)

    def adopt(self) -> Adopted:
        self.left -= 1
        self.anchor.mul_(0.5)
        number = self.state.round + 1
        self.state = StateName(number, self.state.swarm_tokens + 1, f"{number:064d}")
        return Adopted(self.state)

    def publish(self, update: RecordUpdate, *, now: bool) -> None:
        assert now
        assert update.given.keys() == {"evaluation"}
        self.published.append(update.evaluation)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Made-up words in several files."""
    (tmp_path / "words").mkdir()
    for number in range(5):
        words = [hashlib.sha256(f"{number} {i}".encode()).hexdigest()[:4] for i in range(200)]
        (tmp_path / "words" / f"{number}.txt").write_text(" ".join(words))
    return tmp_path / "words"


def fake_swarm(corpus: Path, newer: int = 0) -> Any:
    """What an evaluator needs of `Swarm`."""
    tokenizer = train_tokenizer([path.read_text() for path in sorted(corpus.iterdir())], 300)
    manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size)
    parameters = list(GPT(manifest.model).parameters())
    return FakeSwarm(
        manifest=manifest,
        tokenizer=tokenizer.to_bytes(),
        folder=SimpleNamespace(tokens=corpus.with_name("tokens")),
        layout=tuple(tuple(parameter.shape) for parameter in parameters),
        anchor=flatten(parameters),
        state=StateName(0, 0, "0" * 64),
        left=newer,
        published=[],
    )


def measured(evaluator: Evaluator, count: int) -> list[Measurement]:
    """What it reports: so much, and then it is stopped."""
    found: list[Measurement] = []

    def report(measurement: Measurement) -> None:
        found.append(measurement)
        if len(found) == count:
            evaluator.stop()

    evaluator.run(report)
    return found


def test_each_new_state_is_measured_and_published(corpus: Path) -> None:
    """One report and one record for each state, with the same figures."""
    swarm = fake_swarm(corpus, newer=2)
    evaluator = Evaluator(swarm, EvaluatorSettings(corpus, device="cpu", blocks=4))
    found = measured(evaluator, 3)
    assert [one.state.round for one in found] == [0, 1, 2]
    assert len({one.evaluation.bits_per_byte for one in found}) == 3
    assert swarm.published == [
        EvaluationRecord(
            dataset="words",
            bits_per_byte=one.evaluation.bits_per_byte,
            loss_nats=one.evaluation.loss_nats,
            round=one.state.round,
            time=one.time,
        )
        for one in found
    ]


def test_blocks_bound_the_work(corpus: Path) -> None:
    """So many blocks are measured as asked for, whatever the batch size, and all if there are fewer."""
    swarm = fake_swarm(corpus)

    def tokens(blocks: int | None, batch_size: int) -> int:
        settings = EvaluatorSettings(corpus, device="cpu", blocks=blocks, batch_size=batch_size)
        measured = Evaluator(swarm, settings).measure()
        assert measured is not None
        return measured.evaluation.counts["tokens"]

    assert [tokens(1, 16), tokens(7, 3)] == [BLOCK, 7 * BLOCK]
    whole = tokens(None, 16)
    assert whole == tokens(1 << 40, 5) > 100 * BLOCK


def test_a_state_that_is_not_finite_is_reported_but_not_published(corpus: Path) -> None:
    """Others would refuse a record with such a number; the evaluator still says what it saw."""
    swarm = fake_swarm(corpus)
    swarm.anchor.fill_(torch.nan)
    evaluator = Evaluator(swarm, EvaluatorSettings(corpus, device="cpu", blocks=1, prompt="a"))
    found = measured(evaluator, 1)
    assert [(one.finite, one.sample) for one in found] == [(False, None)]
    assert swarm.published == [None]


@pytest.mark.parametrize(
    ("loss", "bits", "finite"),
    [
        (LOSS_MAX, LOSS_MAX, True),
        (LOSS_MAX, None, True),
        (1.01 * LOSS_MAX, None, False),
        (1.0, 1.01 * LOSS_MAX, False),
        (float("inf"), 1.0, False),
        (1.0, float("nan"), False),
    ],
)
def test_what_others_would_refuse_is_not_published(loss: float, bits: float | None, finite: bool) -> None:
    """A record that holds it would be lost as a whole."""
    state = StateName(1, 1, "a" * 64)
    measured = Measurement("words", state, Quality(loss, {}, bits), time=1.0, seconds=1.0)
    assert (measured.finite, measured.record is not None) == (finite, finite)


def test_the_same_state_again_is_not_measured_again(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a newer one could not be had."""
    monkeypatch.setattr("dupt_swarm.evaluator.LOOK_SECONDS", 0.01)
    swarm = fake_swarm(corpus, newer=1)
    evaluator = Evaluator(swarm, EvaluatorSettings(corpus, device="cpu", blocks=1))

    def in_vain() -> Adopted:
        swarm.left = 0
        return Adopted(swarm.state)

    swarm.adopt = in_vain
    evaluator.run(lambda _: None, lambda: None if swarm.left else evaluator.stop())
    assert len(swarm.published) == 1


def test_told_to_stop_it_writes_no_more(corpus: Path) -> None:
    """Not even to the end of its room."""
    swarm = fake_swarm(corpus)
    tokenizer, stopping = Tokenizer.of(swarm.manifest, swarm.tokenizer), threading.Event()
    settings = EvaluatorSettings(corpus, prompt="a", sample_tokens=40)
    sampler = Sampler(settings, swarm.manifest.objective, tokenizer, stopping)
    model = GPT(swarm.manifest.model)
    whole = sampler.sample(model).text
    stopping.set()
    begun = sampler.sample(model).text
    assert whole.startswith(begun) and len(begun) < len(whole)


def test_each_state_says_something(corpus: Path) -> None:
    """The same state says the same again, another one something else; it fits, without control characters."""
    swarm = fake_swarm(corpus, newer=1)
    settings = EvaluatorSettings(corpus, device="cpu", blocks=1, prompt="a1\x1b\u202e b", sample_tokens=400)
    swarm.anchor.mul_(8.0)  # random weights with preferences
    evaluator = Evaluator(swarm, settings)
    again = evaluator.measure()
    assert again is not None
    first, second = (one.sample for one in measured(evaluator, 2))
    assert again.sample == first == swarm.published[0].sample != second == swarm.published[1].sample
    assert first is not None
    assert first.prompt == "a1 b"
    assert 400 < len((first.prompt + first.text).encode()) <= SAMPLE_BYTES_MAX
    assert all(map(is_harmless, first.text))


def test_a_prompt_that_is_too_much(corpus: Path) -> None:
    """It is refused before anything is joined; one for a task, as soon as the swarm is known."""
    check_prompt(EvaluatorSettings(corpus, prompt="€" * 66))
    with pytest.raises(UsageError, match="has 201 bytes, and others see at most 200"):
        check_prompt(EvaluatorSettings(corpus, prompt="€" * 67))
    with pytest.raises(UsageError, match="not valid Unicode"):
        check_prompt(EvaluatorSettings(corpus, prompt="\ud800"))
    tokenizer = train_tokenizer(["text"], 300)
    task = Objective(kind="classification", labels=["a", "b"])
    with pytest.raises(UsageError, match="does not learn to continue texts"):
        Sampler(EvaluatorSettings(corpus, prompt="a"), task, tokenizer, threading.Event())


def test_pairs_are_measured_on_a_table(tmp_path: Path) -> None:
    """Of an encoder-decoder: loss per token of the targets, the share of right ones; a text is refused."""
    table = write_lines(tmp_path / "pairs.jsonl", two_tongues(40, seed=1))
    tokenizer = train_tokenizer(chain.from_iterable(read_rows(LabelledFiles(table))), 300)
    manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size, **seq2seq_tables())
    parameters = list(build_model(manifest).parameters())
    swarm: Any = FakeSwarm(
        manifest=manifest,
        tokenizer=tokenizer.to_bytes(),
        folder=SimpleNamespace(tokens=tmp_path / "tokens"),
        layout=layout_of(parameters),
        anchor=flatten(parameters),
        state=StateName(0, 0, "0" * 64),
    )
    measured = Evaluator(swarm, EvaluatorSettings(table, device="cpu")).measure()
    assert measured is not None and measured.record is not None
    found = measured.evaluation
    assert found.counts["examples"] == 40 and found.bits_per_byte is None
    assert measured.record.accuracy == found.accuracy is not None
    assert figure(found) == f"accuracy {100 * found.accuracy:.1f} %"
    text = tmp_path / "words.txt"
    text.write_text("some words")
    with pytest.raises(CorpusError, match="unsupported file type; use"):
        check_data(EvaluatorSettings(text), manifest)
    with pytest.raises(UsageError, match="does not learn to continue texts"):
        Evaluator(swarm, EvaluatorSettings(table, device="cpu", prompt="Bär"))


def test_told_to_stop_it_gives_up_at_once(corpus: Path) -> None:
    """A measurement under way is not finished, and nothing is reported or published."""
    swarm = fake_swarm(corpus)
    evaluator = Evaluator(swarm, EvaluatorSettings(corpus, device="cpu"))
    evaluator.stop()
    evaluator.run(lambda _: pytest.fail("it reported"))
    assert evaluator.measure() is None
    assert swarm.published == []


def test_a_model_of_ones_own_cannot_be_measured(corpus: Path) -> None:
    """A swarm whose parameters are not those of the manifest's model is refused with the reason."""
    swarm = fake_swarm(corpus)
    swarm.layout = ((3, 3),)
    with pytest.raises(ManifestError, match="a custom model that its manifest does not describe"):
        Evaluator(swarm, EvaluatorSettings(corpus, device="cpu"))
