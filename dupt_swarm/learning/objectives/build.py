"""Builds the model that a manifest describes."""

from __future__ import annotations

from torch import nn

from dupt_swarm.learning.decoder.gpt import GPT
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.manifest import Manifest


def build_model(manifest: Manifest) -> nn.Module:
    """A `GPT`, or for a task a `TaskModel`, its weights drawn with seed 0 (`init_weights` draws others)."""
    if manifest.objective.supervised:
        return TaskModel(manifest.model, manifest.objective)
    return GPT(manifest.model)


def decoder_of(model: nn.Module) -> GPT:
    """The decoder in a model that `build_model` made: what continues text, for a task model too."""
    decoder = model.decoder if isinstance(model, TaskModel) else model
    assert isinstance(decoder, GPT)
    return decoder
