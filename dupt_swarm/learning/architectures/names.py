"""What a model's modules are called here and elsewhere: one table serves both directions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dupt_swarm.errors import CheckpointError
from dupt_swarm.manifest import Model

BLOCK = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclass(frozen=True)
class Row:
    """One module of ours, whose parameters are called `weight` and `bias` on both sides.

    Attributes:
        ours: its name here; `*` stands for a block's number.
        theirs: its name there, or those of query, key and value, whose rows it has one below the other.
        conv1d: there it is a `Conv1D`, whose weight is [in, out]; that of our `nn.Linear` is [out, in].
        order: int64, our rows in the order in which they have them.
    """

    ours: str
    theirs: str | tuple[str, ...]
    conv1d: bool = False
    order: Callable[[Model], Tensor] | None = None

    @property
    def modules(self) -> tuple[str, ...]:
        """``theirs``, one or several."""
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs

    def sizes(self, rows: int, model: Model) -> list[int]:
        """How many of our ``rows`` each of ``modules`` has."""
        return [rows] if isinstance(self.theirs, str) else query_key_value(model)


@dataclass(frozen=True)
class Names:
    """A table of names.

    Attributes:
        rows: a row for each module.
        prefix: of all names there but those of heads; files may leave it out.
        passed_over: names of what is no parameter: masks and tables that files of old have.
        tied: the output's parameters, which files may have besides, as copies of ours where they are one.
        older: how names ended that end otherwise now.
        optional: modules of ours that files may lack.
    """

    rows: tuple[Row, ...]
    prefix: str
    passed_over: tuple[str, ...] = ()
    tied: Mapping[str, str] = field(default_factory=lambda: {"lm_head.weight": "wte.weight"})
    older: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()

    def means_nothing(self, name: str) -> bool:
        """Whether what has this name there is passed over."""
        general = BLOCK.sub("*", name)
        return any(general in (each, each.removeprefix(self.prefix)) for each in self.passed_over)

    def spellings(self, name: str) -> Iterator[str]:
        """What files may call the parameter ``name`` of theirs."""
        old = [f"{name.removesuffix(end)}{old}" for end, old in self.older.items() if name.endswith(end)]
        for each in (name, *old):
            yield each
            yield each.removeprefix(self.prefix)

    def to_theirs(self, state: Mapping[str, Tensor], model: Model) -> dict[str, Tensor]:
        """Our parameters under their names, each in memory of its own.

        Raises:
            CheckpointError: the table lacks one.
        """
        return {
            name: (part.T if row.conv1d and name.endswith(".weight") else part)
            .detach()
            .cpu()
            .clone(memory_format=torch.contiguous_format)
            for ours, tensor in state.items()
            for row, names in [self.theirs(ours)]
            for name, part in zip(names, _cut(tensor, row, model), strict=True)
        }

    def theirs(self, ours: str) -> tuple[Row, list[str]]:
        """The row of our parameter ``ours``, and the names of what it is made of there.

        Raises:
            CheckpointError: the table lacks it.
        """
        module, _, leaf = ours.rpartition(".")
        row = next((row for row in self.rows if row.ours == BLOCK.sub("*", module)), None)
        if row is None or leaf not in ("weight", "bias"):
            raise CheckpointError(f"the parameter `{ours}` has no place in the other format; use another one")
        number = BLOCK.search(module)
        return row, [f"{name.replace('*', number[0] if number else '')}.{leaf}" for name in row.modules]


def _cut(tensor: Tensor, row: Row, model: Model) -> Sequence[Tensor]:
    tensor = tensor[row.order(model)] if row.order else tensor
    return torch.split(tensor, row.sizes(len(tensor), model))


def query_key_value(model: Model) -> list[int]:
    """Rows of the three matrices that are one here."""
    kv_width = model.key_value_heads * model.head_width
    return [model.width, kv_width, kv_width]


def neighbours(model: Model) -> Tensor:
    """The rows of query, key and value in their order, int64: what is turned together is side by side there.

    Here, as in transformers' LLaMA, feature i of a head makes a pair with feature i + D ÷ 2. Values are not
    turned.
    """
    query, key, value = query_key_value(model)
    turned = torch.arange(query + key).view(-1, 2, model.head_width // 2).transpose(1, 2).flatten()
    return torch.cat((turned, torch.arange(query + key, query + key + value)))
