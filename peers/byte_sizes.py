"""Amounts of bytes on the command line: ``20GB``, ``500kB``, ``1.5GiB``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    _IntType = click.ParamType[int]
else:
    _IntType = click.ParamType  # only newer versions of click have it generic

# Below this, not even a single chunk arrives within the time limits.
RATE_MIN = 100_000
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


def parse_bytes(text: str) -> int:
    """How many bytes ``text`` means; units are decimal (kB, MB, GB, TB) or binary (KiB, MiB, GiB, TiB).

    Upper or lower case, the ``B`` and a space before the unit do not matter; no unit means bytes.

    Raises:
        ValueError: not a positive amount.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]i?)?b?", text.strip().lower(), re.ASCII)
    if match is None:
        raise ValueError(f"`{text}` is not an amount of bytes; write it like 500kB, 20GB or 1.5GiB")
    number, unit = match.groups()
    amount = round(float(number) * (_UNITS | _BINARY_UNITS)[unit or ""])
    if amount < 1:
        raise ValueError(f"`{text}` is no byte at all; write an amount like 500kB, 20GB or 1.5GiB")
    return amount


class BytesType(_IntType):
    """The type of options that take an amount of bytes; their value is an int."""

    name = "bytes"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See `parse_bytes`; what it refuses is a usage error."""
        if isinstance(value, int):
            return value
        try:
            return parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class RateType(BytesType):
    """The type of options that take bytes per second."""

    name = "rate"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See `parse_bytes`; bits, and too little to take part, are usage errors as well."""
        if isinstance(value, int):
            return value
        text = value.strip().removesuffix("/s")
        try:
            if "b" in text:
                raise ValueError("a small b means bits")
            rate = parse_bytes(text)
        except ValueError:
            self.fail(
                f"`{value}` is no rate in bytes per second; write it like 10MB or 500kB "
                "(a link of 100 Mbit/s moves 12.5MB)",
                param,
                ctx,
            )
        if rate < RATE_MIN:
            self.fail(f"`{value}` is less than 100kB per second, too little to take part", param, ctx)
        return rate


BYTES = BytesType()
RATE = RateType()
