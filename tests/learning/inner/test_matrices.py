"""The blocks' matrices are told from embeddings, heads and vectors."""

from __future__ import annotations

from torch import nn

from dupt_swarm.learning.inner.matrices import assumed_block_matrices, block_matrices
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Model, Objective

CONFIG = Model(vocabulary_size=260, context_length=8, layers=2, heads=2, width=8, hidden_width=16)


class Foreign(nn.Module):
    """A decoder of somebody else: an embedding in each layer, and a head that is not tied."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 4)
        self.norm = nn.LayerNorm(4)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"linear": nn.Linear(4, 4), "position": nn.Embedding(5, 4)}) for _ in range(2)
        )
        self.head = nn.Linear(4, 20, bias=False)


def names_of(model: nn.Module, parameters: list[nn.Parameter]) -> list[str]:
    """The names of these parameters of the model, in their order."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [names[parameter] for parameter in parameters]


def of_blocks(model: nn.Module, prefix: str) -> list[str]:
    """The names of the matrices below ``prefix``."""
    return [name for name, each in model.named_parameters() if name.startswith(prefix) and each.ndim == 2]


def test_those_of_our_models() -> None:
    """Of a decoder they are the blocks' eight matrices, with either norm, alone or below a task's head."""
    for config in (CONFIG, CONFIG.model_copy(update={"placement": "post"})):
        decoder = GPT(config)
        assert names_of(decoder, block_matrices(decoder)) == of_blocks(decoder, "h.")
        assert len(block_matrices(decoder)) == 8
        task = TaskModel(config, Objective(kind="classification", labels=["a", "b"]))
        assert names_of(task, block_matrices(task)) == of_blocks(task, "backbone.h.")


def test_those_of_a_foreign_model() -> None:
    """Embeddings are left out even within the layers, and so is a head beside them."""
    model = Foreign()
    assert names_of(model, block_matrices(model)) == ["layers.0.linear.weight", "layers.1.linear.weight"]


def test_a_mere_list_gives_the_same_for_a_decoder() -> None:
    """From the order alone the blocks' matrices of a decoder are found, with either norm."""
    for config in (CONFIG, CONFIG.model_copy(update={"placement": "post"})):
        model = GPT(config)
        assumed = assumed_block_matrices(list(model.parameters()))
        assert names_of(model, assumed) == of_blocks(model, "h.")


def test_a_list_without_vectors_has_none() -> None:
    """Where no gain or bias shows where the embeddings end, nothing is assumed."""
    assert assumed_block_matrices(list(nn.Linear(3, 3, bias=False).parameters())) == []
