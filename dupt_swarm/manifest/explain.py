"""Explains each error in a manifest, and the first difference between two, in one sentence."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import BaseModel, ValidationError

# Names that people know from other projects, and ours.
HABITS = {
    "lr": "learning_rate",
    "wd": "weight_decay",
    "eps": "epsilon",
    "n_layer": "layers",
    "n_layers": "layers",
    "num_layers": "layers",
    "n_head": "heads",
    "num_heads": "heads",
    "d_model": "width",
    "n_embd": "width",
    "hidden_size": "width",
    "d_ff": "hidden_width",
    "block_size": "context_length",
    "n_ctx": "context_length",
    "seq_len": "context_length",
    "vocab_size": "vocabulary_size",
    "batch_size": "tokens_per_step",
    "grad_clip": "clip_norm",
}

# Keys of earlier versions, and what to do about them.
FORMER = {"codec": 'it is now a table [encoding], with contribution = "…" and average = "…"'}


def explain_invalid(error: ValidationError, model: type[BaseModel], source: str) -> str:
    """Every problem in ``error``, one line each: where, what, remedy."""
    known = dotted_keys(model)
    lines = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        kind, message = problem["type"], problem["msg"]
        if kind == "extra_forbidden":
            lines.append(f"{source}: unknown key `{where}`{_suggestion(where, known)}")
        elif kind == "missing":
            lines.append(f"{source}: `{where}` is missing; add it")
        elif kind == "value_error":
            text = message.removeprefix("Value error, ")
            lines.append(f"{source}: {f'`{where}`: ' if where else ''}{text}")
        elif kind == "json_invalid":
            lines.append(f"{source}: not valid JSON: {message}")
        else:
            value = problem["input"]
            lines.append(f"{source}: `{where}` = {value!r}: {message[0].lower()}{message[1:]}")
    return "\n".join(lines)


def dotted_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """All keys of a model and its nested models, such as ``inner.learning_rate``."""
    keys = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys += dotted_keys(kind, f"{prefix}{name}.")
        else:
            keys.append(f"{prefix}{name}")
    return keys


def _suggestion(where: str, known: list[str]) -> str:
    if where in FORMER:
        return f"; {FORMER[where]}"
    table, _, leaf = where.rpartition(".")
    leaf = HABITS.get(leaf, leaf)
    # The same key (in this table first, then in others), then similar spellings.
    same = sorted((key for key in known if _leaf(key) == leaf), key=lambda key: _table(key) != table)
    near = _spelled_alike(leaf, [key for key in known if _table(key) == table])
    tables = difflib.get_close_matches(leaf, {_table(key) for key in known} - {""}, n=1) if not table else []
    candidates = [*same, *near, *tables, *_spelled_alike(leaf, known)]
    return f"; did you mean `{candidates[0]}`?" if candidates else "; remove it"


def _spelled_alike(leaf: str, keys: list[str]) -> list[str]:
    by_leaf = {_leaf(key): key for key in reversed(keys)}
    return [by_leaf[name] for name in difflib.get_close_matches(leaf, by_leaf, n=1)]


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _table(key: str) -> str:
    return key.rpartition(".")[0]


def explain_difference(mine: BaseModel, theirs: BaseModel) -> str:
    """The first key whose values differ between two models of one type, or an empty string."""
    other = _flatten(theirs.model_dump())
    for key, value in _flatten(mine.model_dump()).items():
        if value != other[key]:
            return f"`{key}` is {value!r} here and {other[key]!r} there"
    return ""


def _flatten(tables: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
