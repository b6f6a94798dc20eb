"""An offer is all of a text but what is held out, in shards that are all alike."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.token_files import TokenIds
from dupt_swarm.offer import cutting
from dupt_swarm.offer.cutting import cut_offer
from dupt_swarm.offer.shard_list import Shard, ShardList
from dupt_swarm.replica.offered import offered_blob
from tests.support.saved_models import small_tokenizer

CONTEXT = 16
TOKENIZER = small_tokenizer()


def write_text(folder: Path, documents: int, words: int = 60) -> TextFiles:
    folder.mkdir()
    for number in range(documents):
        (folder / f"{number:04}.txt").write_text(f"{number} " + "the bear sat there " * (words // 4))
    return TextFiles(folder)


def cut(texts: list[TextFiles], folder: Path, seed: int = 1) -> ShardList:
    made, left_out = cut_offer(texts, TOKENIZER, folder, context_length=CONTEXT, seed=seed)
    assert left_out == []
    return made


def tokens_of(shard: Shard, folder: Path) -> TokenIds:
    data = (folder / shard.digest).read_bytes()
    assert offered_blob(data).digest == shard.digest
    tokens: TokenIds = np.frombuffer(data, "<u2")
    assert len(tokens) == shard.tokens
    return tokens


@pytest.fixture
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of a few documents, so that there are several of a small text."""
    monkeypatch.setattr(cutting, "SHARD_TOKENS_MIN", 2000)


@pytest.mark.usefixtures("short_shards")
def test_all_text_is_offered_once_or_held_out(tmp_path: Path) -> None:
    """Each document is there as a whole, in a shard or in what is held out, and nothing else is."""
    text = write_text(tmp_path / "text", 300)
    made = cut([text], tmp_path / "offer")
    everything = np.concatenate([tokens_of(shard, tmp_path / "offer") for shard in made.files])
    written = TOKENIZER.encode_batch([Path(source.path).read_text() for source in text.find()])
    ends = np.flatnonzero(everything == TOKENIZER.end_of_text) + 1
    found = [tuple(document.tolist()) for document in np.split(everything, ends) if len(document)]
    assert Counter(found) == Counter((*ids, TOKENIZER.end_of_text) for ids in written)
    assert made.held_out.tokens >= CONTEXT + 1
    assert made.tokens > 10 * made.held_out.tokens


@pytest.mark.usefixtures("short_shards")
def test_shards_are_samples_of_the_whole(tmp_path: Path) -> None:
    """Two texts that share no word are in all shards, though one was given after the other."""
    for name, words in (("a", "bear " * 10), ("b", "12345 " * 5)):
        lines = (json.dumps({"text": f"{words}{number}"}) for number in range(1000))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    made = cut([TextFiles(tmp_path / "a.jsonl"), TextFiles(tmp_path / "b.jsonl")], tmp_path / "offer")
    [mark] = set(TOKENIZER.encode("bear bear")[-1:])
    parts = [float(np.mean(tokens_of(shard, tmp_path / "offer") == mark)) for shard in made.shards]
    assert len(parts) > 4
    assert min(parts[:-1]) > 0.4 * max(parts[:-1])


def test_a_long_document_is_dealt_out_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A book is not one shard: its parts are among those of the others, and none is lost."""
    monkeypatch.setattr(cutting, "SHARD_TOKENS_MIN", 3000)
    monkeypatch.setattr(cutting, "PIECE_TOKENS", 100)
    text = tmp_path / "book.txt"
    text.write_text("".join(f"chapter {number} " for number in range(5000)))
    made = cut([TextFiles(text)], tmp_path / "offer")
    ids = TOKENIZER.encode(text.read_text())
    everything = [token for shard in made.files for token in tokens_of(shard, tmp_path / "offer").tolist()]
    assert Counter(everything) == Counter([*ids, TOKENIZER.end_of_text])
    assert tokens_of(made.shards[0], tmp_path / "offer").tolist() != ids[: made.shards[0].tokens]


def test_sizes_of_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is longer than the most, nor shorter than a block; of what is held out the most is less."""
    text = write_text(tmp_path / "text", 100)
    [whole] = cut([text], tmp_path / "whole").shards
    monkeypatch.setattr(cutting, "SHARD_TOKENS_MAX", whole.tokens - CONTEXT)
    assert [shard.tokens for shard in cut([text], tmp_path / "rest").shards] == [whole.tokens - CONTEXT]
    monkeypatch.setattr(cutting, "SHARD_TOKENS_MAX", whole.tokens - CONTEXT - 1)
    monkeypatch.setattr(cutting, "HELD_OUT_TOKENS_MAX", 100)
    made = cut([text], tmp_path / "two")
    assert [shard.tokens for shard in made.files] == [100, whole.tokens - CONTEXT - 1, CONTEXT + 1]


def test_the_same_seed_makes_the_same_offer(tmp_path: Path) -> None:
    """Whoever has the text can see that the offer is it; another seed makes another order."""
    text = write_text(tmp_path / "text", 40)
    (tmp_path / "a.building" / "tokens").mkdir(parents=True)  # of one that was killed
    first, second = (cut([text], tmp_path / name) for name in ("a", "b"))
    assert first == second
    assert first.digest == second.digest
    assert cut([text], tmp_path / "c", seed=2).digest != first.digest
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(
        [first.digest, *(shard.digest for shard in first.files)]
    )
    assert ShardList.read((tmp_path / "a" / first.digest).read_bytes()) == first


def test_too_little_text_leaves_nothing_behind(tmp_path: Path) -> None:
    """The error says what is missing, and there is no folder that looks like an offer."""
    (tmp_path / "text.txt").write_text("bear")
    with pytest.raises(CorpusError, match="give more text"):
        cut([TextFiles(tmp_path / "text.txt")], tmp_path / "offer")
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_too_much_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of shards must fit into what a peer fetches of one."""
    monkeypatch.setattr(cutting, "SHARDS_MAX", 0)
    with pytest.raises(CorpusError, match=r"a swarm offers 0 at most; give less"):
        cut([write_text(tmp_path / "text", 40)], tmp_path / "offer")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"held_out": 1, "shards": []}',
        b'{"held_out": {"digest": "x", "tokens": 1}, "shards": []}',
    ],
)
def test_what_is_no_list_is_refused(data: bytes) -> None:
    """An organiser may write what they like under a digest."""
    with pytest.raises(CorpusError, match="no list of shards"):
        ShardList.read(data)
