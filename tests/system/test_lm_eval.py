"""A real run of lm-evaluation-harness on an exported model gives our figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from dupt_swarm.errors import install
from dupt_swarm.learning.decoder.gpt import GPT
from dupt_swarm.learning.export.export import choose_format, export
from dupt_swarm.learning.export.learned import Learned
from dupt_swarm.learning.export.origin import Origin
from dupt_swarm.learning.rolling import evaluate_documents
from dupt_swarm.learning.tokenizer import Tokenizer
from tests.support.foreign_tokenizers import KEEPING
from tests.support.lacking import skip
from tests.support.saved_models import TEXT, write_model

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


def harness(lm_eval: list[str], exported: Path, folder: Path) -> float:
    """The harness' bits per byte of the documents, without the network."""
    folder.mkdir()
    (folder / "held_out.yaml").write_text(TASK)
    rows = [json.dumps({"text": document}) + "\n" for document in DOCUMENTS]
    (folder / "documents.jsonl").write_text("".join(rows))
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
