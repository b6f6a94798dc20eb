"""The card tells what the model is and where it comes from, and lets no stranger write in it."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from markdown_it import MarkdownIt

from dupt_swarm.learning.export.card import CHARACTERS_MAX, NAMES_MAX, ROWS_MAX, render_card
from dupt_swarm.learning.export.export import FORMATS, choose_format, export
from dupt_swarm.learning.export.origin import Evaluated, Origin, TaskEvaluated
from dupt_swarm.manifest import Manifest
from tests.learning.export.test_agreement import ODD, POST, PRE, SHAPES, TASKS, TOKENIZER, learned_as

EVIL = "`</td><script>alert(1)</script>` | a\n# b\r\n---\n[x](javascript:1) ![y](z) **\x1b[31m\u202e <b>"


def card_of(shape: dict[str, Any], name: str | None = None, origin: Origin | None = None, **task: Any) -> str:
    """The card of a model of this shape."""
    learned = learned_as(shape, **task)
    if origin is not None:
        learned = replace(learned, origin=origin)
    return render_card(learned, choose_format(name, learned.manifest.model))


def front_matter(card: str) -> Any:
    """What the hub reads."""
    _, yaml_text, _ = card.split("---\n", 2)
    return yaml.safe_load(yaml_text)


def rendered(card: str) -> str:
    """HTML as GitHub makes it."""
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(card.split("---\n", 2)[2])


def code_of(card: str) -> str:
    """The example."""
    found = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert found
    return found[1]


def test_front_matter() -> None:
    """Library, task and tags are what Hugging Face's hub understands."""
    assert front_matter(card_of(PRE)) == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["dupt_swarm", "gpt2", "lm"],
    }
    assert front_matter(card_of(POST, **TASKS["entailment"])) == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["dupt_swarm", "openai-gpt", "entailment"],
    }
    assert front_matter(card_of(ODD, kind="similarity")) == {
        "library_name": "dupt_swarm",
        "pipeline_tag": "sentence-similarity",
        "tags": ["dupt_swarm", "safetensors", "similarity"],
    }


def test_origin() -> None:
    """Swarm, round, tokens, digest, peers, evaluations and the whole manifest are there."""
    figures = Evaluated(dataset="wiki", bits_per_byte=1.23456, loss_nats=3.2, round=1_100, evaluator="judge")
    origin = Origin(
        swarm_id="run-0123456789ab",
        round=1_234,
        swarm_tokens=5_678_900,
        state_digest="ab" * 32,
        peers=("Ada", "Zoë's"),
        evaluations=(figures,),
        tasks=(TaskEvaluated(task="arc_easy", metric="acc", value=0.25, round=1_200, evaluator="judge"),),
        pulled_at="2026-01-02T03:04:05Z",
        version="0.3.0",
    )
    learned = replace(learned_as(PRE), origin=origin)
    card = render_card(learned, FORMATS["gpt2"])
    assert "# run-0123456789ab, round 1,234\n" in card
    for row in (
        "| tokens seen | 5,678,900 |",
        f"| state digest | {'ab' * 32} |",
        f"| manifest, SHA-256 | {learned.manifest.sha256} |",
        f"| tokenizer, SHA-256 | {TOKENIZER.sha256} |",
        "| peers with a name | Ada, Zoë's |",
        "| wiki | 1.2346 | 3.2000 | – | 1,100 | judge |",
        "| arc\\_easy | acc | 0.2500 | 1,200 | judge |",
    ):
        assert f"{row}\n" in card
    assert "<td>2026-01-02T03:04:05Z</td>" in rendered(card)
    toml = re.search(r"```toml\n(.*?)```", card, re.DOTALL)
    assert toml
    assert Manifest.parse(toml[1]) == learned.manifest


def test_a_checkpoint_knows_less() -> None:
    """Without peers and evaluations the card says so."""
    card = card_of(PRE)
    assert "| peers with a name | none that is known |" in card
    assert "## Evaluations\n\nNone that is known.\n" in card
    assert "What all peers of the swarm shared:" in card
    assert "after fine-tuning" not in card


def test_what_was_made_of_it() -> None:
    """A fine-tuned model tells which state of which swarm it was made from, and that it is another."""
    origin = Origin(swarm_id="other-0123456789ab", round=5, swarm_tokens=6, state_digest="a" * 64)
    learned = learned_as(PRE, kind="multiple-choice")
    card = render_card(replace(learned, origin=origin, fine_tuned_digest="b" * 64), FORMATS["gpt2"])
    assert f"| state digest | {'a' * 64} |\n| after fine-tuning | {'b' * 64} |\n" in card
    assert "Of this model, which was fine-tuned from the swarm's:" in card


