"""What a codec loses of a contribution is added to the next one."""

from __future__ import annotations

import torch
from torch import Tensor

from dupt_swarm.replica.codec import Codec, part_sizes
from dupt_swarm.replica.state import all_finite


class ErrorFeedback:
    """Encodes an oracle's contributions, and keeps what was lost (Seide et al. 2014, section 3).

    Of each contribution ``input = values + feedback × lost`` is encoded. What is lost of that,
    ``input − decoded``, takes the place of ``lost`` when the contribution counts, and only then: one that
    fails is sent again as it was, or is encoded anew with the loss of the one before.
    """

    def __init__(self, codec: Codec, feedback: float) -> None:
        """``feedback``: from 0 (a loss is forgotten) to 1 (all of it comes again)."""
        self._codec, self._feedback = codec, feedback
        self._lost: Tensor | None = None
        self._pending: Tensor | None = None

    def encode(self, values: Tensor) -> bytes:
        """The bytes of a contribution, with the loss of those before.

        Args:
            values: fp32 ``[n]`` on the CPU; overwritten.

        Returns:
            Nothing if they are not finite.
        """
        self.drop()
        if self._lost is not None:
            values.add_(self._lost, alpha=self._feedback)
        if not all_finite(values):
            return b""
        encoded = []
        for part in torch.split(values, part_sizes(values.numel())):
            encoded.append(self._codec.encode(part))
            if self._feedback:
                part -= self._codec.decode(encoded[-1], part.numel())
        self._pending = values if self._feedback else None
        return b"".join(encoded)

    def commit(self) -> None:
        """What was encoded last counts."""
        if self._pending is not None:
            self._lost, self._pending = self._pending, None

    def drop(self) -> None:
        """What was encoded last does not count, and will not be sent again."""
        self._pending = None

    def forget(self) -> None:
        """All progress is given up: also what was lost of it, which may be what was wrong with it."""
        self._lost = self._pending = None

    def state_dict(self) -> dict[str, Tensor]:
        """What is needed to go on after a restart: the loss of the contributions that count."""
        return {} if self._lost is None else {"lost": self._lost}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state``."""
        self._lost = state["lost"].cpu() if "lost" in state else None
