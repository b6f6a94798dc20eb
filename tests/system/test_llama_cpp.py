"""The real llama.cpp reads our .gguf: the same ids, the same logits, the same text as here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import AddedToken

from dupt_swarm.learning.objectives import decoder_of
from dupt_swarm.learning.tokenizer import END_OF_TEXT, Tokenizer, train_tokenizer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.models.exporting import export
from dupt_swarm.presets import load_preset
from tests.support.debian import need
from tests.support.llama_cpp import LlamaCpp
from tests.support.saved_models import write_model
from tests.support.texts import library

pytestmark = pytest.mark.system

CONTEXT = 24
SHAPE = {"context_length": CONTEXT, "layers": 2, "heads": 4, "width": 64, "hidden_width": 96}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {**load_preset("llama", "tiny")["model"], **SHAPE, "kv_heads": 2},
    "gpt2": {**load_preset("gpt2", "tiny")["model"], **SHAPE},
    "cohere": {**load_preset("palm", "tiny")["model"], **SHAPE, "kv_heads": 1},
}
ADDED = ("<think>", "</think>", "    ", "狐")
TEXTS = [
    "The bear's can't, I'LL and we've  two spaces\n\n\tand tabs; 12345 numbers, 3.14!",
    "Zażółć gęślą jaźń — Ελληνικά, Русский, العربية, עברית, हिन्दी, ไทย, 日本語, 한국어, 中文。",
    "🐻🏔️👩‍👩‍👧 e\u0301 \u200d \ufeff \x00\x1b[0m ﷽ <|endoftext|> </s> \r\n  trailing  ",
    "".join(map(chr, [*range(0x20, 0x250), *range(0x2000, 0x2070)])),
    " ",
]


@pytest.fixture(scope="module")
def llama_cpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCpp]:
    """In a tree that is removed afterwards."""
    need("debootstrap")
    folder = tmp_path_factory.mktemp("llama")
    yield LlamaCpp(folder)
    shutil.rmtree(folder)


def worst(architecture: str, type: str) -> float:
    """The greatest difference of a logit, as a part of their standard deviation."""
    if (architecture, type) == ("gpt2", "f32"):
        return 4e-3  # llama.cpp looks GELU up in a table of fp16
    return {"f32": 1e-4, "f16": 2e-2, "q8_0": 0.5}[type]


def logits_of(model: GPT, tokens: list[int]) -> torch.Tensor:
    """After each of them, fp32 [tokens, vocabulary]."""
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([tokens]))[0]
        return logits


def test_llama_cpp_finds_added_tokens(llama_cpp: LlamaCpp, tmp_path: Path) -> None:
    """As here: in text those that are not special, and neither special ones nor what ends a text."""
    text = library(tmp_path / "text", "argparse", "typing")
    trained = train_tokenizer((path.read_text() for path in text.iterdir()), 1000)
    made = tokenizers.Tokenizer.from_str(trained.to_bytes().decode())
    made.add_special_tokens(["<|im_start|>"])
    made.add_tokens([AddedToken(token, normalized=False) for token in ADDED])
    tree = json.loads(made.to_str())
    tree["added_tokens"][0]["special"] = False  # <|endoftext|>
    tokenizer = Tokenizer.from_foreign(json.dumps(tree).encode(), trained.end_of_text)
    shape = SHAPES["llama"] | {"vocabulary_size": tokenizer.vocabulary_size + 2, "dropout": 0.0}
    export(write_model(tmp_path / "model", tokenizer, model=shape), tmp_path / "out", "gguf", "f32")

    texts = [f"a<think> b</think>\n        c <|im_start|> d 狐{token}e" for token in (*ADDED, END_OF_TEXT)]
    found = llama_cpp(
        tmp_path / "out" / "model.gguf", context=CONTEXT, texts=texts, tokens=[0], prompt=list(range(CONTEXT))
    )

    assert found["ids"] == tokenizer.encode_batch(texts)
    added = set(range(trained.vocabulary_size + 1, tokenizer.vocabulary_size))
    assert added <= {index for ids in found["ids"] for index in ids}


@pytest.mark.parametrize("type", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("architecture", SHAPES)
def test_llama_cpp_runs_the_model(llama_cpp: LlamaCpp, tmp_path: Path, architecture: str, type: str) -> None:
    """Ids of a page of Unicode, logits after each token, and what it writes greedily are as here."""
    text = library(tmp_path / "text", "argparse", "typing")
    tokenizer = train_tokenizer((path.read_text() for path in text.iterdir()), 1000)
    shape = SHAPES[architecture] | {"vocabulary_size": tokenizer.vocabulary_size, "dropout": 0.0}
    saved = write_model(tmp_path / "model", tokenizer, model=shape)
    export(saved, tmp_path / "out", "gguf", type)
    ours = decoder_of(saved.build(torch.device("cpu")))
    ours.eval()
    tokens = [tokenizer.begin_of_text, *tokenizer.encode(TEXTS[0])[: CONTEXT - 1]]
    prompt = tokens[:3]

    found = llama_cpp(
        tmp_path / "out" / "model.gguf", context=CONTEXT, texts=TEXTS, tokens=tokens, prompt=prompt
    )

    assert found["ids"] == tokenizer.encode_batch(TEXTS)
    assert found["with_special"] == [tokenizer.begin_of_text, *tokenizer.encode(TEXTS[0])]
    expected, theirs = logits_of(ours, tokens), torch.tensor(found["logits"])
    scale = float(expected.std())
    assert float((theirs - expected).abs().max()) < worst(architecture, type) * scale
    if type == "f32":
        written = list(prompt)
        while len(written) < CONTEXT:
            written.append(int(logits_of(ours, written)[-1].argmax()))
        assert found["written"] == written
