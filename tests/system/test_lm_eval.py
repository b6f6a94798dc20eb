"""A real run of lm-evaluation-harness on an exported model gives our figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from dupt_swarm.errors import install
from dupt_swarm.learning.export.export import choose_format, export
from dupt_swarm.learning.export.learned import Learned
from dupt_swarm.learning.export.origin import Origin
from dupt_swarm.learning.rolling import evaluate_documents
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.gpt import GPT
from tests.support.foreign_tokenizers import KEEPING
from tests.support.lacking import skip
from tests.support.programs import LISTEN, dupt_model, dupt_peer, first_peer, start
from tests.support.saved_models import TEXT, write_model
from tests.support.smaller import make_smaller
from tests.support.texts import library

pytestmark = pytest.mark.system

# As in docs/models.md; the documents are in the same folder.
TASK = """\
task: held_out
dataset_path: json
dataset_kwargs:
  data_files:
    test: documents.jsonl
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list:
  - metric: bits_per_byte
"""
DOCUMENTS = [
    20 * TEXT,  # many contexts long
    "Der Bär 狐狸 🦊 naïve e\u0301 \u202e\0 \r\n\r x",
    "a<|endoftext|>b",
    "<|endoftext|>begins",
    " white space \n\n",
    "x",
    "[1, 2]",
    "{{text}} {% raw %}",
    100 * "ä",  # its windows are equal: the harness' cache of logits would mistake one for another
]


@pytest.fixture(scope="module")
def lm_eval() -> list[str]:
    """The harness as a command; without it the tests are skipped, but not in CI."""
    missing = [name for name in ("lm_eval", "accelerate") if find_spec(name) is None]
    if missing:
        skip(f"{', '.join(missing)}: not installed; {install('model')} does it")
    return [sys.executable, "-m", "lm_eval"]


@pytest.mark.parametrize(
    ("model", "tokenizer"),
    [
        ({"placement": "post", "hidden_width": 128}, None),
        ({"placement": "pre"}, None),
        ({"placement": "pre"}, "llama2"),
    ],
    ids=["openai-gpt", "gpt2", "llama2's tokenizer"],
)
def test_same_bits_per_byte(
    lm_eval: list[str], model: dict[str, object], tokenizer: str | None, tmp_path: Path
) -> None:
    """Bits per byte of documents of any length and characters agree to 1e-5: no token differs."""
    foreign = Tokenizer.from_foreign(*KEEPING[tokenizer]()) if tokenizer else None
    saved = write_model(tmp_path / "model", foreign, model=model)
    ours = saved.build(torch.device("cpu"))
    assert isinstance(ours, GPT)
    exported = tmp_path / "exported"
    exported.mkdir()
    origin = Origin(
        swarm_id=saved.manifest.swarm_id, round=0, swarm_tokens=0, state_digest=saved.state.digest
    )
    form = choose_format(None, saved.manifest.model)
    export(exported, Learned(ours, saved.manifest, saved.tokenizer, origin), form)
    found = evaluate_documents(
        ours, saved.tokenizer, DOCUMENTS, stride=None, batch_size=8, device=torch.device("cpu")
    )
    assert found.bytes == sum(len(document.encode()) for document in DOCUMENTS)
    assert harness(lm_eval, exported, tmp_path / "task") == pytest.approx(found.bits_per_byte, abs=1e-5)


def write_task(folder: Path) -> Path:
    """The task's description, in a new folder with its documents."""
    folder.mkdir()
    (folder / "held_out.yaml").write_text(TASK)
    rows = [json.dumps({"text": document}) + "\n" for document in DOCUMENTS]
    (folder / "documents.jsonl").write_text("".join(rows))
    return folder / "held_out.yaml"


