"""The largest replica state that a joiner accepts, before it has a state to compare with."""

from __future__ import annotations

from dupt_swarm.manifest import Manifest, Model

GENEROUS_RATIO = 16
GENEROUS_NUMEL = 1 << 28


def gpt_numel(model: Model) -> int:
    """An upper bound on the weights of the manifest's GPT; only pre-norm models have the final norm."""
    width, hidden = model.width, model.hidden_width
    attention = 4 * width * width + 4 * width
    feed_forward = 2 * width * hidden + hidden + width
    block = attention + feed_forward + 4 * width
    return (model.vocabulary_size + model.context_length) * width + model.layers * block + 2 * width


def numel_max(manifest: Manifest) -> int:
    """The largest number of weights in a state of this swarm, so that a joiner's memory is bounded.

    Generous, since a swarm may train any module under the manifest (see `CollaborativeOptimizer`):
    16 times the manifest's GPT, and 268 million weights in any case.
    """
    return max(GENEROUS_RATIO * gpt_numel(manifest.model), GENEROUS_NUMEL)
