"""Paths with a `~`."""

from pathlib import Path

import pytest

from dupt_swarm.disk.home import expanded
from dupt_swarm.errors import CorpusError
from dupt_swarm.evaluator import dataset_name
from dupt_swarm.learning.documents import find_sources
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.mixture import texts_of
from dupt_swarm.settings import EvaluatorSettings, OracleSettings

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
    assert texts_of(OracleSettings(corpus=path))[0].cache
    assert dataset_name(EvaluatorSettings(corpus=path)) == "text"


def test_nobody_expands_otherwise() -> None:
    """`Path.expanduser` would raise RuntimeError."""
    ours = [file for package in ("dupt_swarm", "peers", "monitor") for file in (ROOT / package).rglob("*.py")]
    assert len(ours) > 300
    assert not [file for file in ours if ".expanduser()" in file.read_text(encoding="utf-8")]
