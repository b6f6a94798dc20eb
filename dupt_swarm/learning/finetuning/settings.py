"""How a task is learnt: the figures of GPT-1 (section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FinetuningSettings:
    """What decides on the result, besides the model and the examples.

    Attributes:
        epochs: passes through the training examples.
        learning_rate: peak.
        batch_size: examples of an update.
        warmup_ratio: share of the updates in which the learning rate rises.
        weight_decay: on matrices and embeddings, not on biases and gains.
        clip_norm: the gradient's norm is clipped to this; 0: never.
        seed: of the weights that the task adds, the order of the examples, and dropout.
    """

    epochs: int = 3
    learning_rate: float = 6.25e-5
    batch_size: int = 32
    warmup_ratio: float = 0.002
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    seed: int = 0
