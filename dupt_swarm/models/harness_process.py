"""The process in which lm-evaluation-harness runs; it needs little of ours, and so begins soon.

    python -m dupt_swarm.models.harness_process FOLDER    measures FOLDER/model by FOLDER/asked.json

Its results are in FOLDER/results.json as soon as they are whole. It ends when its standard input is closed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dupt_swarm.node.record import TASK_VALUE_MAX, TASKS_MAX, plain_name

ASKED_FILE, RESULTS_FILE, MODEL = "asked.json", "results.json", "model"
NICE = 10


def main() -> None:
    """Measure, and write the results."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(NICE)
    folder = Path(sys.argv[1])
    asked = json.loads((folder / ASKED_FILE).read_bytes())
    # Or the harness' copy of the texts would stay in the user's cache.
    os.environ.setdefault("HF_DATASETS_CACHE", str(folder / "datasets"))
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    model = HFLM(
        str(folder / MODEL),
        device=asked["device"],
        batch_size=asked["batch_size"],
        dtype="float32",
        add_bos_token=False,
        logits_cache=False,  # it takes windows for equal that only look so
    )
    found: dict[str, Mapping[str, Any]] = {}
    for path in map(Path, asked["tasks"]):
        os.chdir(path.parent)
        found |= simple_evaluate(model, tasks=[str(path)], log_samples=False)["results"]
    unfinished = folder / f".{RESULTS_FILE}"
    unfinished.write_text(json.dumps(list(_results(found))[:TASKS_MAX]))
    unfinished.rename(folder / RESULTS_FILE)


def _end_with_parent() -> None:
    """However that ends: the pipe to us is closed then. Not by `sys.stdin`: Python ends with its lock."""
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


def _results(found: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The figures in what the harness returns, as fields of `TaskResult`."""
    for task, figures in found.items():
        for key, value in figures.items():
            metric, comma, filtered = key.partition(",")
            if not comma or metric.endswith("_stderr") or not isinstance(value, float | int):
                continue
            if abs(value) <= TASK_VALUE_MAX:  # and it is a number at all
                name = metric if filtered == "none" else f"{metric}-{filtered}"
                yield {"task": _named(task), "metric": _named(name), "value": float(value)}


def _named(text: str) -> str:
    return plain_name(text) or "unnamed"


if __name__ == "__main__":
    main()
