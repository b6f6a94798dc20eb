"""Masked tokens, and pairs of texts."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dupt_swarm.errors import CheckpointError, ManifestError
from dupt_swarm.learning.batches import Batch, Batches
from dupt_swarm.learning.corpus import Corpus
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.masking import (
    NOTHING,
    Ids,
    Masked,
    MaskedBatches,
    MaskedExamples,
    Masking,
    text_tokens,
)
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from tests.support.encoders import encoder_manifest, encoder_tables, encoder_tokenizer, manual, manual_in
from tests.support.foreign_tokenizers import bert_cased
from tests.support.tiny import tiny_manifest

TOKENIZER = encoder_tokenizer()
SEP, CLS, MASK = 0, 1, 2
TEXT = np.array(TOKENIZER.encode("\n".join(manual("f", "i"))), dtype=np.int64)


def masking(*, nsp: bool = False, context_length: int = 128, **objective: Any) -> Masking:
    changes = {"model": {"context_length": context_length}, "rounds": {"tokens_per_step": 128}}
    manifest = encoder_manifest(TOKENIZER, nsp=nsp, objective=objective, **changes)
    return Masking(manifest, TOKENIZER)


class Blocks:
    """Blocks of a text in order, from its beginning again after its end."""

    tokens_per_example = 0

    def __init__(self, size: int, rows: int = 3) -> None:
        self._size, self._rows, self._next = size, rows, 0

    def __next__(self) -> Batch:
        starts = (np.arange(self._rows) + self._next) * self._size % (len(TEXT) - self._size)
        self._next += self._rows
        blocks = torch.from_numpy(np.stack([TEXT[start : start + self._size] for start in starts]))
        return blocks, blocks

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next = state["next"]


def batches(rule: Masking, rows: int = 3) -> MaskedBatches:
    examples = MaskedExamples(rule, 1, "peer")
    return MaskedBatches(Blocks(rule.text_tokens, rows), examples)


def test_masking_has_the_papers_ratios() -> None:
    """Of a million tokens 15 % are predicted, of which 80 % are masked, 10 % are others, 10 % stay."""
    rule = masking()
    source = batches(rule, rows=500)
    seen = predicted = masked = stayed = 0
    ordinary: set[int] = set()
    while seen < 1_000_000:
        tokens, places, targets = next(source)
        now = tokens.gather(1, places)[targets != NOTHING]
        true = targets[targets != NOTHING]
        seen += tokens.numel()
        predicted += len(true)
        masked += int((now == MASK).sum())
        stayed += int((now == true).sum())
        ordinary |= set(now[now != true].tolist())
    assert predicted / seen == pytest.approx(0.15 * 126 / 128, rel=0.01)
    assert masked / predicted == pytest.approx(0.8, abs=0.01)
    assert stayed / predicted == pytest.approx(0.1, abs=0.01)
    assert ordinary & {SEP, CLS, 3} == set()


def test_what_is_predicted_was_there() -> None:
    """Put back, the targets make the text again, between [CLS] and [SEP]; no place is predicted twice."""
    rule = masking()
    tokens, places, targets = next(batches(rule, rows=5))
    restored = tokens.scatter(1, places, targets)
    assert restored[:, 0].tolist() == [CLS] * 5 and restored[:, -1].tolist() == [SEP] * 5
    assert torch.equal(restored[:, 1:-1], next(Blocks(126, 5))[0])
    assert all(len(set(row)) == len(row) for row in places.tolist())


def test_whole_words_are_masked_or_not_at_all() -> None:
    """No word is predicted in part."""
    rule = masking(whole_words=True)
    starts = TOKENIZER.starts_word()
    for tokens, places, targets in islice(iter(batches(rule).__next__, None), 20):
        for row, where, what in zip(tokens.numpy(), places.numpy(), targets.numpy(), strict=True):
            row[where[what != NOTHING]] = what[what != NOTHING]
            words = np.cumsum(starts[row] | (np.arange(len(row)) == 1))
            chosen = set(where[what != NOTHING].tolist())
            inside = [place in chosen for place in range(len(row))]
            for word in np.unique(words[list(chosen)]):
                assert all(inside[place] for place in np.flatnonzero(words == word))


def restored(batch: Batch) -> torch.Tensor:
    """The tokens as they were."""
    tokens = batch[0].clone()
    for row, where, what in zip(tokens, batch[1], batch[2], strict=True):
        row[where[what != NOTHING]] = what[what != NOTHING]
    return tokens


def test_half_of_the_second_texts_follow() -> None:
    """The second part goes on where the first ends, or is a part of the last example's; neither is longer."""
    rule = masking(nsp=True)
    source, blocks = batches(rule, rows=50), Blocks(rule.text_tokens, 50)
    lengths: dict[int, list[int]] = {0: [], 1: []}
    before: list[int] = []
    for _ in range(40):
        batch = next(source)
        rows = zip(restored(batch), batch[3], batch[4], next(blocks)[0], strict=True)
        for row, length, another, block in rows:
            sequence, text = row[:length].tolist(), block.tolist()
            assert sequence[0] == CLS and sequence[-1] == SEP and sequence.count(SEP) == 2
            middle = sequence.index(SEP)
            first, second = sequence[1:middle], sequence[middle + 1 : -1]
            assert text[: len(first)] == first
            if another:
                assert any(before[start:][: len(second)] == second for start in range(len(before)))
            else:
                assert second == text[len(first) :][: len(second)]
            before = text
            lengths[int(another)].append(int(length))
    assert len(lengths[1]) / 2000 == pytest.approx(0.5, abs=0.04)
    assert np.mean(lengths[0]) == pytest.approx(np.mean(lengths[1]), rel=0.02)
    assert min(lengths[0]) < 96 and max(lengths[0]) == max(lengths[1]) == 128


