"""Corpora and their weights on the command line, and in the environment."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dupt_swarm.errors import UsageError
from dupt_swarm.settings import WeightedCorpus
from peers import options
from peers.cli import main as peer_program
from peers.model.cli import main as model_program
from peers.options import parse_corpus


@click.command(context_settings={"auto_envvar_prefix": "PROGRAM"})
@options.corpora("Text.")
def program(corpus: tuple[WeightedCorpus, ...]) -> None:
    """Prints what it was given."""
    for one in corpus:
        click.echo(f"{one.path}|{one.weight}")


def run(*arguments: str, **environment: str) -> list[str]:
    result = CliRunner().invoke(program, arguments, env=environment)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_corpora_with_and_without_weight() -> None:
    """As often as there are corpora."""
    given = ("--corpus", "a/", "--corpus", "b/:0.3", "--corpus", "~/c d/*.txt:2", "--corpus", "~/e")
    assert run(*given) == ["a|1.0", "b|0.3", "~/c d/*.txt|2.0", "~/e|1.0"]


def test_what_exists_as_it_is_typed_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it ends like a weight, or is a glob or a link to nothing; a weight may still follow."""
    monkeypatch.chdir(tmp_path)
    for name in ("b:0.3", "c:2.txt", "[d]:5"):
        Path(name).write_text("text")
    Path("e:1").symlink_to("nothing")
    for text in ("b:0.3", "c:[12].txt", "*:2.txt", "[d]:5", "e:1"):
        assert parse_corpus(text) == WeightedCorpus(Path(text))
    assert parse_corpus("b:0.3:0.5") == WeightedCorpus(Path("b:0.3"), 0.5)


def test_the_word_swarm_means_the_text_that_the_swarm_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever exists here by that name; a folder of it is written as a path."""
    monkeypatch.chdir(tmp_path)
    Path("swarm").mkdir()
    assert parse_corpus("swarm") == WeightedCorpus(None)
    assert parse_corpus("swarm:0.5") == WeightedCorpus(None, 0.5)
    assert parse_corpus("./swarm") == WeightedCorpus(Path("swarm"))
    assert [str(corpus) for corpus in (WeightedCorpus(None), WeightedCorpus(None, 0.5))] == [
        "swarm",
        "swarm:0.5",
    ]
    assert run() == []


def test_an_empty_folder_of_the_environment_is_no_corpus(tmp_path: Path) -> None:
    """The image names one, whether something is mounted on it or not; on the command line it is one."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("text")
    empty, full = str(tmp_path / "empty"), str(tmp_path / "full")
    assert run(PROGRAM_CORPUS=empty) == []
    assert run(PROGRAM_CORPUS=f"{empty};{full}") == [f"{full}|1.0"]
    assert run("--corpus", empty) == [f"{empty}|1.0"]


def test_a_folder_of_the_environment_that_cannot_be_read_stays_a_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads it then says why it cannot be."""

    def refuse(_: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert run(PROGRAM_CORPUS=str(tmp_path)) == [f"{tmp_path}|1.0"]


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "-0.0"])
def test_a_weight_must_be_positive(weight: str) -> None:
    """The corpus is named, and so is the remedy."""
    result = CliRunner().invoke(program, ["--corpus", f"b:{weight}"])
    words = " ".join(result.output.split())
    assert result.exit_code == 2
    assert "--corpus" in words and "b: a corpus cannot have the weight" in words
    assert "give a positive number such as 0.3, or leave the corpus out" in words


@pytest.mark.parametrize("text", ["b:much", "b:", "b:0,3", "http://example.org", "b:0.3x"])
def test_what_is_neither_path_nor_weight_is_refused(text: str) -> None:
    """With how to write them."""
    result = CliRunner().invoke(program, ["--corpus", text])
    assert result.exit_code == 2
    assert f"`{text}`: no such file or folder, and what follows its last colon is no weight" in " ".join(
        result.output.split()
    )


def test_a_weight_without_a_path_is_refused() -> None:
    """It is not the current folder's."""
    with pytest.raises(UsageError, match="no such file or folder"):
        parse_corpus(":0.3")


def test_what_is_offered_may_have_spaces_in_the_environment(tmp_path: Path) -> None:
    """As a corpus may; several are separated like corpora."""
    (tmp_path / "words.txt").write_text("some words")
    missing = tmp_path / "not there"
    for offered in (str(missing), f"{tmp_path}; {missing}"):
        environment = {"DUPT_PEER_NEW_OFFER": offered, "DUPT_PEER_NEW_OFFER_LICENCE": "CC0-1.0"}
        result = CliRunner().invoke(peer_program, ["new", str(tmp_path / "run.toml")], env=environment)
        assert f"{missing}: no such file or folder" in result.output


def test_the_environment_has_several_too() -> None:
    """Separated by semicolons, so that paths may have spaces, as ever; the command line replaces them all."""
    assert run(PROGRAM_CORPUS="/my texts") == ["/my texts|1.0"]
    assert run(PROGRAM_CORPUS="/my texts; b:0.3 ;") == ["/my texts|1.0", "b|0.3"]
    assert run("--corpus", "c", PROGRAM_CORPUS="a;b") == ["c|1.0"]
    assert run(PROGRAM_CORPUS=" ") == []


def test_help_says_what_a_weight_is() -> None:
    """Nobody should have to guess."""
    words = " ".join(CliRunner().invoke(program, ["--help"]).output.split())
    assert "a token of PATH:0.3 is seen 0.3 times as often as one of a corpus without weight" in words


@pytest.mark.parametrize(
    "arguments",
    [
        ("new", "run.toml", "--corpus", ""),
        ("new", "run.toml", "--offer", "", "--offer-licence", "CC0"),
        ("join", "--initial-peers", "/ip4/127.0.0.1/tcp/1/p2p/nobody", "--corpus", ""),
        ("evaluate", "--initial-peers", "/ip4/127.0.0.1/tcp/1/p2p/nobody", "--corpus", ""),
        ("eval", "model", "--corpus", " "),
    ],
)
def test_an_empty_path_is_not_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """What lies there was never meant: a script has a variable that is not set."""
    monkeypatch.chdir(tmp_path)
    Path("private.txt").write_text("private\n" * 100)
    program = model_program if arguments[0] == "eval" else peer_program
    found = CliRunner().invoke(program, arguments)
    assert found.exit_code == 2 and "the path is empty" in found.output
    assert [path.name for path in tmp_path.iterdir()] == ["private.txt"]
