"""The largest replica state that a joiner accepts, before it has a state to compare with."""

from __future__ import annotations

from dupt_swarm.manifest import Manifest, Model

GENEROUS_RATIO = 16
GENEROUS_NUMEL = 1 << 28


def gpt_numel(model: Model) -> int:
    """An upper bound on the weights of the manifest's GPT, whatever norms, biases and positions it has."""
    width, hidden = model.width, model.hidden_width
    kv_width = model.key_value_heads * model.head_width
    attention = 2 * width * (width + kv_width) + 2 * (width + kv_width) + 4 * model.head_width
    matrices = 3 if model.gated else 2
    feed_forward = matrices * width * hidden + 2 * hidden + width
    block = attention + feed_forward + 4 * width
    embeddings = (1 if model.tie_embeddings else 2) * model.vocabulary_size + model.context_length
    return embeddings * width + model.layers * block + 2 * width


def numel_max(manifest: Manifest) -> int:
    """The largest number of weights in a state of this swarm, so that a joiner's memory is bounded.

    Generous, since a swarm may train any module under the manifest (see `CollaborativeOptimizer`):
    16 times the manifest's GPT, and 268 million weights in any case.
    """
    return max(GENEROUS_RATIO * gpt_numel(manifest.model), GENEROUS_NUMEL)
