"""Codecs: how a contribution or an average is encoded for the network.

Encoding may lose precision and works where the values are; decoding must not depend on the machine:
everyone who receives the same bytes gets the same fp32 values.

codec           `Codec`, which there are, and the parts in which a vector is encoded
fp32            4 bytes per value, exact
scaled_fp16     2 bytes per value, with one exponent per part
int8            1 byte per value
int4            4 bits per value
two_bit         2 bits per value: sign and one of two magnitudes
top_k           the largest values only
received        bytes as a tensor, without new memory for each part
blocks          values that share a scale: int8, int4 and two_bit; top_k has its scales
"""

from dupt_swarm.replica.codec.codec import (
    PART_VALUES,
    Codec,
    build_codec,
    check_size,
    encoded_size,
    part_sizes,
    part_slices,
)

__all__ = ["PART_VALUES", "Codec", "build_codec", "check_size", "encoded_size", "part_sizes", "part_slices"]
