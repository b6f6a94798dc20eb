"""``dupt-model generate`` writes what the library does, and harms no terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from dupt_swarm.command_line.printable import is_harmless
from dupt_swarm.learning.generation.sampling import Sampling
from dupt_swarm.learning.generation.text import continue_text
from dupt_swarm.learning.objectives import decoder_of
from dupt_swarm.models.saved_model import SavedModel
from peers.model.cli import main
from tests.support.saved_models import write_model

PROMPT = "The bear"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    return write_model(tmp_path_factory.mktemp("models") / "model")


def run(saved: SavedModel, *arguments: str, stdin: str | bytes = "") -> Result:
    line = ["generate", str(saved.folder), "--device", "cpu", *arguments]
    return CliRunner().invoke(main, line, input=stdin)


def expected(saved: SavedModel, prompt: str = PROMPT, stop: tuple[str, ...] = (), **sampling) -> str:
    decoder = decoder_of(saved.build(torch.device("cpu")))
    return "".join(continue_text(decoder, saved.tokenizer, prompt, Sampling(**sampling), stop))


def test_options_reach_the_sampling(saved: SavedModel) -> None:
    """Each option changes what is written, as the library does with the same values."""
    options: dict[str, Any] = {
        "tokens": 30,
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "repetition_penalty": 1.2,
        "seed": 7,
    }
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    result = run(saved, "--prompt", PROMPT, *flags, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == {
        "swarm_id": saved.manifest.swarm_id,
        "round": 0,
        "state_digest": saved.state.digest,
        "prompt": PROMPT,
        "text": expected(saved, **options),
        "seed": 7,
    }


def test_a_random_seed_is_told(saved: SavedModel) -> None:
    """Without --seed the text can be had again by the seed that --json names."""
    found = json.loads(run(saved, "--tokens=20", "--json").stdout)
    again = json.loads(run(saved, "--tokens=20", "--json", f"--seed={found['seed']}").stdout)
    assert found == again
    assert found["text"] == expected(saved, "", tokens=20, seed=found["seed"])


def test_nothing_on_stdout_moves_a_terminal(saved: SavedModel) -> None:
    """Of what a model and a prompt write, only line breaks and tabs control anything; --json keeps it all."""
    prompt, seed = "\x1b[31mred\x07\n", "--seed=2"
    exact = expected(saved, prompt, tokens=200, seed=2)
    assert any(ord(one) < 32 for one in exact), "a random model writes control characters"
    result = run(saved, "--prompt", prompt, seed, "--echo")
    assert all(map(is_harmless, result.stdout))
    assert result.stdout.startswith("�[31mred�\n")
    assert len(result.stdout) == len(prompt + exact) + 1
    assert json.loads(run(saved, "--prompt", prompt, seed, "--json").stdout)["text"] == exact


def test_text_ends_before_a_stop_word(saved: SavedModel) -> None:
    """--stop may be given several times; a prompt is printed off a terminal only with --echo."""
    whole = expected(saved, tokens=60, seed=1)
    stop = (whole[25:28], whole[10:12])
    result = run(
        saved, "--prompt", PROMPT, "--tokens=60", "--seed=1", "--stop", stop[0], "--stop", stop[1], "--json"
    )
    assert json.loads(result.stdout)["text"] == expected(saved, stop=stop, tokens=60, seed=1) == whole[:10]


def test_a_prompt_from_stdin(saved: SavedModel) -> None:
    """--prompt - continues what stdin says; what is no UTF-8 is refused."""
    flags = ("--prompt", "-", "--tokens=5", "--seed=1", "--json")
    found = json.loads(run(saved, *flags, stdin="Brücke\n").stdout)
    assert found["prompt"] == "Brücke\n"
    assert found["text"] == expected(saved, "Brücke\n", tokens=5, seed=1)
    refused = run(saved, *flags, stdin=b"\xff")
    assert refused.exit_code == 2
    assert "stdin is not UTF-8" in refused.stderr


def test_it_writes_piece_by_piece(saved: SavedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is printed before the next token is chosen; Ctrl-C ends the line with code 130."""
    choose = Sampling.choose
    chosen: list[int] = []
    flushed: list[str] = []

    def interrupted(self: Sampling, *arguments) -> int:
        flushed.append(_written())
        if len(chosen) == 8:
            raise KeyboardInterrupt
        chosen.append(choose(self, *arguments))
        return chosen[-1]

    written: list[str] = []
    monkeypatch.setattr(Sampling, "choose", interrupted)
    monkeypatch.setattr("click.echo", _keeping(written))

    def _written() -> str:
        return "".join(written)

    result = run(saved, "--prompt", PROMPT, "--temperature=0")
    assert result.exit_code == 130
    assert len(set(flushed)) > 4
    assert written[-2:] == ["\n", "interrupted\n"]


def _keeping(written: list[str]):
    def echo(message: str = "", *, nl: bool = True, err: bool = False) -> None:
        del err
        written.append(message + ("\n" if nl else ""))

    return echo


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--temperature=-1",), "temperature = -1.0 is impossible; use 0 or more (--temperature)"),
        (("--top-p=2",), "(--top-p)"),
        (("--top-k=-2",), "(--top-k)"),
        (("--repetition-penalty=0",), "(--repetition-penalty)"),
        (("--seed=-1",), "(--seed)"),
        (("--stop", ""), "a stop word is empty: nothing would be written; leave it out (--stop)"),
    ],
)
def test_impossible_options_are_refused(saved: SavedModel, arguments: tuple[str, ...], message: str) -> None:
    """The error names the option and what is possible, with exit code 2 and an empty stdout."""
    result = run(saved, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_no_model_is_an_error(tmp_path: Path) -> None:
    """A folder without a model is named."""
    result = CliRunner().invoke(main, ["generate", str(tmp_path / "nothing")])
    assert result.exit_code == 1
    assert str(tmp_path / "nothing") in result.stderr
