"""What the decoder's modules are called here and elsewhere: one table serves both directions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dupt_swarm.errors import CheckpointError

BLOCK = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclass(frozen=True)
class Row:
    """One module, whose parameters are called `weight` and `bias` on both sides.

    Attributes:
        ours: its name here; `*` stands for a block's number.
        theirs: its name there.
        conv1d: there it is a `Conv1D`, whose weight is [in, out]; that of our `nn.Linear` is [out, in].
    """

    ours: str
    theirs: str
    conv1d: bool = False


@dataclass(frozen=True)
class Names:
    """A table of names.

    Attributes:
        rows: a row for each module.
        tied: parameters there that are copies of others, so that nothing is lost without them.
    """

    rows: tuple[Row, ...]
    tied: frozenset[str] = frozenset()

    def to_theirs(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our parameters under their names, each in memory of its own.

        Raises:
            CheckpointError: the table lacks one.
        """
        rows = {row.ours: (row.theirs, row.conv1d) for row in self.rows}
        return dict(_renamed(name, tensor, rows) for name, tensor in state.items())

    def to_ours(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their parameters under our names, each in memory of its own, without those that are tied.

        Raises:
            CheckpointError: the table lacks one.
        """
        rows = {row.theirs: (row.ours, row.conv1d) for row in self.rows}
        return dict(_renamed(name, tensor, rows) for name, tensor in state.items() if name not in self.tied)


def _renamed(name: str, tensor: Tensor, rows: Mapping[str, tuple[str, bool]]) -> tuple[str, Tensor]:
    module, _, leaf = name.rpartition(".")
    new, conv1d = rows.get(BLOCK.sub("*", module), ("", False))
    if not new or leaf not in ("weight", "bias"):
        raise CheckpointError(f"the parameter `{name}` has no place in the other format; use another one")
    number = BLOCK.search(module)
    turned = tensor.T if conv1d and leaf == "weight" else tensor
    return f"{new.replace('*', number[0] if number else '')}.{leaf}", turned.detach().cpu().clone(
        memory_format=torch.contiguous_format
    )
