"""One table of names serves both directions."""

from __future__ import annotations

import pytest

from dupt_swarm.errors import CheckpointError
from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.architectures.architecture import Architecture
from dupt_swarm.learning.interruptible import parameter_count
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Model

each_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES)


def decoder(architecture: Architecture) -> GPT:
    """Of the architecture's parts, with heads that share keys and values where there can be such."""
    shape = {"vocabulary_size": 300, "context_length": 8, "layers": 2, "heads": 4, "width": 32}
    parts = {"kv_heads": 2, "tie_embeddings": False, "hidden_width": 128} | dict(architecture.parts)
    return GPT(Model(**(shape | parts)))  # type: ignore[arg-type]


@each_architecture
def test_every_parameter_has_a_place(architecture: Architecture) -> None:
    """Together theirs are as many values as ours, contiguous, and share no memory with ours."""
    model = decoder(architecture)
    theirs = architecture.names.to_theirs(model.state_dict(), model.config)
    assert sum(tensor.numel() for tensor in theirs.values()) == parameter_count(model)
    pointers = {tensor.data_ptr() for tensor in (*theirs.values(), *model.state_dict().values())}
    assert len(pointers) == len(theirs) + len(model.state_dict())
    assert all(tensor.is_contiguous() for tensor in theirs.values())


@each_architecture
def test_what_is_not_in_the_table_is_named(architecture: Architecture) -> None:
    """A parameter without a place is an error, never left out."""
    for name in ("surprise.weight", "h.0.attn.masked_bias", "h.x.ln_1.weight"):
        with pytest.raises(CheckpointError, match=f"`{name}` has no place"):
            architecture.names.theirs(name)


@each_architecture
def test_config_json_gives_the_shape_back(architecture: Architecture) -> None:
    """What is written of a model's shape is read as that shape."""
    model = decoder(architecture).config
    assert architecture.model(architecture.settings(model)) == model
