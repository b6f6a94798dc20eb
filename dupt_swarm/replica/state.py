"""The replica state: what all peers hold bit-identically after a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dupt_swarm.manifest.layout import Layout, count_values, layout_of
from dupt_swarm.replica.blob import Blob, Index
from dupt_swarm.replica.electorate import Electorate

KIND = "replica-state-3"


@dataclass(frozen=True)
class ReplicaState:
    """Anchor, outer buffers, round, tokens, electorate; never modified in place: a reference is a snapshot.

    Attributes:
        round: rounds completed; the next round ends in state ``round + 1``.
        swarm_tokens: tokens behind all contributions averaged since round 0.
        layout: the shape of each parameter, in the order of ``model.parameters()``.
        anchor: the agreed parameters, flat, fp32 on the CPU, ``[numel]``.
        buffers: the outer optimizer's buffers by name, each like ``anchor``.
        electorate: who decides what follows.
    """

    round: int
    swarm_tokens: int
    layout: Layout
    anchor: Tensor
    buffers: dict[str, Tensor]
    electorate: Electorate = field(default_factory=Electorate)

    @classmethod
    def initial(cls, parameters: Sequence[Tensor], buffer_names: Sequence[str]) -> ReplicaState:
        """The state of round 0: the given parameters, and buffers of zeros."""
        anchor = torch.cat([parameter.detach().cpu().float().reshape(-1) for parameter in parameters])
        buffers = {name: torch.zeros_like(anchor) for name in sorted(buffer_names)}
        return cls(0, 0, layout_of(parameters), anchor, buffers)

    @property
    def parameters(self) -> list[Tensor]:
        """The anchor as parameters in their shapes, in the order of ``layout``: views."""
        parts = torch.split(self.anchor, [math.prod(shape) for shape in self.layout])
        return [part.view(shape) for part, shape in zip(parts, self.layout, strict=True)]

    @property
    def tensors(self) -> list[Tensor]:
        """Anchor and buffers, in the order of the blob's sections."""
        return [self.anchor, *(self.buffers[name] for name in sorted(self.buffers))]

    @cached_property
    def blob(self) -> Blob:
        """This state as a blob. The first access hashes everything: about a second per gigabyte."""
        return Blob.build(self._header, [tensor.numpy().data for tensor in self.tensors])

    def copied(self, empty: Callable[[int], Tensor]) -> ReplicaState:
        """A copy in other memory, of which ``empty`` gives some for so many values."""
        anchor, *buffers = (empty(tensor.numel()).copy_(tensor) for tensor in self.tensors)
        named = dict(zip(sorted(self.buffers), buffers, strict=True))
        return replace(self, anchor=anchor, buffers=named).hashed(self.blob.index.chunk_sha256)

    def hashed(self, chunk_sha256: Sequence[bytes]) -> ReplicaState:
        """This state, now that the hash of every chunk of its blob is known."""
        sections = [tensor.numpy().data for tensor in self.tensors]
        self.__dict__["blob"] = Blob.hashed(self._header, sections, chunk_sha256)
        return self

    @property
    def _header(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "round": self.round,
            "tokens_total": self.swarm_tokens,
            "layout": self.layout,
            "buffers": sorted(self.buffers),
            "electorate": self.electorate.to_json(),
        }

    @property
    def digest(self) -> str:
        """The state digest: equal exactly when two states are bit-identical."""
        return self.blob.digest

    @classmethod
    def from_blob(cls, blob: Blob, layout: Layout, buffer_names: Sequence[str]) -> ReplicaState:
        """Read a state from another peer or from disk.

        Raises:
            ValueError: the blob is not a finite replica state of this layout and outer optimizer.
        """
        check_header(blob.index, layout, buffer_names)
        header = blob.index.header
        anchor, *buffers = (torch.frombuffer(section, dtype=torch.float32) for section in blob.sections)
        named = dict(zip(sorted(buffer_names), buffers, strict=True))
        electorate = Electorate.parse(header["round"], header["electorate"])
        state = cls(header["round"], header["tokens_total"], layout, anchor, named, electorate)
        state.__dict__["blob"] = blob  # already hashed while it arrived
        if not all(map(all_finite, state.tensors)):
            raise ValueError("the replica state holds values that are not finite")
        return state


def all_finite(values: Tensor) -> bool:
    """Whether no value is NaN or infinite: one pass over the memory, without a copy.

    Both extremes are NaN if any value is, and their difference is not finite if either is infinite.
    """
    if not values.numel():
        return True
    lowest, highest = torch.aminmax(values)
    return math.isfinite(float(highest) - float(lowest))


def check_header(index: Index, layout: Layout, buffer_names: Sequence[str]) -> None:
    """Refuse an index that is not a replica state of this layout, before any chunk is fetched.

    Raises:
        ValueError: says what differs.
    """
    header: dict[str, Any] = index.header
    if header.get("kind") != KIND:
        raise ValueError(f"not a replica state of this version: {header.get('kind')!r}")
    if header.get("layout") != [list(shape) for shape in layout]:
        raise ValueError("the replica state belongs to a model of another shape")
    if header.get("buffers") != sorted(buffer_names):
        raise ValueError("the replica state belongs to another outer optimizer")
    numel = count_values(layout)
    if index.sizes != (4 * numel,) * (1 + len(buffer_names)):
        raise ValueError("the sections of the replica state do not match the size of the model")
    for key in ("round", "tokens_total"):
        value = header.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
            raise ValueError(f"the replica state has an impossible {key}")
    Electorate.parse(header["round"], header.get("electorate"))
