"""README.md: what the model is, how to use it, and where it comes from.

The first lines are YAML, which Hugging Face's hub reads. What other peers said is escaped and bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.learning.export.hugging_face import TASK_TOKENS, HuggingFace
from dupt_swarm.learning.export.learned import Format, Learned
from dupt_swarm.learning.export.origin import Evaluated, TaskEvaluated
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.model import ModelKind

CHARACTERS_MAX, NAMES_MAX, ROWS_MAX = 80, 100, 100
# Backslashes take the meaning from all of it; hyphens, commas and apostrophes have none within a line.
PUNCTUATION = re.compile(r"([!-&(-+./:-@\[-`{-~])")

UNCHECKED = "Each evaluator published its own figure; nobody else has checked it."
HUB_NAMES: dict[ModelKind, str] = {
    "decoder": "text-generation",
    "encoder": "fill-mask",
    "encoder-decoder": "text2text-generation",
}
"""What Hugging Face's hub calls the pipeline of a model without a task."""
CALLED: dict[ModelKind, str] = {
    "decoder": "A GPT",
    "encoder": "An encoder (BERT)",
    "encoder-decoder": "An encoder and a decoder (Transformer)",
}


def render_card(learned: Learned, form: Format) -> str:
    """The card of a model, as it is written in this format."""
    manifest, origin = learned.manifest, learned.origin
    parts = [
        _front_matter(manifest, form),
        f"# {plain_text(origin.swarm_id)}, round {origin.round:,}",
        _what_it_is(learned),
        "## Use",
        f"In this folder:\n\n```python\n{form.example(manifest)}\n```",
        *_task(learned, form),
        "## Origin",
        _origin(learned),
        "## Evaluations",
        _evaluations(origin.evaluations),
        *([_tasks(origin.tasks)] if origin.tasks else []),
        *([UNCHECKED] if origin.evaluations or origin.tasks else []),
        "## Manifest",
        "What all peers of the swarm shared:"
        if manifest.swarm_id == origin.swarm_id
        else "Of this model, which was fine-tuned from the swarm's:",
        f"```toml\n{manifest.to_toml()}```",
    ]
    return "\n\n".join(parts) + "\n"


def plain_text(text: str) -> str:
    """``text`` from a stranger as Markdown that shows it as it is: on one line, and not too long."""
    line = one_line(text).strip()
    if len(line) > CHARACTERS_MAX:
        line = line[: CHARACTERS_MAX - 1] + "…"
    return PUNCTUATION.sub(r"\\\1", line)


def _front_matter(manifest: Manifest, form: Format) -> str:
    task = manifest.objective.task
    lines = [
        "---",
        f"library_name: {form.library}",
        f"pipeline_tag: {task.hub_name if task else HUB_NAMES[manifest.model.kind]}",
        "tags:",
        *(f"- {tag}" for tag in ("dupt_swarm", form.name, manifest.objective.kind)),
        "---",
    ]
    return "\n".join(lines)


def _what_it_is(learned: Learned) -> str:
    shape = learned.manifest.model
    weights = sum(parameter.numel() for parameter in learned.model.parameters())
    parts = shape.parts.removeprefix(f"{shape.kind}, ")
    return (
        f"{CALLED[shape.kind]} with {weights:,} parameters: {shape.blocks} blocks of width {shape.width}, "
        f"{shape.heads} heads, {parts}, a context of {shape.context_length:,} tokens. A swarm of independent "
        "peers trained it with dupt_swarm (decentralized unsupervised pre-training). Each peer's texts "
        "stayed on its machine, so nobody can say what all of them were."
    )


