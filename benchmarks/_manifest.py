"""The manifest of a benchmark's swarm."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import load_preset

UNREAD = b"{}"
"""The tokenizer where tokens are random numbers."""

changes_option = click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a key of the manifest."
)


def manifest_of(
    tables: Mapping[str, Any], tokenizer: Tokenizer | None = None, *, name: str = "bench", seed: int = 0
) -> Manifest:
    """A manifest of these tables; the model has as many tokens as ``tokenizer``.

    Without one it has as many as the tables say, and `UNREAD`.
    """
    model = dict(tables["model"])
    if tokenizer:
        model["vocabulary_size"] = tokenizer.vocabulary_size
    digest = tokenizer.sha256 if tokenizer else hashlib.sha256(UNREAD).hexdigest()
    about = {"sha256": digest, "vocabulary_size": model["vocabulary_size"]}
    return Manifest.model_validate({**tables, "name": name, "seed": seed, "tokenizer": about, "model": model})


def with_tokenizer(manifest: Manifest, tokenizer: Tokenizer) -> Manifest:
    """The same with ``tokenizer``, which may have fewer tokens than the model."""
    about = {"sha256": tokenizer.sha256, "vocabulary_size": tokenizer.vocabulary_size}
    return manifest.changed({"tokenizer": about})


def speed_manifest(preset: str) -> Manifest:
    """The preset's size with what plain loops have: GPT-2's block, AdamW, whole rounds."""
    tables = load_preset(preset)
    tables["model"] |= {**ARCHITECTURES["gpt2"].parts, "hidden_width": 4 * tables["model"]["width"]}
    tables["inner"]["optimizer"], tables["rounds"]["growth"] = "adamw", 1.0
    return manifest_of(tables)


def parsed(changes: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` changes, such as ``outer.momentum=0.5``, by their keys."""
    pairs = (change.split("=", 1) for change in changes)
    return {key: tomllib.loads(f"value = {value}")["value"] for key, value in pairs}
