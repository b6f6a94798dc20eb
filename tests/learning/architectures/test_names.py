"""One table of names serves both directions."""

from __future__ import annotations

import pytest

from dupt_swarm.errors import CheckpointError
from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.architectures.architecture import Architecture
from dupt_swarm.learning.interruptible import parameter_count
from dupt_swarm.learning.transformer.bert import Bert
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Model

each_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES)


def model_of(architecture: Architecture) -> GPT | Bert:
    """Of the architecture's parts, with heads that share keys and values where there can be such."""
    shape = {"vocabulary_size": 300, "context_length": 8, "layers": 2, "heads": 4, "width": 32}
    parts = {"kv_heads": 2, "tie_embeddings": False, "hidden_width": 128} | dict(architecture.parts)
    config = Model(**(shape | parts))  # type: ignore[arg-type]
    return Bert(config) if config.bidirectional else GPT(config)


@each_architecture
def test_every_parameter_has_a_place(architecture: Architecture) -> None:
    """Together theirs are as many values as ours, contiguous, and share no memory with ours."""
    model = model_of(architecture)
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
    model = model_of(architecture).config
    assert architecture.model(architecture.settings(model)) == model


def test_names_of_activations() -> None:
    """A feed-forward layer has another name there; one that there is no name for is refused."""
    bert = ARCHITECTURES["bert"]
    model = model_of(bert).config
    for ours, theirs in (("gelu", "gelu_new"), ("gelu_erf", "gelu"), ("relu", "relu")):
        shape = model.model_copy(update={"feed_forward": ours})
        assert bert.settings(shape)["hidden_act"] == theirs
        assert bert.model(bert.settings(shape)) == shape
    assert bert.model(bert.settings(model) | {"hidden_act": None}).feed_forward == "gelu_erf"
    swiglu = model.model_copy(update={"feed_forward": "swiglu"})
    assert bert.problem(swiglu) == 'the format has no feed_forward = "swiglu"'


def test_decoders_and_encoders_are_told_apart() -> None:
    """No format of a decoder takes an encoder, nor the other way round."""
    for architecture in ARCHITECTURES.values():
        model = model_of(architecture).config
        fitting = (each.name for each in ARCHITECTURES.values() if not each.problem(model))
        assert next(fitting) == architecture.name
        other = model.model_copy(update={"bidirectional": not model.bidirectional})
        assert "has bidirectional = " in architecture.problem(other)
