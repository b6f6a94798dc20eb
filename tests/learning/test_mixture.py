"""Several corpora are tokenised one by one, and each keeps its tokens."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest

from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.mixture import Mixture, texts_of, weight_of_offered
from dupt_swarm.learning.tokenizer import train_tokenizer
from dupt_swarm.settings import EvaluatorSettings, OracleSettings, WeightedCorpus
from tests.support.dumps import page, write_dump

BYTES = train_tokenizer([], 257)


@pytest.fixture
def a(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.txt").write_text("bear " * 100)
    return tmp_path / "a"


@pytest.fixture
def b(tmp_path: Path) -> Path:
    (tmp_path / "b.txt").write_text("bridge " * 200)
    return tmp_path / "b.txt"


def settings(*corpora: Path | tuple[Path, float], **more: Any) -> OracleSettings:
    weighted = [WeightedCorpus(*one) if isinstance(one, tuple) else WeightedCorpus(one) for one in corpora]
    return OracleSettings(weighted, **more)


def prepare(folder: Path, *corpora: Path | tuple[Path, float], **more: Any) -> tuple[Mixture, int]:
    """The mixture, and how often progress was reported: never, if its tokens were there."""
    calls: list[Any] = []
    mixture = Mixture.prepare(
        settings(*corpora, **more),
        BYTES,
        folder / "tokens",
        context_length=16,
        seed=1,
        progress=lambda *done: calls.append(done),
    )
    return mixture, len(calls)


def test_each_corpus_has_its_own_tokens(a: Path, b: Path, tmp_path: Path) -> None:
    """And its own held-out part, as if it were alone."""
    mixture, _ = prepare(tmp_path, a, (b, 0.3))
    alone = [prepare(tmp_path / path.stem, path)[0].corpora[0] for path in (a, b)]
    assert mixture.weights == [1.0, 0.3]
    assert sum(mixture.tokens) == sum(len(corpus.train) for corpus in alone)
    for corpus, expected in zip(mixture.corpora, alone, strict=True):
        for mine, theirs in ((corpus.train, expected.train), (corpus.held_out, expected.held_out)):
            assert mine.read(0, len(mine)).tolist() == theirs.read(0, len(theirs)).tolist()


def test_a_share_is_weight_times_size(a: Path, b: Path, tmp_path: Path) -> None:
    """All of them together are 1; the scale of the weights does not matter."""
    mixture, _ = prepare(tmp_path, a, (b, 0.3))
    first, second = (len(corpus.train) for corpus in mixture.corpora)
    total = first + 0.3 * second
    assert mixture.shares == pytest.approx([first / total, 0.3 * second / total])
    assert Mixture(mixture.corpora, [1e308, 0.3e308]).shares == pytest.approx(mixture.shares)


def test_another_weight_does_not_tokenise_again(a: Path, b: Path, tmp_path: Path) -> None:
    """Nor does another order, or one corpus less that comes back later."""
    assert prepare(tmp_path, a, b)[1] > 0
    assert prepare(tmp_path, (b, 0.3), (a, 2))[1] == 0
    folders = sorted(path.name for path in (tmp_path / "tokens").iterdir())
    assert len(folders) == 4  # each with its lock
    assert prepare(tmp_path, a)[1] == 0
    assert prepare(tmp_path, a, b)[1] == 0
    assert sorted(path.name for path in (tmp_path / "tokens").iterdir()) == folders


def test_unfinished_tokens_are_removed(a: Path, tmp_path: Path) -> None:
    """Those of a killed process, whichever corpus they were of, but not what another still writes."""
    dead, alive = (tmp_path / "tokens" / f"{16 * digit}.building" for digit in "01")
    for folder in (dead, alive):
        folder.mkdir(parents=True)
    with alive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        prepare(tmp_path, a)
    assert not dead.exists() and alive.exists()


@pytest.mark.usefixtures("without_locks")
def test_unfinished_tokens_stay_where_nobody_can_tell(a: Path, tmp_path: Path) -> None:
    """Without locks, another process may be writing them; ours are written all the same."""
    unfinished = tmp_path / "tokens" / f"{16 * '0'}.building"
    unfinished.mkdir(parents=True)
    assert prepare(tmp_path, a)[1] > 0
    assert unfinished.exists()


def test_only_tokens_are_removed(a: Path, tmp_path: Path) -> None:
    """What else lies in that folder stays."""
    work = [tmp_path / "tokens" / "thesis.txt", tmp_path / "tokens" / "thesis.building" / "one.txt"]
    work[1].parent.mkdir(parents=True)
    for file in work:
        file.write_text("years of work")
    prepare(tmp_path, a)
    assert [file.read_text() for file in work] == 2 * ["years of work"]


def test_what_was_left_out_is_told_of_all(a: Path, b: Path, tmp_path: Path) -> None:
    """In the order of the corpora."""
    (a / "bad.txt").write_bytes(b"\xff")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "c.txt").write_text("bear " * 100)
    (tmp_path / "c" / "worse.txt").write_bytes(b"\xff")
    mixture, _ = prepare(tmp_path, a, b, tmp_path / "c")
    assert [Path(one.path).name for one in mixture.left_out] == ["bad.txt", "worse.txt"]


@pytest.mark.parametrize(("text", "reason"), [(b"\xff", "not UTF-8"), (b"short", "holds 6 tokens")])
def test_a_corpus_that_is_not_usable_is_named(
    a: Path, b: Path, tmp_path: Path, text: bytes, reason: str
) -> None:
    """So that its owner knows which of them it is."""
    b.write_bytes(text)
    with pytest.raises(CorpusError, match=rf"b\.txt: .*{reason}"):
        prepare(tmp_path, a, b)


def test_settings_say_how_to_read_each(a: Path, b: Path) -> None:
    """What concerns text is the same for all of them; an evaluator has one."""
    chosen = {"field": "body", "strict": True, "language": "de"}
    assert texts_of(settings(a, (b, 2), **chosen)) == [
        TextFiles(a, "body", True, "de"),
        TextFiles(b, "body", True, "de"),
    ]
    [only] = texts_of(EvaluatorSettings(a))
    assert (only.path, EvaluatorSettings(a).corpora[0].weight) == (a, 1.0)


def test_a_language_is_asked_of_dumps_only(a: Path, b: Path, tmp_path: Path) -> None:
    """Text beside a dump stays; only where no corpus has a dump, each says that the language is wrong."""
    (tmp_path / "dumps").mkdir()
    dump = write_dump(tmp_path / "dumps" / "dewiki-1-pages-articles.xml.bz2", page("Bär", "Ein Bär. " * 20))
    assert sum(prepare(tmp_path, a, dump.parent, language="de")[0].tokens) > 0
    with pytest.raises(CorpusError, match=r"dumps: .* in the language `fr`; choose one of de"):
        prepare(tmp_path, a, dump.parent, language="fr")
    with pytest.raises(CorpusError, match=r"a: .* in the language `de`; leave the language out"):
        prepare(tmp_path, a, b, language="de")


def test_a_corpus_given_twice_is_refused(a: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is spelt: what is meant is a weight."""
    monkeypatch.chdir(a.parent)
    for other in (a, Path("a"), a / ".." / "a"):
        with pytest.raises(UsageError, match="a is given twice; give it once, with the weight") as error:
            texts_of(settings(a, (other, 2)))
        assert error.value.settings == ("corpus",)


