"""How learning a task begins: from the weights of a model that is there already."""

from __future__ import annotations

import json

import torch
from torch import nn

from dupt_swarm.learning.objectives import backbone_of, build_model
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.manifest import Manifest, Objective
from dupt_swarm.manifest.manifest import NAME_LENGTH_MAX

TOKEN_ROWS = ("wte.weight", "lm_head.weight")  # parameters with a row for each token


def task_manifest(base: Manifest, objective: Objective) -> Manifest:
    """``base`` for another objective: called ``<name>-<task>``, with rows of W_e for its special tokens.

    Raises:
        ManifestError: the two do not go together.
    """
    name = base.name.removesuffix(f"-{base.objective.kind}")[: NAME_LENGTH_MAX - 1 - len(objective.kind)]
    rows = base.tokenizer.vocabulary_size + objective.tokens_of_task(base.model.kind)
    tables = base.model_dump()
    tables |= {"name": f"{name}-{objective.kind}", "objective": objective.model_dump()}
    tables |= {"initial_digest": "", "offer": {}}  # of another model, and what a swarm of language offered
    tables["model"] |= {"vocabulary_size": rows}
    return Manifest.from_bytes(json.dumps(tables).encode(), f"the manifest for {objective.kind}")


@torch.no_grad()
def begin_from(base: nn.Module, manifest: Manifest, seed: int) -> nn.Module:
    """The model of ``manifest`` with the weights of ``base``; what ``base`` lacks is drawn with ``seed``.

    That is W_y, and start, delimiter and extract. If ``base`` has learnt a task already, its special tokens
    are used again, and its W_y if it gives the same answers.

    Args:
        base: of `build_model`, on the CPU; its backbone has the shape of ``manifest``'s.
        manifest: of `task_manifest`.
        seed: of the weights drawn.
    """
    model = build_model(manifest)
    model.init_weights(seed)  # type: ignore[operator]
    weights = dict(backbone_of(base).named_parameters())
    # Of the rows for tokens base may lack some, or have some that no token uses.
    learnt = manifest.tokenizer.vocabulary_size
    learnt += base.objective.tokens_of_task(manifest.model.kind) if isinstance(base, TaskModel) else 0
    for name, parameter in backbone_of(model).named_parameters():
        rows = min(len(parameter), learnt if name in TOKEN_ROWS else len(weights[name]))
        parameter[:rows] = weights[name][:rows]
    if isinstance(base, TaskModel) and isinstance(model, TaskModel) and _same_answers(base, model):
        model.head.load_state_dict(base.head.state_dict())
    return model


def _same_answers(base: TaskModel, model: TaskModel) -> bool:
    one, other = base.objective, model.objective
    return one.kind == other.kind and one.labels == other.labels
