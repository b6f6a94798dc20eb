"""Codecs: how a contribution or an average is encoded for the network.

Encoding may lose precision and works where the values are; decoding must not depend on the machine:
everyone who receives the same bytes gets the same fp32 values.

codec           `Codec`, and which there are
parts           a vector is encoded part by part
scaled_fp16     2 bytes per value, with one exponent per part
fp32            4 bytes per value, exact
"""

from dupt_swarm.replica.codec.codec import Codec, build_codec
from dupt_swarm.replica.codec.parts import (
    PART_VALUES,
    check_size,
    decode_parts,
    encode_parts,
    encoded_size,
    part_sizes,
    part_slices,
)

__all__ = [
    "PART_VALUES",
    "Codec",
    "build_codec",
    "check_size",
    "decode_parts",
    "encode_parts",
    "encoded_size",
    "part_sizes",
    "part_slices",
]
