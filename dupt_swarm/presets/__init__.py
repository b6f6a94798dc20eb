"""Presets: manifests that lack only a name, a seed and a tokenizer; one TOML file each.

Two more have no model, since they begin from one that exists: finetune.toml and continue.toml.

A preset's table `sizes` has what its sizes change, the one that it has without them first. What size `tiny`
of all of them has in common is in cpu.toml.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any, Literal

from dupt_swarm.errors import UsageError
from dupt_swarm.manifest import Manifest

PRESETS = ("tiny", "gpt1", "gpt2", "llama", "palm", "bert", "transformer")
TINY = "tiny"


def sizes_of(preset: str) -> list[str]:
    """The sizes to choose from, the preset's own first; empty if there is one only.

    Raises:
        UsageError: there is no such preset.
    """
    if preset not in PRESETS:
        raise UsageError(f"unknown preset `{preset}`; choose one of {', '.join(PRESETS)}")
    return list(_read(preset).get("sizes", {}))


def load_preset(preset: str, size: str | None = None) -> dict[str, Any]:
    """The preset's tables, without the name, seed and tokenizer that `dupt-peer new` adds.

    Args:
        preset: one of `PRESETS`.
        size: one of `sizes_of`; None: the preset's own.

    Raises:
        UsageError: there is no such preset, or it has no such size.
    """
    sizes = sizes_of(preset)
    if size is not None and size not in sizes:
        choice = f"choose one of {', '.join(sizes)}" if sizes else "it has one only, so give none"
        raise UsageError(f"preset `{preset}` has no size `{size}`; {choice}", setting="size")
    tables = _read(preset)
    changes = tables.pop("sizes", {}).get(size, {})
    for change in (_read("cpu"), changes) if size == TINY else (changes,):
        tables |= {name: tables.get(name, {}) | keys for name, keys in change.items()}
    return tables


def load_beginning(name: Literal["continue", "finetune"], context_length: int) -> dict[str, Any]:
    """The tables with which a model of this context is trained on, or fine-tuned: all but the model's."""
    tables = _read(name)
    for key in ("tokens_per_step", "tokens_per_round"):
        tables["rounds"][key] *= context_length  # which the file counts in sequences
    return tables


def manifest_from_preset(
    preset: str, *, name: str, seed: int, tokenizer_sha256: str, vocabulary_size: int, size: str | None = None
) -> Manifest:
    """A complete manifest: the preset with the tokenizer that was trained for it."""
    tables = load_preset(preset, size)
    tables["model"]["vocabulary_size"] = vocabulary_size
    tokenizer = {"sha256": tokenizer_sha256, "vocabulary_size": vocabulary_size}
    return Manifest.of({"name": name, "seed": seed, "tokenizer": tokenizer, **tables}, f"preset {preset}")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("dupt_swarm.presets").joinpath(f"{name}.toml").read_text("utf-8"))
