"""The first thing that peers tell one another."""

from __future__ import annotations

import math
import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.fields import DIGEST
from dupt_swarm.network.p2p.rpc import Message

STATES_MAX = 16  # read of those that a hello names
VERSION_CHARS_MAX = 20
_STATE = re.compile(f"(?P<round>[0-9]{{1,18}}):(?P<digest>{DIGEST.pattern})")


def _short_line(text: str) -> str:
    return one_line(text)[:VERSION_CHARS_MAX]


class Hello(Message):
    """What a peer tells anyone who asks: enough to join its swarm. ``manifest`` is canonical JSON.

    ``time`` is its clock when it answers, seconds since the epoch, and ``states`` names the replica states
    that it gives then, each as ``round:digest``; both are empty if it does not tell. ``attestation`` is the
    organiser's last word on the swarm's state that it knows; see `organiser.attestation`.
    """

    model_config = ConfigDict(extra="ignore")  # other versions tell more
    elements_max: ClassVar[int] = 4096  # a manifest's marks count too, as it is one text in here

    version: Annotated[str, AfterValidator(_short_line)]
    swarm_id: str
    manifest: str
    tokenizer_blob: str
    state_digest: str
    attestation: str = ""
    time: str = ""
    states: str = ""

    @property
    def clock(self) -> float:
        """``time`` as a number; 0 if it is missing or malformed."""
        try:
            clock = float(self.time)
        except ValueError:
            return 0.0
        return clock if math.isfinite(clock) else 0.0

    @property
    def rounds(self) -> dict[str, int]:
        """The round of each state that it gives, by digest."""
        found = map(_STATE.fullmatch, self.states.split()[:STATES_MAX])
        return {match["digest"]: int(match["round"]) for match in found if match}
