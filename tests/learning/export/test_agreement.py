"""What is exported is the same model in `transformers`, which is asked itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.export.export import FORMATS, choose_format, export
from dupt_swarm.learning.export.learned import Learned
from dupt_swarm.learning.export.origin import Origin
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.manifest import Manifest, Model, Objective
from tests.support.hugging_face import load_model, load_tokenizer
from tests.support.saved_models import small_tokenizer
from tests.support.tiny import tiny_manifest

TOKENIZER = small_tokenizer()
POST = {"placement": "post", "layers": 2, "hidden_width": 128, "dropout": 0.1}
PRE = {"placement": "pre", "layers": 2, "hidden_width": 48, "dropout": 0.1}
GROUPED = {**ARCHITECTURES["llama"].parts, "layers": 2, "hidden_width": 88, "heads": 4, "kv_heads": 2}
PARALLEL = {**ARCHITECTURES["cohere"].parts, "layers": 2, "hidden_width": 88, "heads": 4, "kv_heads": 1}
SHAPES = {
    "openai-gpt": POST,
    "gpt2": PRE,
    "llama": GROUPED | {"tie_embeddings": False},
    "cohere": PARALLEL,
}
GPTS = ("openai-gpt", "gpt2")


def learned_as(shape: dict[str, Any], **objective: Any) -> Learned:
    """A model of this shape whose biases and gains are not what they begin as."""
    manifest = _manifest(shape, objective)
    model = build_model(manifest).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    origin = Origin(swarm_id=manifest.swarm_id, round=3, swarm_tokens=1920, state_digest="f" * 64)
    return Learned(model, manifest, TOKENIZER, origin)


def _manifest(shape: dict[str, Any], objective: dict[str, Any]) -> Manifest:
    rows = TOKENIZER.vocabulary_size
    tables = tiny_manifest(TOKENIZER.sha256, rows).model_dump()
    tables["model"] |= shape
    tables["objective"] |= objective
    tables["inner"]["embedding_scale"] = "own"  # whatever the model is
    tables["model"]["vocabulary_size"] = rows + Objective(**tables["objective"]).tokens_of_task("decoder")
    return Manifest.model_validate(tables)


def some_tokens(model: Model, *shape: int) -> torch.Tensor:
    """Random ids, int64."""
    return torch.randint(0, model.vocabulary_size, shape)


@pytest.mark.parametrize("name", SHAPES)
def test_same_logits(name: str, tmp_path: Path) -> None:
    """The exported model's logits are ours, over the whole context, and its embeddings tied like ours."""
    learned = learned_as(SHAPES[name])
    export(tmp_path, learned, choose_format(None, learned.manifest.model))
    theirs = load_model(tmp_path)
    assert theirs.config.model_type == name
    assert theirs.dtype == torch.float32
    tokens = some_tokens(learned.manifest.model, 3, learned.manifest.model.context_length)
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, learned.model(tokens), rtol=0, atol=1e-4)
    tied = theirs.lm_head.weight is theirs.get_input_embeddings().weight
    assert tied == learned.manifest.model.tie_embeddings


@pytest.mark.parametrize("name", GPTS)
def test_same_dropout_when_it_trains_on(name: str, tmp_path: Path) -> None:
    """Whoever trains it on has the manifest's dropout everywhere."""
    learned = learned_as(SHAPES[name])
    export(tmp_path, learned, FORMATS[name])
    rates = {module.p for module in load_model(tmp_path).modules() if isinstance(module, torch.nn.Dropout)}
    assert rates == {0.1}


@pytest.mark.parametrize("name", SHAPES)
def test_a_prompt_from_its_tokenizer(name: str, tmp_path: Path) -> None:
    """What the tokenizer returns may go straight into the model, and into its `generate`."""
    learned = learned_as(SHAPES[name])
    export(tmp_path, learned, FORMATS[name])
    model, prompt = load_model(tmp_path), load_tokenizer(tmp_path)("Der Bär", return_tensors="pt")
    tokens = torch.tensor([TOKENIZER.encode("Der Bär")])
    with torch.no_grad():
        torch.testing.assert_close(model(**prompt).logits, learned.model(tokens), rtol=0, atol=1e-4)
    written = model.generate(**prompt, max_new_tokens=4, do_sample=False)
    for _ in range(4):
        tokens = torch.cat([tokens, learned.model(tokens)[:, -1:].argmax(-1)], 1)
        if tokens[0, -1] == TOKENIZER.end_of_text:
            break
    assert written.tolist() == tokens.tolist()


