"""One line per check, and the exit code that follows from all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dupt_swarm.errors import AdmissionError, DeviceError, DuptError, ManifestError, UnreachableError

FAILURE = DuptError.exit_code
MISMATCH = ManifestError.exit_code
UNREACHABLE = UnreachableError.exit_code
REJECTED = AdmissionError.exit_code
UNSUITABLE = DeviceError.exit_code
GRAVEST_FIRST = (MISMATCH, UNREACHABLE, REJECTED, UNSUITABLE, FAILURE)


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: what was looked at.
        ok: None: it could not be looked at, or it does not keep the peer from joining.
        detail: what was found.
        remedy: what to do about it, if it is not fine.
        exit_code: what it means for the program if it is not fine.
    """

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""
    exit_code: int = FAILURE

    def __str__(self) -> str:
        """A line for people."""
        mark = {True: "✓", False: "✗", None: "–"}[self.ok]
        return f"{mark} {self.name}: {self.detail}" + (f"; {self.remedy}" if self.remedy else "")

    def to_json(self) -> dict[str, Any]:
        """The public shape of one check in ``--json``."""
        return {"name": self.name, "ok": self.ok, "detail": self.detail, "remedy": self.remedy}


def to_json(checks: Sequence[Check]) -> str:
    """The public shape of ``--json``."""
    return json.dumps(
        {"ok": exit_code(checks) == 0, "checks": [check.to_json() for check in checks]}, indent=2
    )


def exit_code(checks: Sequence[Check]) -> int:
    """0 if nothing is wrong, else the gravest: what nothing on this machine can mend comes first."""
    found = {check.exit_code for check in checks if check.ok is False}
    return next((code for code in GRAVEST_FIRST if code in found), 0)
