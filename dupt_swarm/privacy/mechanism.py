"""What becomes of a contribution on its way out, before it is encoded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Protocol

from torch import Tensor

from dupt_swarm.errors import UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.privacy.accountant import PrivacySpent, epsilon
from dupt_swarm.privacy.gaussian import privatize
from dupt_swarm.privacy.ledger import Ledger
from dupt_swarm.privacy.scale import scale
from dupt_swarm.settings import PrivacySettings


class Mechanism(Protocol):
    """Decides what of a contribution others may see (a *mechanism* in Dwork and Roth 2014).

    Attributes:
        spent: what all so far may have told; None: nobody counts.
    """

    @property
    def spent(self) -> PrivacySpent | None: ...

    def release(self, values: Tensor, round: int) -> None:
        """Make ``values`` (fp32 ``[numel]`` on the CPU, overwritten) fit to be seen in ``round``."""


class Open:
    """Contributions are seen as they are."""

    spent = None

    def release(self, values: Tensor, round: int) -> None:
        """See `Mechanism`."""


class Private:
    """Contributions are clipped, get Gaussian noise, and are counted before they leave."""

    def __init__(self, settings: PrivacySettings, manifest: Manifest, numel: int, ledger: Path) -> None:
        """Of contributions of ``numel`` values; those that were made before are in the file ``ledger``.

        Raises:
            UsageError: ε is spent; there is no accountant; the manifest does not clip gradients.
            CheckpointError: the ledger is damaged.
        """
        self._settings, self._manifest = settings, manifest
        self._ledger = Ledger(ledger)
        scale(manifest, 0, numel)
        self.spent = self._count()
        if self.spent.exhausted:
            raise UsageError(
                f"one more contribution would make ε more than {settings.epsilon:g}: it is "
                f"{self.spent.epsilon:.2f} after {self.spent.contributions}; allow more, or add more noise",
                setting=("private_epsilon", "private_noise"),
            )

    def release(self, values: Tensor, round: int) -> None:
        """See `Mechanism`.

        Raises:
            FileError: the contribution cannot be counted.
        """
        self._ledger.add(self._settings.noise)
        self.spent = self._count()
        bound = self._settings.clip * scale(self._manifest, round, values.numel())
        privatize(values, bound, self._settings.noise)

    def _count(self) -> PrivacySpent:
        made, own = self._ledger.made, self._settings
        after = epsilon(made + Counter({own.noise: 1}), own.delta)
        return PrivacySpent(
            epsilon(made, own.delta),
            own.delta,
            made.total(),
            own.epsilon,
            own.epsilon is not None and after > own.epsilon,
        )


def build_mechanism(
    settings: PrivacySettings | None, manifest: Manifest, numel: int, ledger: Path
) -> Mechanism:
    """What the settings ask for; see `Private`.

    Raises:
        UsageError: what was private so far would no longer be.
    """
    if settings is not None:
        return Private(settings, manifest, numel, ledger)
    if ledger.exists():
        raise UsageError(
            f"this oracle's contributions were private so far; without privacy the next one undoes that. "
            f"Join as before, or remove {ledger} if that is meant",
            setting="private",
        )
    return Open()