def test_llama_cpp_finds_the_context(tmp_path: Path) -> None:
    """Its converter reads the context of a GPT-2 under the name that the published config.json has."""
    learned = learned_as(PRE)
    export(tmp_path, learned, FORMATS["gpt2"])
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["n_ctx"] == learned.manifest.model.context_length


def test_a_format_that_does_not_fit_is_refused() -> None:
    """The message says what does not fit, and which format does."""
    pre, post, odd = (Model(**learned_as(shape).manifest.model.model_dump()) for shape in (PRE, POST, ODD))
    assert [choose_format(None, model).name for model in (pre, post, odd)] == [
        "gpt2",
        "openai-gpt",
        "safetensors",
    ]
    with pytest.raises(
        UsageError, match=r'has placement = "post", the model "pre"; export it as gpt2'
    ) as error:
        choose_format("openai-gpt", pre)
    assert error.value.settings == ("format",)
    with pytest.raises(UsageError, match=r'has placement = "pre", .* export it as openai-gpt'):
        choose_format("gpt2", post)
    with pytest.raises(UsageError, match=r"4 × width = 128 wide, .* 64 .*; export it as safetensors"):
        choose_format("openai-gpt", odd)


ODD = POST | {"hidden_width": 64}


@pytest.mark.parametrize(
    "objective", [{}, {"kind": "classification", "labels": ["a", "b"]}], ids=["lm", "task"]
)
def test_our_own_names(objective: dict[str, Any], tmp_path: Path) -> None:
    """The plain format holds every model: shape, objective, tokenizer and parameters, bit for bit."""
    learned = learned_as(ODD, **objective)
    export(tmp_path, learned, choose_format("safetensors", learned.manifest.model))
    config = json.loads((tmp_path / "config.json").read_text())
    assert Model(**config["model"]) == learned.manifest.model
    assert Objective(**config["objective"]) == learned.manifest.objective
    assert (tmp_path / "tokenizer.json").read_bytes() == TOKENIZER.to_bytes()
    again = build_model(learned.manifest)
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    for ours, read in zip(learned.model.parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, read)


@pytest.mark.parametrize("name", GPTS)
def test_a_choice_with_both_heads(name: str, tmp_path: Path) -> None:
    """A model for multiple choice is the double-heads model: same logits of both heads."""
    learned = learned_as(SHAPES[name], kind="multiple-choice", head_dropout=0.3)
    form = FORMATS[name]
    export(tmp_path, learned, form)
    theirs = load_model(tmp_path, json.loads((tmp_path / "config.json").read_text())["architectures"][0])
    model = learned.manifest.model
    tokens, lengths = some_tokens(model, 2, 3, 12), torch.tensor([[5, 12, 7], [12, 2, 3]])
    with torch.no_grad():
        found = theirs(tokens, mc_token_ids=lengths - 1)
        torch.testing.assert_close(found.mc_logits, learned.model.logits(tokens, lengths), rtol=0, atol=1e-4)  # type: ignore[operator]
        torch.testing.assert_close(
            found.logits.flatten(0, 1), learned.backbone(tokens.flatten(0, 1)), rtol=0, atol=1e-4
        )
    assert theirs.multiple_choice_head.first_dropout.p == 0.3


TASKS: dict[str, dict[str, Any]] = {
    "classification": {"kind": "classification", "labels": ["x", "ü", "<b>"]},
    "entailment": {"kind": "entailment", "labels": ["no", "yes"]},
    "alike": {"kind": "similarity", "labels": ["no", "yes"]},
    "score": {"kind": "similarity"},
}


@pytest.mark.parametrize("task", TASKS)
def test_a_task_with_its_head(task: str, tmp_path: Path) -> None:
    """The decoder of a task's model is a language model; W_y lies beside it, labels in config.json."""
    learned = learned_as(POST, **TASKS[task])
    export(tmp_path, learned, choose_format(None, learned.manifest.model))
    theirs, head = load_model(tmp_path), load_file(tmp_path / "head.safetensors")
    tokens = some_tokens(learned.manifest.model, 2, 9)
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, learned.backbone(tokens), rtol=0, atol=1e-4)
    assert learned.head is not None
    assert torch.equal(head["weight"], learned.head.weight) and torch.equal(head["bias"], learned.head.bias)
    if labels := TASKS[task].get("labels"):
        assert theirs.config.id2label == dict(enumerate(labels))
        assert theirs.config.label2id == {label: number for number, label in enumerate(labels)}