def test_strangers_write_nothing() -> None:
    """Names and labels full of markup appear as they are, on one line, without control characters."""
    origin = Origin(
        swarm_id=EVIL,
        round=1,
        swarm_tokens=2,
        state_digest=EVIL,
        peers=(EVIL, "b"),
        evaluations=(Evaluated(dataset="d", loss_nats=2.0, accuracy=0.5, round=3, evaluator=EVIL),),
        tasks=(TaskEvaluated(task="t", metric="acc", value=0.5, round=3, evaluator=EVIL),),
        pulled_at=EVIL,
        version=EVIL,
    )
    html = rendered(card_of(POST, origin=origin, kind="classification", labels=[EVIL, "b"]))
    assert not re.search(r"<(script|b|a|img|del|strong|em)\b", html)
    assert html.count("<h1>") == 1 and html.count("<hr") == 0
    assert not any(mark in html for mark in "\x1b\u202e")
    assert html.count("<table>") == 3
    rows = [row.count("<td>") for row in html.split("<tr>")[2:]]
    assert set(rows) <= {0, 2, 5, 6}
    shown = "`&lt;/td&gt;&lt;script&gt;alert(1)&lt;/script&gt;` | a # b --- [x](javascript:1)"
    assert html.count(shown) == 9  # title, swarm, digest, peer, time, version, evaluators, label


def test_strangers_do_not_fill_it() -> None:
    """Long names are cut, and of very many only some are shown."""
    peers = tuple(f"peer {number} {'x' * 1000}" for number in range(10_000))
    evaluation = Evaluated(dataset="d", loss_nats=1.0, round=3, evaluator="e" * 1000)
    origin = Origin(
        swarm_id="s",
        round=1,
        swarm_tokens=2,
        state_digest="d",
        peers=peers,
        evaluations=10_000 * (evaluation,),
        tasks=10_000 * (TaskEvaluated(task="t", metric="m", value=1.0, round=3, evaluator="e" * 1000),),
    )
    card = card_of(PRE, origin=origin)
    assert len(card) < 4 * (NAMES_MAX + ROWS_MAX) * CHARACTERS_MAX
    assert "xxx… and 9,900 more |" in card
    assert card.count("And 9,900 more.") == 2


LANGUAGE_OR_CHOICE: list[dict[str, Any]] = [{}, {"kind": "multiple-choice"}]
EXAMPLES: list[tuple[Any, Any]] = [
    *((shape, task) for shape in (PRE, POST, ODD) for task in LANGUAGE_OR_CHOICE),
    *zip(repeat(POST), TASKS.values(), strict=False),
    (ODD, TASKS["entailment"]),
    *((SHAPES["llama"], task) for task in (*LANGUAGE_OR_CHOICE, *TASKS.values())),
    (SHAPES["cohere"], {}),
]


@pytest.mark.parametrize(("shape", "task"), EXAMPLES)
def test_the_example_runs(
    shape: dict[str, Any],
    task: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """The card's own code runs in the folder; a task's answers are those of our model."""
    learned = learned_as(shape | {"context_length": 32}, **task)
    export(tmp_path, learned, choose_format(None, learned.manifest.model))
    (tmp_path / "example.py").write_text(code_of((tmp_path / "README.md").read_text()))
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path("example.py")
    if "answer" not in names:
        assert names["tokenizer"] is not None and names["model"] is not None
        return
    expected = our_answer(learned, names["tokens"])
    torch.testing.assert_close(names["answer"].flatten(), expected, rtol=0, atol=1e-4)
    assert capsys.readouterr().out


def our_answer(learned: Any, tokens: Any) -> torch.Tensor:
    """What our task model says of the texts in the example."""
    texts: dict[str, list[tuple[str, ...]]] = {
        "classification": [("a text",)],
        "entailment": [("a premise", "a hypothesis")],
        "similarity": [("a text", "another"), ("another", "a text")],
        "multiple-choice": [("a context", "one choice"), ("a context", "another")],
    }
    rows = [tokens(*parts) for parts in texts[learned.manifest.objective.kind]]
    lengths = torch.tensor([[len(row) for row in rows]])
    padded = torch.tensor([[row + [0] * (int(lengths.max()) - len(row)) for row in rows]])
    with torch.no_grad():
        return learned.model.logits(padded, lengths)[0]
