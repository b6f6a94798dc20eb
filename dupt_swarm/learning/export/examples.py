"""Python code for the card: how to use the folder, run inside it."""

from __future__ import annotations

from dupt_swarm.manifest import Manifest, Model, Objective
from dupt_swarm.manifest.tables import LANGUAGE, MASKED, SEQ2SEQ


def continuation(model: Model) -> str:
    """A language model writes on."""
    return f"""\
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".")
prompt = tokenizer("The", return_tensors="pt")
written = model.generate(**prompt, max_new_tokens={min(40, model.context_length // 2)}, do_sample=True)
print(tokenizer.decode(written[0]))"""


def masked() -> str:
    """An encoder fills in what is masked."""
    return """\
from transformers import pipeline

fill = pipeline("fill-mask", model=".")
for found in fill(f"The {fill.tokenizer.mask_token} is here."):
    print(found["token_str"], found["score"])"""


def gguf(file: str, model: Model) -> str:
    """A language model writes on, in llama.cpp."""
    return f"""\
from llama_cpp import Llama

model = Llama("{file}", n_ctx={model.context_length})
print(model("The", max_tokens={min(40, model.context_length // 2)})["choices"][0]["text"])"""


_TASK = """\
start, delimiter, extract = tokenizer.convert_tokens_to_ids(["<|start|>", "<|delimiter|>", "<|extract|>"])


def encode(text):
    return tokenizer.encode(text, add_special_tokens=False)


def tokens(*texts):
    ids = [start, *encode(texts[0])]
    for text in texts[1:]:
        ids += [delimiter, *encode(text)]
    return [*ids, extract]
"""

_PRINTED = {
    "label": """\
for number, probability in enumerate(answer.softmax(0).tolist()):
    print(model.config.id2label[number], probability)""",
    "choice": "print(answer.softmax(0).tolist())",
    "score": "print(answer.item())",
}


def answer(objective: Objective) -> str:
    """A task's model answers, with W_y from a file of its own."""
    assert objective.task is not None
    assert objective.answer is not None
    return f"""\
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".")
head = load_file("head.safetensors")
{_TASK}

@torch.no_grad()
def state(*texts):
    return model.base_model(torch.tensor([tokens(*texts)])).last_hidden_state[0, -1]


def score(h):
    return head["weight"] @ h + head["bias"]


answer = {objective.task.example}
{_PRINTED[objective.answer]}"""


def encoded(objective: Objective, head: str) -> str:
    """A task's encoder answers, with W_y from its own class ``head``, or if that is empty from a file."""
    assert objective.task is not None
    assert objective.answer is not None
    model = head or "AutoModelForPreTraining"
    read = "" if head else 'head = load_file("head.safetensors")\n'
    imports = "" if head else "from safetensors.torch import load_file\n"
    score = "model.classifier(h)" if head else 'head["weight"] @ h + head["bias"]'
    return f"""\
import torch
{imports}from transformers import AutoTokenizer, {model}

tokenizer = AutoTokenizer.from_pretrained(".")
model = {model}.from_pretrained(".")
{read}

@torch.no_grad()
def state(*texts):
    return model.base_model(**tokenizer(*texts, return_tensors="pt")).pooler_output[0]


@torch.no_grad()
def score(h):
    return {score}


answer = {objective.task.example}
{_PRINTED[objective.answer]}"""


def choice(double_heads: str) -> str:
    """A model for multiple choice answers."""
    return f"""\
import torch
from transformers import AutoTokenizer, {double_heads}

tokenizer = AutoTokenizer.from_pretrained(".")
model = {double_heads}.from_pretrained(".")
{_TASK}

@torch.no_grad()
def score(*texts):
    ids = torch.tensor([[tokens(*texts)]])
    last = torch.tensor([[ids.size(-1) - 1]])
    return model(ids, mc_token_ids=last).mc_logits[0, 0]


answer = torch.stack([score("a context", choice) for choice in ("one choice", "another")])
print(answer.softmax(0).tolist())"""


# How a model of ours is built, and what it does, by its objective; all tasks have one class.
_TASK_MODEL = (
    """\
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.manifest import Model, Objective""",
    "TaskModel(shape, objective)",
)
_OURS = {
    LANGUAGE: ("from dupt_swarm import GPT\nfrom dupt_swarm.manifest import Model", "GPT(shape)"),
    MASKED: (
        """\
from dupt_swarm.learning.generation.filling import fill
from dupt_swarm.learning.transformer.bert import Bert
from dupt_swarm.manifest import Model""",
        "Bert(shape)",
    ),
    SEQ2SEQ: (
        """\
from dupt_swarm.learning.generation.beam import BeamSearch
from dupt_swarm.learning.generation.translate import translate
from dupt_swarm.learning.transformer.encoder_decoder import EncoderDecoder
from dupt_swarm.manifest import Model""",
        "EncoderDecoder(shape)",
    ),
}
_USED = {
    MASKED: '\nprint(fill(model, tokenizer, "The [MASK] is here."))',
    SEQ2SEQ: '\nprint(translate(model, tokenizer, ["A text."], BeamSearch())[0].text)',
}


def plain(manifest: Manifest) -> str:
    """Parameters into a model of ours."""
    objective, end_of_text = manifest.objective, manifest.tokenizer.end_of_text
    imports, build = _TASK_MODEL if objective.supervised else _OURS[objective.kind]
    tables = 'shape = Model(**config["model"])' + (
        '\nobjective = Objective(**config["objective"])' if objective.supervised else ""
    )
    return f"""\
import json
from pathlib import Path

from safetensors.torch import load_file

{imports}
from dupt_swarm.learning.tokenizer import Tokenizer

config = json.loads(Path("config.json").read_text())
{tables}
tokenizer = Tokenizer.from_foreign(Path("tokenizer.json").read_bytes(), end_of_text={end_of_text})
model = {build}
model.load_state_dict(load_file("model.safetensors"))
model.eval(){_USED.get(objective.kind, "")}"""