def test_lengths_do_not_tell_what_follows() -> None:
    """Of documents of all lengths, both kinds are as long as each other."""
    rule, draw = masking(nsp=True), np.random.default_rng(0)
    examples = MaskedExamples(rule, 1, "peer")
    found: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(3000):
        block = TEXT[: rule.text_tokens].copy()
        block[int(draw.integers(2, rule.text_tokens)) :] = SEP
        _, _, _, length, another = examples.batch(torch.from_numpy(block[None]))
        found[int(another)].append(int(length))
    assert np.mean(found[0]) == pytest.approx(np.mean(found[1]), rel=0.06)


def test_the_last_token_does_not_tell_what_follows() -> None:
    """Of short documents, each ending in a token that is nowhere else, it ends both kinds as often."""
    rule, draw, stop = masking(nsp=True), np.random.default_rng(0), 300
    examples = MaskedExamples(rule, 1, "peer")
    ends: dict[int, list[bool]] = {0: [], 1: []}
    for _ in range(3000):
        block, size = np.full(rule.text_tokens, SEP), int(draw.integers(20, 60))
        start = int(draw.integers(len(TEXT) - size))
        block[:size] = np.where(TEXT[start : start + size] == stop, stop + 1, TEXT[start : start + size])
        block[size - 1] = stop
        batch = examples.batch(torch.from_numpy(block[None]))
        ends[int(batch[4])].append(int(restored(batch)[0, batch[3] - 2]) == stop)
    right = np.mean([*ends[1], *np.logical_not(ends[0])])  # of whoever says that such a text follows
    assert max(right, 1 - right) < 0.55


@pytest.mark.parametrize("nsp", [False, True])
def test_it_goes_on_where_it_was(nsp: bool) -> None:
    """After `load_state_dict` come the same examples, in batches of whatever size; others later."""
    rule = masking(nsp=nsp, context_length=16)
    whole, part = batches(rule, 4), batches(rule, 4)
    examples = [torch.cat(column) for column in zip(*(next(whole) for _ in range(4)), strict=True)]
    next(part)
    rest = batches(rule, 6)
    rest.load_state_dict(part.state_dict())
    later = [torch.cat(column) for column in zip(*(next(rest) for _ in range(2)), strict=True)]
    assert all(torch.equal(one[4:], other) for one, other in zip(examples, later, strict=True))
    again = MaskedExamples(rule, 1, "peer", number=4).batch(next(Blocks(rule.text_tokens, 4))[0])
    assert not torch.equal(again[1], examples[1][:4])
    other = MaskedExamples(rule, 1, "another").batch(next(Blocks(rule.text_tokens, 4))[0])
    assert not torch.equal(other[1], examples[1][:4])


@pytest.mark.parametrize("state", [{}, {"blocks": {}, "examples": {"number": "1", "before": []}}])
def test_a_foreign_state_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="not a position in masked text"):
        batches(masking()).load_state_dict(state)


