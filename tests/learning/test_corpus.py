"""A corpus is tokenised once, split by document, and never left half-written."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning import corpus as corpus_module
from dupt_swarm.learning import documents as documents_module
from dupt_swarm.learning import token_files as files_module
from dupt_swarm.learning.corpus import Corpus
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.token_files import Split, SplitWriter
from dupt_swarm.learning.tokenizer import LEAST_CHARACTERS, Tokenizer, train_tokenizer
from tests.support.foreign_tokenizers import KEEPING

BYTES = train_tokenizer([], 257)  # each token is one byte
OTHER = train_tokenizer(["swarm swarm"], 260)


def prepare(path: Path, cache: Path, tokenizer: Tokenizer = BYTES, **options: Any) -> Corpus:
    text = TextFiles(path, options.pop("field", "text"))
    return Corpus.prepare(text, tokenizer, cache, **{"context_length": 16, "seed": 1, **options})


def texts(split: Split, tokenizer: Tokenizer = BYTES) -> list[str]:
    """The documents of a split; the last string is what follows the last end of text."""
    return tokenizer.decode(split.read(0, len(split)).tolist()).split("<|endoftext|>")


def count(corpus: Corpus) -> int:
    """How many documents there are."""
    return len(texts(corpus.train)[1:]) + len(texts(corpus.held_out)[1:])


def write_jsonl(path: Path, documents: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "source.jsonl", DOCUMENTS)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "state" / "corpus"


DOCUMENTS = [f"document {number}: " + "naïve 🦊 " * (number % 5) for number in range(1000)]


def unread(*_: Any) -> Any:
    """Stands where nothing may be read."""
    raise AssertionError("the sources were read again")


def left_over(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.parent.iterdir() if path.suffix != ".lock")


def test_every_document_is_in_one_split(source: Path, cache: Path) -> None:
    """Each document is, whole and followed by end of text, in exactly one split; about 2 % are held out."""
    corpus = prepare(source, cache)
    train, held_out = texts(corpus.train), texts(corpus.held_out)
    assert "" == train.pop() == held_out.pop()
    assert sorted(DOCUMENTS) == sorted(train + held_out)
    assert 10 <= len(held_out) <= 35
    assert sum(len(text.encode()) + 1 for text in DOCUMENTS) == len(corpus.train) + len(corpus.held_out)


def test_split_depends_on_seed_and_content_only(source: Path, cache: Path, tmp_path: Path) -> None:
    """The same seed holds out the same documents whatever their file and tokenizer; another seed, others."""
    held_out = texts(prepare(source, cache).held_out)
    moved = write_jsonl(tmp_path / "moved.jsonl", ["first", *DOCUMENTS])
    assert held_out == texts(prepare(moved, cache, OTHER).held_out, OTHER)
    assert held_out != texts(prepare(source, cache, seed=2).held_out)


def test_single_document(tmp_path: Path, cache: Path) -> None:
    """Of a single document the last 5 % are held out."""
    text = "".join(f"{number} " for number in range(2000))
    (tmp_path / "book.txt").write_text(text)
    corpus = prepare(tmp_path / "book.txt", cache)
    assert text + "<|endoftext|>" == BYTES.decode(
        [*corpus.train.read(0, len(corpus.train)), *corpus.held_out.read(0, len(corpus.held_out))]
    )
    assert pytest.approx(len(corpus.held_out) / (len(text) + 1), abs=0.001) == 0.05


def test_few_documents(tmp_path: Path, cache: Path) -> None:
    """Where no document is chosen, the last ones that make up 5 % are held out, whole."""
    documents = [f"{number:02}" * 50 for number in range(30)]
    corpus = prepare(write_jsonl(tmp_path / "few.jsonl", documents), cache, seed=3)
    assert [*documents[:28], ""] == texts(corpus.train)
    assert [*documents[28:], ""] == texts(corpus.held_out)


def test_short_documents_stay_whole_at_the_end(tmp_path: Path, cache: Path) -> None:
    """Of those that could begin what is held out there, the last one does."""
    path = write_jsonl(tmp_path / "short.jsonl", [f"{number:05}" for number in range(60)])
    tails = [len(prepare(path, cache, seed=seed).held_out) for seed in range(8)]
    assert min(tails) == 18, "three documents are the fewest that make up a block"


def test_what_is_held_out_is_neither_too_little_nor_too_much(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where few and short documents are chosen, the end is held out too, but not more than helps."""
    documents = [f"document {number}" for number in range(100)]
    path = write_jsonl(tmp_path / "long.jsonl", [*documents, "".join(map(str, range(5000)))])
    monkeypatch.setattr(corpus_module, "MAX_TAIL_TOKENS", 500)
    for seed in range(8):
        corpus = prepare(path, cache, seed=seed)
        assert 500 <= len(corpus.held_out) < 1000


