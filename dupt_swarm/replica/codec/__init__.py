"""Codecs: how part of a contribution or of an average is encoded for the network.

Encoding may lose precision; decoding must not depend on the machine: everyone who receives the same bytes
gets the same fp32 values.

scaled_fp16     2 bytes per value, with one exponent per part
fp32            4 bytes per value, exact
parts           a whole vector, part by part
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.codec.fp32 import FP32
from dupt_swarm.replica.codec.scaled_fp16 import ScaledFP16


class Codec(Protocol):
    """Turns flat fp32 tensors into bytes and back."""

    bytes_per_value: int

    def encode(self, values: Tensor) -> bytes:
        """The bytes of ``values`` (fp32, ``[n]``, finite)."""

    def encoded_bytes(self, numel: int) -> int:
        """How many bytes ``numel`` values have, whichever they are."""

    def decode(self, data: bytes, numel: int) -> Tensor:
        """The fp32 values encoded in ``data``, ``[numel]``, in newly allocated memory.

        Raises:
            ValueError: ``data`` is not an encoding of ``numel`` values.
        """


def build_codec(manifest: Manifest) -> Codec:
    """The codec that the manifest names."""
    codecs: dict[str, type[Codec]] = {"scaled_fp16": ScaledFP16, "fp32": FP32}
    return codecs[manifest.codec]()