def test_texts_of_several_documents() -> None:
    """A pair is cut from the longest piece of a document; nothing is predicted where there is no text."""
    rule = masking(nsp=True)
    block = np.array([CLS, 9, SEP, CLS, 10, 11, 12, SEP, CLS, 13, 14])
    assert rule.piece_in(block).tolist() == [10, 11, 12]
    nothing = MaskedExamples(rule, 1, "peer").batch(torch.zeros(1, rule.text_tokens, dtype=torch.int64))
    assert nothing[2].max() == NOTHING


def test_the_second_text_begins_with_a_word() -> None:
    """Whether it follows or is another; and the first one is not empty."""
    rule, draw, starts = masking(nsp=True), np.random.default_rng(0), TOKENIZER.starts_word()
    for start in range(0, 3000, 30):
        text = TEXT[start : start + 30]
        first, second = rule.cut(text, draw)
        assert len(first) > 0 and starts[second[0]]
        assert np.concatenate([first, second]).tolist() == text.tolist()
        assert starts[rule.part_of(text, 10, draw)[0]]


def test_a_word_longer_than_all_that_may_be_predicted() -> None:
    """Of a text without another word some of it is predicted."""
    inside = np.flatnonzero(~TOKENIZER.starts_word())[-1]
    found = masking(whole_words=True).mask(np.full(40, inside), np.random.default_rng(0))
    assert (found.targets != NOTHING).sum() == round(0.15 * 40)


def test_each_example_has_random_numbers_of_its_own() -> None:
    """The next one does not go on in the middle of those of the one before."""
    rule, drawn = masking(), list[set[int]]()
    mask = rule.mask

    def noted(tokens: Ids, random: np.random.Generator) -> Masked:
        found = mask(tokens, random)
        drawn.append(set(np.atleast_1d(random.bit_generator.random_raw(1000)).tolist()))
        return found

    rule.mask = noted  # type: ignore[method-assign]
    next(batches(rule, rows=2))
    assert drawn[0].isdisjoint(drawn[1])


def test_what_a_vocabulary_lacks_is_text() -> None:
    """It ends no document."""
    data, end = bert_cased()
    read = Tokenizer.from_foreign(data, end)
    tables = encoder_tables(nsp=True, tokenizer={"end_of_text": end})
    manifest = tiny_manifest(read.sha256, read.vocabulary_size, **tables)
    tokenizer = Tokenizer.of(manifest, data)
    block = np.array(tokenizer.encode("a cat \u1234 a dog"))
    assert tokenizer.unknown in block
    assert Masking(manifest, tokenizer).piece_in(block).tolist() == block.tolist()


def test_what_begins_a_sequence_is_nowhere_in_it(tmp_path: Path) -> None:
    """Of a model's own tokenizer, which puts [CLS] before texts: a decoder's documents begin with it."""
    data, end = bert_cased()
    read = Tokenizer.from_foreign(data, end)
    tables = encoder_tables(nsp=False, tokenizer={"end_of_text": end})
    manifest = tiny_manifest(read.sha256, read.vocabulary_size, **tables)
    tokenizer, size = Tokenizer.of(manifest, data), text_tokens(manifest)
    text = TextFiles(manual_in(tmp_path / "text", "i"))
    corpora = [  # in one folder, so that what was cut for a decoder is not taken for an encoder's
        Corpus.prepare(text, each, tmp_path / "cache", context_length=size, seed=0).train
        for each in (read, tokenizer)
    ]
    begins = tokenizer.encoder_tokens.first
    in_decoders, in_encoders = ((corpus.read(0, len(corpus)) == begins).sum() for corpus in corpora)
    assert in_decoders > 0 and in_encoders == 0
    blocks = Batches([corpora[1]], size, 8, 0, "peer")
    tokens, _, _ = next(MaskedBatches(blocks, MaskedExamples(Masking(manifest, tokenizer), 0, "peer")))
    assert (tokens[:, 0] == begins).all() and not (tokens[:, 1:] == begins).any()


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    """Such as a decoder's."""
    tokenizer = train_tokenizer(manual("f"), 300)
    manifest = encoder_manifest(tokenizer)
    with pytest.raises(ManifestError, match=r"no special token .*\[MASK\]"):
        Masking(manifest, tokenizer)
    assert text_tokens(tiny_manifest()) == 14