def test_a_document_is_not_held_out_from_its_middle(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However its other pieces begin: whose beginning is trained on, is trained on to its end."""
    cache.mkdir(parents=True)  # an empty folder is as good as none
    monkeypatch.setattr(documents_module, "PIECE_CHARACTERS", 15)
    documents = [" ".join(str(number * factor) for factor in range(1000, 1015)) for number in range(1, 300)]
    corpus = prepare(write_jsonl(tmp_path / "pieces.jsonl", documents), cache)
    assert sorted(texts(corpus.train)[:-1] + texts(corpus.held_out)[:-1]) == sorted(documents)


def test_long_document_does_not_cost_the_training(tmp_path: Path, cache: Path) -> None:
    """However the choice falls, no long document takes more than a tenth of the corpus."""
    path = write_jsonl(tmp_path / "two.jsonl", ["short " * 20, "long " * 400])
    for seed in range(200):
        corpus = prepare(path, cache, seed=seed)
        assert 17 <= len(corpus.held_out) <= len(corpus.train) * 0.12


def test_long_documents_go_through_in_pieces(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the sizes of pieces, batches and files, tokens and progress come out right."""
    whole = prepare(source, cache)
    monkeypatch.setattr(documents_module, "PIECE_CHARACTERS", 15)
    monkeypatch.setattr(corpus_module, "BATCH_CHARACTERS", 7 * LEAST_CHARACTERS)
    monkeypatch.setattr(corpus_module, "FILE_TOKENS", 1000)
    monkeypatch.setattr(files_module, "FILE_TOKENS", 1000)
    seen: list[Any] = []
    cut = prepare(source, cache.with_name("cut"), progress=lambda *done: seen.append(done))
    assert sorted(texts(whole.train) + texts(whole.held_out)) == sorted(
        texts(cut.train) + texts(cut.held_out)
    )
    assert len(list(cache.with_name("cut").glob("train-*.bin"))) > 10
    size = source.stat().st_size
    assert (size, size) == seen[-1]
    assert sorted(seen) == seen and len(seen) > 100


def test_large_vocabulary(source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary beyond 65,536 ids takes four bytes per token, any other two."""
    small = prepare(source, cache)
    monkeypatch.setattr(Tokenizer, "vocabulary_size", (1 << 16) + 1)
    large = prepare(source, cache.with_name("large"))
    assert np.dtype("<u2") == small.train.read(0, 1).dtype
    assert np.dtype("<u4") == large.train.read(0, 1).dtype
    assert texts(small.train) == texts(large.train)


def test_reused_without_reading(source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged corpus is opened from the cache; its files are not read."""
    first = prepare(source, cache)
    monkeypatch.setattr(TextFiles, "read", unread)
    again = prepare(source, cache)
    assert texts(first.train) == texts(again.train)
    assert texts(first.held_out) == texts(again.held_out)


@pytest.mark.parametrize(
    "change",
    [
        lambda source: source.write_text(source.read_text() + '{"text": "more"}\n'),
        lambda source: os.utime(source, ns=(0, source.stat().st_mtime_ns + 1)),
    ],
    ids=["size", "time"],
)
def test_changed_source_is_noticed(source: Path, cache: Path, change: Callable[[Path], None]) -> None:
    """A source of another size or time of change is tokenised again."""
    prepare(source, cache)
    change(source)
    calls: list[Any] = []
    corpus = prepare(source, cache, progress=lambda *done: calls.append(done))
    assert calls
    assert source.read_text().count("\n") == count(corpus)
    assert left_over(cache) == ["corpus"]


@pytest.mark.parametrize(
    "options", [{"tokenizer": OTHER}, {"seed": 2}, {"context_length": 17}, {"field": "body"}]
)
def test_other_parameters_are_noticed(source: Path, cache: Path, options: dict[str, Any]) -> None:
    """Another tokenizer, seed, context length or field builds the cache anew."""
    source.write_text("".join(json.dumps({"text": text, "body": text}) + "\n" for text in DOCUMENTS))
    prepare(source, cache)
    calls: list[Any] = []
    prepare(source, cache, **options, progress=lambda *done: calls.append(done))
    assert calls


@pytest.mark.parametrize("damage", ["index.json", "train-00000.bin", "held_out-00000.bin"])
def test_damaged_cache_is_rebuilt(source: Path, cache: Path, damage: str) -> None:
    """A cache of which a file was cut short or lost is built again."""
    expected = texts(prepare(source, cache).train)
    os.truncate(cache / damage, 9)
    assert texts(prepare(source, cache).train) == expected
    if damage != "index.json":
        (cache / damage).unlink()
        assert texts(prepare(source, cache).train) == expected


def test_foreign_folder_is_left_alone(source: Path, cache: Path) -> None:
    """A folder that holds other things is never replaced."""
    cache.mkdir(parents=True)
    (cache / "thesis.txt").write_text("years of work")
    with pytest.raises(CorpusError, match="does not hold a corpus; choose another"):
        prepare(source, cache)
    assert (cache / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), CorpusError, "no space left.*another disk"),
        (OSError(errno.EROFS, "Read-only file system"), CorpusError, "Read-only.*choose a folder"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
    ids=["full disk", "read-only disk", "Ctrl-C"],
)
def test_interrupted_build_leaves_nothing(
    source: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    raised: type[BaseException],
    message: str | None,
) -> None:
    """A full disk or Ctrl-C (raised by a stand-in for the write) leaves no file, and the next try works."""
    append, calls = SplitWriter.append, []

    def failing(writer: SplitWriter, ids: Any) -> None:
        calls.append(ids)
        if len(calls) == 500:
            raise error
        append(writer, ids)

    with monkeypatch.context() as patch:
        patch.setattr(SplitWriter, "append", failing)
        with pytest.raises(raised, match=message):
            prepare(source, cache)
    assert left_over(cache) == []
    assert count(prepare(source, cache)) == 1000


def test_remains_of_a_killed_process_are_cleared(source: Path, cache: Path) -> None:
    """What a killed process left half-written is removed."""
    building = cache.with_name("corpus.building")
    building.mkdir(parents=True)
    (building / "train-00000.bin").write_bytes(b"half")
    prepare(source, cache)
    assert left_over(cache) == ["corpus"]


def test_bad_source_leaves_nothing(source: Path, cache: Path) -> None:
    """An error in the sources is reported as it is, and no cache is left."""
    source.write_text(source.read_text() + "no JSON\n")
    with pytest.raises(CorpusError, match=r"source\.jsonl:1001: not valid JSON"):
        prepare(source, cache)
    assert left_over(cache) == []


def prepare_elsewhere(source: Path, cache: Path, results: Any) -> None:
    calls: list[Any] = []
    corpus = prepare(source, cache, progress=lambda *done: calls.append(done))
    results.put((bool(calls), texts(corpus.train)))


def test_processes_at_once(source: Path, cache: Path) -> None:
    """Of processes that prepare the same cache at once, one builds it and all get the same corpus."""
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    processes = [context.Process(target=prepare_elsewhere, args=(source, cache, results)) for _ in range(3)]
    for process in processes:
        process.start()
    found = [results.get(timeout=30) for _ in processes]
    for process in processes:
        process.join(30)
    assert sorted(built for built, _ in found) == [False, False, True]
    assert found[0][1] == found[1][1] == found[2][1]
    assert left_over(cache) == ["corpus"]


@pytest.mark.parametrize("count", [0, 1, 32])
def test_too_short(tmp_path: Path, cache: Path, count: int) -> None:
    """A corpus without one block to train on and one held out is refused with both numbers."""
    (tmp_path / "a.txt").write_text("a" * count)
    held = count + 1 if count else 0
    with pytest.raises(CorpusError, match=f"holds {held} tokens, but 34 are needed: 17 to train on"):
        prepare(tmp_path / "a.txt", cache)
    assert left_over(cache) == []


def test_just_long_enough(tmp_path: Path, cache: Path) -> None:
    """The shortest corpus gives one block to train on and one held out, however many documents it has."""
    for documents in (["a" * 33], ["a" * 16] * 2, ["a"] * 17):
        path = write_jsonl(tmp_path / "a.jsonl", documents)
        corpus = prepare(path, cache)
        assert (len(corpus.train), len(corpus.held_out)) == (17, 17)


def test_cache_is_private(source: Path, cache: Path) -> None:
    """Only its owner may look into the cache."""
    prepare(source, cache)
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", KEEPING)
def test_tokenizers_of_other_models(
    kind: str, source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each document is, whole, between the model's own tokens, however it is cut; none gains a space."""
    tokenizer = Tokenizer.from_foreign(*KEEPING[kind]())
    whole = prepare(source, cache, tokenizer)
    monkeypatch.setattr(documents_module, "PIECE_CHARACTERS", 15)
    cut = prepare(source, cache.with_name("cut"), tokenizer)
    expected = sorted([*tokenizer.prefix, *tokenizer.encode(text)] for text in DOCUMENTS)
    for corpus in (whole, cut):
        ids = [
            index for split in (corpus.train, corpus.held_out) for index in split.read(0, len(split)).tolist()
        ]
        documents: list[list[int]] = []
        document: list[int] = []
        for index in ids:
            if index == tokenizer.end_of_text:
                documents.append(document)
                document = []
            else:
                document.append(index)
        assert document == []
        assert sorted(documents) == expected


def test_another_end_of_text(source: Path, cache: Path) -> None:
    """A cache is built anew for another token at the end of documents."""
    data, end = KEEPING["llama3"]()
    for index in (end, end + 1):
        corpus = prepare(source, cache, Tokenizer.from_foreign(data, index))
        assert corpus.train.read(0, len(corpus.train))[-1] == index
    [begin] = Tokenizer.from_foreign(data, index).prefix
    corpus = prepare(source, cache, Tokenizer.from_foreign(data, index, encoder=True))
    assert begin not in corpus.train.read(0, len(corpus.train)), "an encoder's documents have no beginning"
