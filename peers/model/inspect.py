"""``dupt-model inspect``: what a model folder, a checkpoint, a peer's folder or a manifest is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.command_line.printable import one_line
from dupt_swarm.learning.export.origin import Origin
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.tables import LANGUAGE, MASKED, SEQ2SEQ
from peers import options
from peers.screen.words import plural

FOREIGN = "model in Hugging Face's format"
WITHOUT_TASK = {
    LANGUAGE: "language (L1)",
    MASKED: "masked language (MLM)",
    SEQ2SEQ: "a text for a text (seq2seq)",
}
SETTINGS: dict[str, dict[str, str]] = {
    MASKED: {"nsp": ", and whether a text follows on another (NSP)"},
    SEQ2SEQ: {"label_smoothing": ", label smoothing {:g}"},
}
"""What is told of an objective without a task beside its kind, and, if it is not 0, how."""


@click.command("inspect")
@click.argument("path", type=UserPath(path_type=Path))
@options.as_json
@command_errors
def command(path: Path, as_json: bool) -> None:
    """Say what PATH is: a model folder, ours or Hugging Face's, a checkpoint, a peer's folder, or a manifest.

    Its state is read and checked against its digest, its tokenizer against the manifest.
    """
    found = about_manifest(path) if path.is_file() else about_model(path)
    if as_json:
        click.echo(json.dumps(found, indent=2, default=Origin.to_json))
        return
    for line in _lines(found):
        click.echo(one_line(line))


def about_model(path: Path) -> dict[str, Any]:
    """What the model at ``path`` is.

    Raises:
        DuptError: there is none, or it is damaged.
    """
    from dupt_swarm.models.saved_model import find_model, load_model

    model = load_model(path)
    state = model.state
    return {
        "path": str(path),
        "kind": _kind(path, find_model(path)),
        **_shape(model.manifest, state.anchor.numel()),
        "tokenizer": {**_tokenizer(model.manifest, model.tokenizer.sha256), "lossy": model.tokenizer.lossy},
        "bytes": sum(file.stat().st_size for file in model.folder.iterdir() if file.is_file()),
        "round": state.round,
        "tokens": state.swarm_tokens,
        "digest": state.digest,
        "buffers": sorted(state.buffers),
        "custom": not model.described,
        "origin": model.origin,
        "notes": list(model.notes),
    }


def about_manifest(path: Path) -> dict[str, Any]:
    """What the manifest at ``path`` describes.

    Raises:
        ManifestError: it is not valid.
    """
    manifest = (
        Manifest.from_bytes(path.read_bytes(), str(path)) if path.suffix == ".json" else Manifest.load(path)
    )
    beside = path.with_name("tokenizer.json")
    found = hashlib.sha256(beside.read_bytes()).hexdigest() if beside.exists() else None
    return {
        "path": str(path),
        "kind": "manifest",
        **_shape(manifest, _count_parameters(manifest)),
        "tokenizer": _tokenizer(manifest, found),
        "bytes": path.stat().st_size,
    }


def _kind(path: Path, newest: Path) -> str:
    if newest != path:
        return f"peer's folder, {newest.name}"
    if (path / "config.json").exists():
        return FOREIGN
    return "model folder" if (path / "manifest.json").exists() else "checkpoint"


def _shape(manifest: Manifest, parameters: int) -> dict[str, Any]:
    objective = manifest.objective
    told = None if objective.supervised else {"kind", *SETTINGS.get(objective.kind, ())}
    return {
        "name": manifest.name,
        "swarm_id": manifest.swarm_id,
        "manifest_sha256": manifest.sha256,
        "model": {**manifest.model.model_dump(), "parts": manifest.model.parts, "parameters": parameters},
        "objective": objective.model_dump(include=told),
    }


def _tokenizer(manifest: Manifest, found: str | None) -> dict[str, Any]:
    """The manifest's; whether the one beside it has that hash, null if there is none."""
    wanted = manifest.tokenizer
    return {**wanted.model_dump(), "matches": None if found is None else found == wanted.sha256}


def _count_parameters(manifest: Manifest) -> int:
    """Of the manifest's model, without the memory that it would take."""
    from dupt_swarm.learning.interruptible import parameter_count
    from dupt_swarm.learning.objectives import build_outline

    return parameter_count(build_outline(manifest))


def _lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    model, objective, tokenizer = found["model"], found["objective"], found["tokenizer"]
    matches = {True: "matches the manifest", False: "is NOT the manifest's", None: "is not there"}
    facts = {
        "kind": found["kind"],
        "swarm": found["swarm_id"],
        "model": f"{_layers(model)}, {plural(model['heads'], 'head')}, width {model['width']}, "
        f"context {model['context_length']}, vocabulary {model['vocabulary_size']}",
        "parameters": f"{model['parameters']:,}",
        "parts": model["parts"],
        "objective": _describe(objective),
        "tokenizer": f"{tokenizer['sha256'][:12]}, {tokenizer['vocabulary_size']} ids; "
        f"tokenizer.json {matches[tokenizer['matches']]}",
        "on disk": f"{found['bytes']:,} bytes",
    }
    if "digest" in found:
        facts |= {"swarm": f"{found['swarm_id']}, if one trains it on"} if found["kind"] == FOREIGN else {}
        facts |= {
            "round": f"{found['round']}, {found['tokens']:,} tokens",
            "digest": f"{found['digest']} (verified)",
        }
    if found.get("custom"):
        facts["parameters"] += ", of a custom model that the manifest does not describe"
    if tokenizer.get("lossy"):
        facts["tokenizer"] += f"; it does not keep text as it is: {tokenizer['lossy']}"
    lines = [str(found["path"]), *(f"  {key:<11} {value}" for key, value in facts.items())]
    lines += [f"  {'note':<11} {note}" for note in found.get("notes", [])]
    return lines + _origin_lines(found.get("origin"))


def _layers(model: dict[str, Any]) -> str:
    if model["encoder_layers"]:
        return f"{plural(model['encoder_layers'], 'layer')} of the encoder, {model['layers']} of the decoder"
    return plural(model["layers"], "layer")


def _describe(objective: dict[str, Any]) -> str:
    kind = objective["kind"]
    if kind in WITHOUT_TASK:
        settings = SETTINGS.get(kind, {}).items()
        told = (words.format(objective[name]) for name, words in settings if objective[name])
        return WITHOUT_TASK[kind] + "".join(told)
    labels = f", labels {', '.join(objective['labels'])}" if objective["labels"] else ""
    return f"{objective['kind']}{labels}, lambda {objective['lm_weight']:g}"


def _origin_lines(origin: Origin | None) -> list[str]:
    if origin is None:
        return []
    lines = [
        f"  {'taken from':<11} {origin.swarm_id} at round {origin.round}, {origin.pulled_at}, "
        f"state {origin.state_digest[:12]}"
    ]
    if origin.peers:
        lines.append(f"  {'peers':<11} {', '.join(origin.peers)}")
    return lines + [f"  {'evaluated':<11} {one}" for one in (*origin.evaluations, *origin.tasks)]
