"""What each training strategy implies for the rest of the manifest.

Nobody else asks for a strategy by its name, except `learning.strategies`, which builds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class StrategyTraits:
    """What follows from the choice of a strategy.

    Attributes:
        scheduled: which learning rate follows the schedule, that of the inner steps or of the outer
            one: the updates that follow gradients. The other one is constant.
        inner_optimizers: what `inner.optimizer` may be.
    """

    scheduled: Literal["inner", "outer"]
    inner_optimizers: tuple[str, ...]

    @property
    def inner_choice(self) -> str:
        """The inner optimizers for a message."""
        return " or ".join(f'"{name}"' for name in self.inner_optimizers)


STRATEGIES = {
    "diloco": StrategyTraits(scheduled="inner", inner_optimizers=("adamw", "sgd", "muon")),
    "gradient": StrategyTraits(scheduled="outer", inner_optimizers=("none",)),
}
