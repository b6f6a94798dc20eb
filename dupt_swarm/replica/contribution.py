"""What goes into a round as a blob: a contribution, which everybody screens for itself, or an average."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from dupt_swarm.replica.aggregation import sum_of_squares
from dupt_swarm.replica.blob import Blob, Index
from dupt_swarm.replica.codec import Codec, encoded_size, part_sizes, part_slices
from dupt_swarm.replica.state import all_finite

CONTRIBUTION, AVERAGE = "contribution-1", "average-1"


@dataclass(frozen=True)
class Claim:
    """What a blob is said to be: it is in its header, and the maker of a contribution signs it.

    Attributes:
        round: rounds completed before the one that it is for.
        state: digest of the replica state that it started from.
        tokens: those that it stands for.
        maker: peer id of who made it; empty of an average.
    """

    round: int
    state: str
    tokens: int
    maker: str = ""


@dataclass(frozen=True)
class Form:
    """The form of all contributions, or of all averages, of a swarm.

    Attributes:
        kind: `CONTRIBUTION` or `AVERAGE`.
        codec: by which they are encoded.
        numel: values of the model.
    """

    kind: str
    codec: Codec
    numel: int

    @property
    def size(self) -> int:
        """Bytes of each, without the index."""
        return encoded_size(self.codec, self.numel)

    def build(self, claim: Claim, data: bytes | memoryview) -> Blob:
        """The blob with the encoded values ``data``."""
        return Blob.build(self._header(claim), [data])

    def check(self, index: Index, claim: Claim) -> None:
        """Refuse, before any chunk is fetched, an index of something else than was claimed.

        Raises:
            ValueError: it has another header or another size.
        """
        if index.header != self._header(claim) or index.sizes != (self.size,):
            raise ValueError("the blob is not what its digest was given for")

    def _header(self, claim: Claim) -> dict[str, Any]:
        mine = {"kind": self.kind, "codec": self.codec.name, "numel": self.numel}
        return mine | asdict(claim)

    def parts(self, blob: Blob) -> Iterator[Tensor]:
        """The values of ``blob``, part after part, each decoded when it is asked for.

        Raises:
            ValueError: the codec does not know such bytes.
        """
        [data] = blob.sections
        places = part_slices(self.codec, self.numel)
        for place, length in zip(places, part_sizes(self.numel), strict=True):
            yield self.codec.decode(data[place], length)


@dataclass(frozen=True)
class Measure:
    """What screening needs to know of a whole contribution.

    Attributes:
        reason: why it is unusable whatever the others are, one word for the metrics; empty if it is usable.
        norm: of all its values, with the same bits on any hardware.
    """

    reason: str
    norm: float


def measure(blob: Blob, form: Form) -> Measure:
    """Decode a contribution part by part, and see what it is."""
    total = 0.0
    try:
        for part in form.parts(blob):
            if not all_finite(part):
                return Measure("not_finite", 0.0)
            total += sum_of_squares(part)
    except ValueError:
        return Measure("shape", 0.0)
    return Measure("", math.sqrt(total))
