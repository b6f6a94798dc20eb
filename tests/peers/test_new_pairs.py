"""`dupt-peer new`: for a swarm that learns a text for a text the tokenizer is the pairs'."""

import shlex
from pathlib import Path

from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.settings import OracleSettings
from peers.checks.machine import check_data
from tests.support.commands import new
from tests.support.pairs import pair_manifest, two_tongues
from tests.support.tasks import write_lines


def test_the_tokenizer_learns_from_both_columns(tmp_path: Path) -> None:
    """Words of sources and of targets become tokens, whatever the columns are called."""
    rows = [{"de": row["source"], "en": row["target"]} for row in two_tongues(200, seed=1)]
    table, run = write_lines(tmp_path / "pairs.jsonl", rows), tmp_path / "run.toml"
    columns = ("--column", "source=de", "--column", "target=en")
    pairs = ("--preset", "transformer", "--size", "tiny", "--corpus", str(table))
    assert "no column `source`, `target`: it has `de`, `en`" in new(run, *pairs)
    assert not run.exists()
    assert new(run, *pairs, *columns).startswith("0: ")
    manifest = Manifest.load(run)
    assert (manifest.objective.kind, manifest.model.kind) == ("seq2seq", "encoder-decoder")
    tokenizer = Tokenizer.of(manifest, (tmp_path / "tokenizer.json").read_bytes())
    assert [len(tokenizer.encode(word)) for word in (" Brücke", " bridge")] == [1, 1]


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    """No tables, a text, something to offer, and columns of a text; nothing is written."""
    run, text = tmp_path / "run.toml", tmp_path / "words.txt"
    text.write_text("some words")
    pairs = ("--preset", "transformer")
    assert "give tables of pairs" in new(run, *pairs)
    assert "unsupported file type; use .csv" in new(run, *pairs, "--corpus", str(text))
    offer = ("--offer", str(text), "--offer-licence", "CC0-1.0")
    assert "learns seq2seq offers no text" in new(run, *pairs, "--corpus", str(text), *offer)
    assert "text has no columns" in new(run, "--corpus", str(text), "--column", "source=de")
    assert not run.exists()


def test_a_tokenizer_learns_from_something(tmp_path: Path) -> None:
    """A text or a table with nothing in it is refused, as `check` does it; nothing is written."""
    run, text, table = tmp_path / "run.toml", tmp_path / "words.txt", tmp_path / "pairs.csv"
    text.write_text("")
    table.write_text("source,target\n")
    refused = f"{text}: there is no text in it; give some"
    assert new(run, "--corpus", str(text)) == f"1: error: {refused}\n"
    [found], _ = check_data(OracleSettings(text), None)
    assert found.detail == refused
    assert "1: error: " in (said := new(run, "--preset", "transformer", "--corpus", str(table)))
    assert "no pair of texts in it; give some" in said
    assert {*tmp_path.iterdir()} == {text, table}


def test_what_comes_next_can_be_pasted(text: Path, tmp_path: Path) -> None:
    """A path with a space is one word of the command that `new` ends with."""
    run = tmp_path / "my swarm" / "run.toml"
    said = new(run, "--corpus", str(text))
    *_, line = said.splitlines()
    assert shlex.split(line) == ["next:", "dupt-peer", "bootstrap", str(run)]


def test_a_check_sees_whether_pairs_are_there(tmp_path: Path) -> None:
    """Tables of pairs are what such a swarm learns from, and a text is not."""
    table = write_lines(tmp_path / "pairs.jsonl", two_tongues(9, seed=1))
    [found], tokenised = check_data(OracleSettings(table), pair_manifest())
    assert found.ok and found.detail.startswith("1 table for seq2seq, ") and tokenised == 0
    text = tmp_path / "words.txt"
    text.write_text("some words")
    [found], _ = check_data(OracleSettings(text), pair_manifest())
    assert not found.ok and "unsupported file type" in found.detail