def test_corpora_that_share_a_file_are_refused(a: Path, b: Path) -> None:
    """What one of them holds out would be trained on by the other; by a link too."""
    (a / "link.txt").symlink_to(b)
    (a / "below").mkdir()
    (a / "below" / "c.txt").write_text("bear")
    for other, name in ((a / "below", "c"), (a / "*.txt", "a"), (b, "b")):
        with pytest.raises(
            UsageError, match=rf"{name}\.txt is in two corpora, .*; give corpora that"
        ) as error:
            texts_of(settings(a, other))
        assert error.value.settings == ("corpus",)
    assert len(texts_of(settings(a / "below", b))) == 2


def test_no_corpus_means_the_text_that_the_swarm_offers() -> None:
    """It is none of this machine's, and has a weight as any other; given twice it is refused."""
    assert texts_of(settings()) == []
    assert weight_of_offered(settings()) == 1
    own, offered = WeightedCorpus(Path("a")), WeightedCorpus(None, 0.3)
    mixed = OracleSettings([own, offered])
    assert [text.path for text in texts_of(mixed)] == [Path("a")]
    assert weight_of_offered(mixed) == 0.3
    assert weight_of_offered(OracleSettings([own])) is None
    with pytest.raises(UsageError, match="what the swarm offers is given twice"):
        weight_of_offered(OracleSettings([offered, offered]))


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_is_a_positive_number(weight: float) -> None:
    """Anything else is refused at once."""
    with pytest.raises(UsageError, match=r"^b: a corpus cannot have the weight .*; give a positive number"):
        WeightedCorpus(Path("b"), weight)
