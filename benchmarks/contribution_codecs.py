"""How fast each codec encodes and decodes on one core, as ratios to a copy of the same values.

A vector of normally distributed values, larger than any cache, is encoded and decoded part by part, as
contributions and averages are; the arms (a copy of the vector, and each codec there and back) take turns,
with one thread. What counts is CPU time, because the machine may be shared; of each arm the
median over all turns is taken.

How to read it: ``÷ copy`` is bytes of fp32 per second ÷ those of the copy, ``÷ scaled_fp16`` likewise: above
1 means faster. ``loss`` is the norm of what one encoding loses ÷ the norm of the values. The copy's own rate
is printed above the table, once, since the targets are in bytes per second.

    PYTHONPATH=. python benchmarks/contribution_codecs.py [--values 16777216] [--turns 9] [--kept 64]
        [--file PATH]
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click
import torch
from _figures import head, in_turns, row
from _runs import Run, append, file_option
from torch import Tensor

from dupt_swarm.manifest import Encoding
from dupt_swarm.replica.codec import Codec, part_sizes, part_slices
from dupt_swarm.replica.codec.codec import all_codecs
from tests.support.vectors import decode_parts, encode_parts

REFERENCE = "scaled_fp16"
HEADER = ["codec", "bytes per value"]
HEADER += [f"{way} ÷ {base}" for way in ("encode", "decode") for base in ("copy", REFERENCE)] + ["loss"]


@click.command()
@click.option("--values", type=click.IntRange(1), default=1 << 24, show_default=True)
@click.option("--turns", type=click.IntRange(1), default=9, show_default=True, help="Of each arm.")
@click.option("--kept", type=click.IntRange(1, 1024), default=64, show_default=True, help="Of top_k.")
@file_option
def main(values: int, turns: int, kept: int, file: Path | None) -> None:
    """Measure all codecs."""
    torch.set_num_threads(1)
    vector = torch.randn(values, generator=torch.Generator().manual_seed(1)) * 1e-3
    encoding = Encoding(kept=kept)
    codecs = all_codecs(encoding)
    encoded = {name: encode_parts(codec, vector) for name, codec in codecs.items()}
    target, source = torch.empty_like(vector), torch.split(vector, part_sizes(values))
    arms: dict[str, Callable[[], object]] = {"copy": lambda: target.copy_(vector)}
    for name, codec in codecs.items():
        arms[f"encode {name}"] = partial(_encode, codec, source)
        arms[f"decode {name}"] = partial(_decode, codec, encoded[name], values)
    seconds = in_turns(arms, turns)
    asked = {"values": values, "kept": kept, "copy_seconds": seconds["copy"]}
    rows: dict[str, Run] = {}
    for name, codec in codecs.items():
        lost = decode_parts(codec, encoded[name], values).sub_(vector).norm() / vector.norm()
        rows[name] = asked | {
            "codec": name,
            "bytes": len(encoded[name]),
            "encode_seconds": seconds[f"encode {name}"],
            "decode_seconds": seconds[f"decode {name}"],
            "loss": lost.item(),
        }
        append(file, rows[name])
    _print_table(rows)


def _print_table(rows: dict[str, Run]) -> None:
    reference = rows[REFERENCE]
    rate = 4 * reference["values"] / statistics.median(reference["copy_seconds"])
    click.echo(f"copy: {rate / 1e9:.1f} GB of fp32 per second of one core")
    click.echo(head(HEADER))
    for name, found in rows.items():
        ratios = [
            statistics.median(base) / statistics.median(found[way])
            for way in ("encode_seconds", "decode_seconds")
            for base in (found["copy_seconds"], reference[way])
        ]
        size, loss = f"{found['bytes'] / found['values']:.4f}", f"{found['loss']:.4f}"
        click.echo(row([f"`{name}`", size, *(f"{ratio:.2f}" for ratio in ratios), loss]))


def _encode(codec: Codec, parts: Sequence[Tensor]) -> None:
    for part in parts:
        codec.encode(part)


def _decode(codec: Codec, data: bytes, numel: int) -> None:
    for place, size in zip(part_slices(codec, numel), part_sizes(numel), strict=True):
        codec.decode(data[place], size)


if __name__ == "__main__":
    main()
