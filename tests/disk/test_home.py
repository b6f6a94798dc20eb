"""Paths with a `~`."""

from pathlib import Path

import click
import pytest

from dupt_swarm.disk.folders import folder_of
from dupt_swarm.disk.home import expanded
from dupt_swarm.errors import CorpusError
from dupt_swarm.evaluator import dataset_name
from dupt_swarm.learning.documents import find_sources
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.mixture import texts_of, tokens_folder
from dupt_swarm.settings import EvaluatorSettings, OracleSettings
from tests.support.commands import PROGRAMS, commands_of

ROOT = Path(__file__).parents[2]


def test_a_home_folder_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this user; that of a user who is not there leaves the path as it is."""
    monkeypatch.setenv("HOME", "/somewhere")
    assert expanded("~/text") == Path("/somewhere/text")
    assert expanded(Path("~nosuchuser/text")) == Path("~nosuchuser/text")
    assert expanded("text/~") == Path("text/~")


def test_a_user_who_is_not_there_is_a_path_that_is_not_there() -> None:
    """An error for users, wherever data are named."""
    path = Path("~nosuchuser/text.txt")
    with pytest.raises(CorpusError, match="no such file"):
        find_sources(path)
    with pytest.raises(CorpusError, match="no such file"):
        LabelledFiles(path).find()
    assert tokens_folder(texts_of(OracleSettings(corpus=path))[0].path)
    assert dataset_name(EvaluatorSettings(corpus=path)) == "text"


def test_every_path_of_every_command_may_begin_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shells leave it in `--state-dir=~/peer`, and files of variables do."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").touch()
    checked = 0
    for context in (context for program in PROGRAMS for context in commands_of(program)):
        for one in context.command.params:
            if isinstance(one.type, click.Path):
                name = "file" if one.type.file_okay else "folder"
                assert one.type.convert(f"~/{name}", one, context) == tmp_path / name, context.command_path
                checked += 1
    assert checked > 30


def test_a_state_folder_is_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Corpora would be tokenised in the home folder, beside a state in a folder called `~`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder_of(Path("~/peer"), "a-000000000000", "oracle") == tmp_path / "peer" / "a-000000000000"


def test_nobody_expands_otherwise() -> None:
    """`Path.expanduser` would raise RuntimeError."""
    ours = [file for package in ("dupt_swarm", "peers", "monitor") for file in (ROOT / package).rglob("*.py")]
    assert len(ours) > 300
    assert not [file for file in ours if ".expanduser()" in file.read_text(encoding="utf-8")]
