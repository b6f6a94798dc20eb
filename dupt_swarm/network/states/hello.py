"""The first thing that peers tell one another."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field, replace

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.fields import DIGEST
from dupt_swarm.network.p2p.rpc import check_elements
from dupt_swarm.replica.plain import load

STATES_MAX = 16  # read of those that a hello names
VERSION_CHARS_MAX = 20
ELEMENTS_MAX = 4096  # a manifest's marks count too, as it is one text in here
_STATE = re.compile(f"(?P<round>[0-9]{{1,18}}):(?P<digest>{DIGEST.pattern})")


@dataclass(frozen=True)
class Hello:
    """What a peer tells anyone who asks: enough to join its swarm. ``manifest`` is canonical JSON.

    ``time`` is its clock when it answers, seconds since the epoch, and ``states`` names the replica states
    that it gives then, each as ``round:digest``; both are empty if it does not tell. ``attestation`` is the
    organiser's last word on the swarm's state that it knows; see `organiser.attestation`.
    """

    version: str
    swarm_id: str
    manifest: str
    tokenizer_blob: str
    state_digest: str
    attestation: str = field(default="", compare=False)
    time: str = field(default="", compare=False)
    states: str = field(default="", compare=False)

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

    def pack(self) -> bytes:
        """As it travels."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, data: bytes) -> Hello:
        """Read another peer's hello, also of another version.

        Raises:
            ValueError: it is not one.
        """
        check_elements(data, ELEMENTS_MAX)
        try:
            tree = load(data)
            hello = cls(**{key: tree[key] for key in cls.__dataclass_fields__ if key in tree})
            for value in vars(hello).values():
                str.encode(value)  # JSON may have halves of characters
            hello = replace(hello, version=one_line(hello.version)[:VERSION_CHARS_MAX])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a hello of a dupt_swarm peer: {error}") from error
        return hello