def harness(lm_eval: list[str], exported: Path, folder: Path) -> float:
    """The harness' bits per byte of the documents, without the network."""
    write_task(folder)
    command = [
        "run",
        "--model",
        "hf",
        "--model_args",
        f"pretrained={exported},dtype=float32,logits_cache=False,add_bos_token=False",
    ]
    command += ["--tasks", "held_out", "--include_path", ".", "--output_path", "results"]
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "TMPDIR": str(folder)}
    ended = subprocess.run(
        [*lm_eval, *command, "--device", "cpu", "--batch_size", "8"],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    [results] = (folder / "results").rglob("*.json")
    figure = json.loads(results.read_text())["results"]["held_out"]["bits_per_byte,none"]
    assert isinstance(figure, float)
    return figure


@pytest.fixture
def swarm(nothing_left: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The address of a running first peer, and a text."""
    del nothing_left
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    text = library(tmp_path / "text", "argparse", "inspect", "typing", "tarfile")
    run = str(tmp_path / "run.toml")
    done = dupt_peer("new", run, "--preset", "gpt2", "--size", "tiny", "--corpus", str(text))
    assert done.returncode == 0, done.stderr
    make_smaller(Path(run))
    with first_peer(Path(run), tmp_path / "first") as about:
        yield about["address"], text


def ended(process: subprocess.Popen[str]) -> int:
    """Its exit code, once it was told to stop."""
    process.terminate()
    process.communicate(timeout=60)
    return process.returncode


def results_in(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """What an evaluator has printed of tasks."""
    return (found for found in map(json.loads, lines) if "tasks" in found)


@pytest.mark.usefixtures("lm_eval")
def test_an_evaluator_measures_on_tasks(lm_eval: list[str], swarm: tuple[str, Path], tmp_path: Path) -> None:
    """The figure is that of the harness run by hand; all see the newest; the published card has one."""
    (address, text), task = swarm, write_task(tmp_path / "task")
    options = ("--initial-peers", address, "--corpus", str(text), "--tasks", str(task), *LISTEN, "--json")
    done = dupt_peer("evaluate", *options, "--once", "--state-dir", str(tmp_path / "once"))
    assert done.returncode == 0, done.stderr
    [found] = results_in(done.stdout.splitlines())
    assert found["round"] == 0
    [one] = found["tasks"]
    assert (one["task"], one["metric"]) == ("held_out", "bits_per_byte")
    assert dupt_model("pull", "--initial-peers", address, str(tmp_path / "pulled")).returncode == 0
    exported = tmp_path / "exported"
    assert dupt_model("export", str(tmp_path / "pulled"), str(exported)).returncode == 0
    assert one["value"] == pytest.approx(harness(lm_eval, exported, tmp_path / "by hand"), abs=1e-9)

    published, state = tmp_path / "published", tmp_path / "evaluator"
    places = ("--publish", str(published), "--published-at", "https://example.org/model", "--every", "2")
    evaluator = start("evaluate", *options, *places, "--state-dir", str(state))
    oracle = start(
        *("join", "--initial-peers", address, "--corpus", str(text), *LISTEN),
        *("--state-dir", str(tmp_path / "oracle"), "--json"),
    )
    assert evaluator.stdout is not None
    results = results_in(evaluator.stdout)
    rounds = [next(results)["round"] for _ in range(2)]
    assert rounds[1] >= rounds[0] + 2
    status = dupt_peer("status", "--initial-peers", address, "--json")
    [record] = [peer for peer in json.loads(status.stdout)["peers"] if peer["role"] == "evaluator"]
    assert record["published_at"] == "https://example.org/model"
    assert [(each["task"], each["round"] >= rounds[1]) for each in record["tasks"]] == [("held_out", True)]
    cards = [path.read_text() for path in published.glob("round-*/README.md")]
    assert any("| held\\_out | bits\\_per\\_byte |" in card for card in cards), cards

    # Whatever it does just now; `nothing_left` sees whether the harness has ended with it.
    assert [ended(process) for process in (evaluator, oracle)] == [0, 0]
    assert not list(state.glob("*/tasks"))


@pytest.mark.usefixtures("lm_eval")
def test_a_task_that_cannot_be_read_stops_nothing(swarm: tuple[str, Path], tmp_path: Path) -> None:
    """What is wrong is said, and the state is measured all the same."""
    (address, text), task = swarm, tmp_path / "wrong.yaml"
    task.write_text("task: wrong\noutput_type: loglikelihood\n")
    options = ("--initial-peers", address, "--corpus", str(text), "--tasks", str(task), *LISTEN, "--json")
    done = dupt_peer("evaluate", *options, "--once", "--state-dir", str(tmp_path / "once"))
    assert done.returncode == 1
    assert "the harness failed at round 0 (exit code 1): " in done.stderr
    assert json.loads(done.stdout)["bits_per_byte"] > 0
    done = dupt_peer("evaluate", *options, "--tasks", str(tmp_path / "nowhere.yaml"))
    assert done.returncode == 2
    assert "nowhere.yaml: no such file" in done.stderr