def _task(learned: Learned, form: Format) -> list[str]:
    manifest, objective = learned.manifest, learned.manifest.objective
    if objective.task is None:
        return []
    start, delimiter, extract = _special(learned)
    state = f"`{extract}`" if not manifest.model.bidirectional else f"`{start}`, through pooler and tanh"
    sentences = [
        f"Fine-tuned for {objective.kind}, by L3 = L2 + λ·L1 with λ = {objective.lm_weight:g} (Radford et "
        f"al. 2018, section 3.2). The answer is computed from the last layer's hidden state at {state}, "
        "by the linear layer W_y: `weight` [outputs, width] and `bias` [outputs].",
        _with_tokens(objective.task.input, start, delimiter, extract),
        f"A text too long for the context was truncated. W_y is in {_head_file(manifest, form)}.",
    ]
    if objective.labels:
        sentences.append(f"The outputs are, in this order: {_listed(objective.labels)}.")
    return ["## Task", *sentences]


def _special(learned: Learned) -> tuple[str, ...]:
    """What the tokens around a task's texts are called: before them, between them and after them."""
    if not learned.manifest.model.bidirectional:
        return TASK_TOKENS
    tokens, name_of = learned.tokenizer.encoder_tokens, learned.tokenizer.name_of
    return name_of(tokens.first), name_of(tokens.last), name_of(tokens.last)


def _with_tokens(text: str, *names: str) -> str:
    for usual, name in zip(TASK_TOKENS, names, strict=True):
        text = text.replace(usual, name)
    return text


def _head_file(manifest: Manifest, form: Format) -> str:
    if not isinstance(form, HuggingFace):
        return "`model.safetensors`, as `head`"
    if form.has_head(manifest):
        return "`model.safetensors`, where its class of transformers expects it"
    if manifest.model.bidirectional:
        return "`head.safetensors`, because no class of transformers reads two texts in either order"
    return "`head.safetensors`, because no class of transformers has such a head with a bias"


def _origin(learned: Learned) -> str:
    origin, fine_tuned = learned.origin, learned.fine_tuned_digest
    rows = [
        ("swarm", plain_text(origin.swarm_id)),
        ("round", f"{origin.round:,}"),
        ("tokens seen", f"{origin.swarm_tokens:,}"),
        ("state digest", plain_text(origin.state_digest)),
        *([("after fine-tuning", fine_tuned)] if fine_tuned else []),
        ("manifest, SHA-256", learned.manifest.sha256),
        ("tokenizer, SHA-256", learned.tokenizer.sha256),
        ("peers with a name", _listed(origin.peers) or "none that is known"),
    ]
    if origin.pulled_at:
        rows.append(("taken from the swarm", plain_text(origin.pulled_at)))
    if origin.version:
        rows.append(("dupt_swarm", plain_text(origin.version)))
    return _table(("what", "value"), rows)


def _evaluations(evaluations: Sequence[Evaluated]) -> str:
    if not evaluations:
        return "None that is known."
    rows = [
        (
            plain_text(found.dataset),
            _figure(found.bits_per_byte),
            _figure(found.loss_nats),
            _figure(found.accuracy),
            f"{found.round:,}",
            plain_text(found.evaluator),
        )
        for found in evaluations[:ROWS_MAX]
    ]
    head = ("dataset", "bits per byte", "nats per token", "accuracy", "round", "evaluator")
    return _table(head, rows) + _more(len(evaluations) - len(rows))


def _tasks(tasks: Sequence[TaskEvaluated]) -> str:
    rows = [
        (
            plain_text(found.task),
            plain_text(found.metric),
            _figure(found.value),
            f"{found.round:,}",
            plain_text(found.evaluator),
        )
        for found in tasks[:ROWS_MAX]
    ]
    head = ("task of lm-evaluation-harness", "metric", "value", "round", "evaluator")
    return _table(head, rows) + _more(len(tasks) - len(rows))


def _more(left_out: int) -> str:
    return f"\n\nAnd {left_out:,} more." if left_out else ""


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(plain_text(name) for name in names[:NAMES_MAX])
    left_out = len(names) - NAMES_MAX
    return f"{shown} and {left_out:,} more" if left_out > 0 else shown


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
