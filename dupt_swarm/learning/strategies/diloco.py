"""DiLoCo (Douillard et al. 2023): many local optimizer steps, then an average of the changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dupt_swarm.learning.inner import build_inner, move_moments, renew_scales
from dupt_swarm.learning.inner.muon import parts_of
from dupt_swarm.learning.inner.offloading import Offloaded
from dupt_swarm.learning.inner.unigrams import Unigrams
from dupt_swarm.learning.strategies.flat import Snapshot, clip_gradients, move, move_to, unflatten
from dupt_swarm.manifest import Manifest


class DiLoCo:
    """A `Strategy`: contributes anchor − parameters; what a failed round left out stays in it."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        manifest: Manifest,
        anchor: Tensor,
        matrices: Iterable[nn.Parameter] | None = None,
        unigrams: Unigrams | None = None,
        *,
        offload: bool = False,
    ) -> None:
        """Make the inner optimizer; see `build_strategy`."""
        self._parameters, self._clip_norm = parameters, manifest.inner.clip_norm
        self._inner = build_inner(parameters, manifest.inner, matrices, unigrams)
        self._offloaded = Offloaded(self._inner) if offload else None
        self._anchor, self._home = anchor, parameters[0].device
        self._mark, self._marked, self._averaged = Snapshot(parameters), False, False
        unflatten(anchor, parameters)

    def inner_step(self, tokens: int, learning_rate: float) -> None:
        """See `Strategy`. The step size does not depend on the number of tokens."""
        del tokens
        clip_gradients(self._parameters, self._clip_norm)
        for group in self._inner.param_groups:
            group["lr"] = learning_rate
        (self._offloaded or self._inner).step()

    def mark(self) -> None:
        self._mark.take()
        self._marked = True

    def contribute(self) -> Tensor:
        assert self._marked
        return self._anchor - self._mark.values

    def accept(self, anchor: Tensor) -> None:
        assert self._marked
        self._move(anchor, self._mark.values)

    def rebase(self, anchor: Tensor) -> None:
        self._move(anchor, self._anchor)

    def bring_back(self, anchor: Tensor, origin: Tensor, part: float) -> None:
        self._move(anchor, torch.lerp(self._anchor, origin, part))

    def discard(self) -> None:
        """See `Strategy`. The inner optimizer forgets its moments, which may not be finite either."""
        unflatten(self._anchor, self._parameters)
        for part in parts_of(self._inner):
            part.state.clear()
        self._marked = False

    def move_to(self, device: torch.device) -> None:
        move_to(device, self._parameters)
        if not self._offloaded:
            move_moments(self._inner, device)
        self._renew_scales()

    def state_dict(self) -> dict[str, Any]:
        present = Snapshot(self._parameters)
        present.take()
        return {"parameters": present.values, "inner": self._inner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        unflatten(state["parameters"], self._parameters)
        (self._offloaded or self._inner).load_state_dict(state["inner"])

    def _move(self, anchor: Tensor, base: Tensor) -> None:
        move(self._parameters, base, anchor)
        self._anchor, self._marked, self._averaged = anchor, False, True
        self._renew_scales()

    def _renew_scales(self) -> None:
        """After an average, once all of the model is on its device: in a pause the parameters are away."""
        if self._averaged and self._parameters[0].device == self._home:
            renew_scales(self._inner)
            self._averaged = False
