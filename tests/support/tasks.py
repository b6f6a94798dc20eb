"""Very small tasks: models, tables, and texts that are easy to tell apart."""

import json
import random
from pathlib import Path
from typing import Any

from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.objectives.start import task_manifest
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.manifest import Manifest, Objective
from tests.support.tiny import tiny_manifest

GERMAN, ENGLISH = ("Bär", "Brücke", "läuft", "über"), ("bear", "bridge", "walks", "over")


def small_task(objective: Objective, **changes: Any) -> tuple[Manifest, TaskModel]:
    """A manifest of a very small model for a task, and that model; ``changes`` as in `tiny_manifest`."""
    manifest = task_manifest(tiny_manifest(**changes), objective)
    model = build_model(manifest)
    assert isinstance(model, TaskModel)
    return manifest, model


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A .jsonl."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def two_languages(count: int, seed: int) -> list[dict[str, Any]]:
    """Some words of one of two languages each, and which it is."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        label, words = draw.choice((("de", GERMAN), ("en", ENGLISH)))
        rows.append({"text": " ".join(draw.choices(words, k=draw.randint(1, 4))), "label": label})
    return rows
