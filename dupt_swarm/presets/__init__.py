"""Presets: manifests that lack only a name, a seed and a tokenizer; one TOML file each; and fine-tuning."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from pydantic import ValidationError

from dupt_swarm.errors import ManifestError, UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.schema.explain import explain_invalid

PRESETS = ("tiny", "gpt1")


def load_preset(preset: str) -> dict[str, Any]:
    """The preset's tables, without the name, seed and tokenizer that `dupt-peer new` adds."""
    if preset not in PRESETS:
        raise UsageError(f"unknown preset `{preset}`; choose one of {', '.join(PRESETS)}")
    return _read(preset)


def load_finetuning() -> dict[str, Any]:
    """The tables of a fine-tuning's optimisation; its `rounds` count examples instead of tokens."""
    return _read("finetune")


def manifest_from_preset(
    preset: str, *, name: str, seed: int, tokenizer_sha256: str, vocabulary_size: int
) -> Manifest:
    """A complete manifest: the preset with the tokenizer that was trained for it."""
    tables = load_preset(preset)
    tables["model"]["vocabulary_size"] = vocabulary_size
    tokenizer = {"sha256": tokenizer_sha256, "vocabulary_size": vocabulary_size}
    try:
        return Manifest.model_validate({"name": name, "seed": seed, "tokenizer": tokenizer, **tables})
    except ValidationError as error:
        raise ManifestError(explain_invalid(error, Manifest, f"preset {preset}")) from error


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("dupt_swarm.presets").joinpath(f"{name}.toml").read_text("utf-8"))
