"""From a swarm to a researcher's tools, by the programs alone, on text that every machine with Python has."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from dupt_swarm import SavedModel
from tests.support.hugging_face import load_model, load_tokenizer
from tests.support.programs import LISTEN, dupt_model, start
from tests.support.tasks import write_lines
from tests.support.texts import library

PROMPT = "def parse_args(self"
# Enough text that it is not learnt by heart, however much a fast machine reads until the rounds are done.
CORPORA = {
    "argparse": ("argparse", "tarfile", "inspect", "zipfile", "subprocess", "configparser", "optparse"),
    "typing": ("typing", "dataclasses", "enum", "functools", "datetime", "ast", "_pyio", "pydoc"),
}


def run(*arguments: str) -> dict[str, Any]:
    """What ``dupt-model`` says in JSON."""
    done = dupt_model(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def train(address: str, folder: Path) -> None:
    """Have an oracle for each of `CORPORA` train for a few rounds."""
    processes = [
        start(
            *("join", "--initial-peers", address, "--corpus", str(library(folder / name, *modules))),
            *(*LISTEN, "--state-dir", str(folder / f"state-{name}"), "--name", name, "--rounds", "8"),
            *("--device", "cpu", "--json"),
        )
        for name, modules in CORPORA.items()
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors


def passages(folder: Path, *modules: str) -> tuple[Path, Path]:
    """Lines of code for training and for validation, labelled by the module that they are from."""
    rows = [
        {"text": line.strip(), "label": module}
        for module in modules
        for line in (folder / module / f"{module}.py").read_text().splitlines()
        if len(line) > 40
    ]
    random.Random(0).shuffle(rows)
    return write_lines(folder / "train.jsonl", rows[:64]), write_lines(folder / "valid.jsonl", rows[64:96])


@pytest.mark.usefixtures("nothing_left")
def test_from_a_swarm_to_an_answer(bootstrap: dict[str, Any], tmp_path: Path) -> None:
    """A swarm of two, then pull, eval, generate, export, transformers, finetune and predict, in a row."""
    address = bootstrap["address"]
    untrained, model, exported, tuned = (
        str(tmp_path / name) for name in ("untrained", "model", "hf", "tuned")
    )
    assert run("pull", "--initial-peers", address, untrained)["round"] == 0
    train(address, tmp_path)
    pulled = run("pull", "--initial-peers", address, model)
    assert pulled["round"] >= 8  # their last one, although both left when it was done
    assert run("inspect", model)["digest"] == pulled["state_digest"]

    text = str(library(tmp_path / "unseen", "bisect", "nturl2path"))
    before, after = (run("eval", each, "--corpus", text, "--device", "cpu") for each in (untrained, model))
    assert after["bits_per_byte"] < before["bits_per_byte"]

    options = ("--prompt", PROMPT, "--tokens", "8", "--temperature", "0", "--device", "cpu")
    said = run("generate", model, *options)["text"]
    done = dupt_model("export", model, exported)
    assert done.returncode == 0, done.stderr
    assert pulled["swarm_id"] in (tmp_path / "hf" / "README.md").read_text()
    theirs, tokenizer = load_model(tmp_path / "hf"), load_tokenizer(tmp_path / "hf")
    tokens = tokenizer(PROMPT, return_tensors="pt")
    assert tokens.input_ids[0].tolist() == SavedModel.load(tmp_path / "model").tokenizer.encode(PROMPT)
    with torch.no_grad():
        greedy = theirs.generate(**tokens, max_new_tokens=8, do_sample=False)
    assert tokenizer.decode(greedy[0]) == PROMPT + said

    labelled, valid = passages(tmp_path, "argparse", "typing")
    files = ("--train", str(labelled), "--valid", str(valid), "--out", tuned, "--device", "cpu")
    learnt = run("finetune", model, "--task", "classification", *files, "--epochs", "1")
    assert 0 <= learnt["epochs"][-1]["scores"]["accuracy"] <= 1
    answers = dupt_model("predict", tuned, str(valid), "--score", "--device", "cpu", "--json")
    assert answers.returncode == 0, answers.stderr
    assert "accuracy" in answers.stderr
    told = [json.loads(line) for line in answers.stdout.splitlines()]
    assert len(told) == len(valid.read_text().splitlines())
    assert all(sum(one["probabilities"].values()) == pytest.approx(1, abs=1e-4) for one in told)
    assert run("inspect", tuned)["objective"]["labels"] == ["argparse", "typing"]
