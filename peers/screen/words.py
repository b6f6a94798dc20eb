"""Numbers and states in words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.learning.left_out import LeftOut
from dupt_swarm.learning.quality import Quality
from dupt_swarm.node.messages import Downloading
from dupt_swarm.node.record import PeerRecord
from dupt_swarm.oracle.status import Status

BAR_WIDTH = 24
LEFT_OUT_NAMED = 3


def describe_download(progress: Downloading) -> str:
    """Such as ``42 %  393 of 936 MB  11.8 MB/s  4 donors``."""
    done, total, donors = progress.bytes_done, progress.bytes_total, progress.donors
    return (
        f"{percent(done, total)}  {done / 1e6:.0f} of {total / 1e6:.0f} MB  "
        f"{progress.bytes_per_second / 1e6:.1f} MB/s  {plural(donors, 'donor')}"
    )


def state(status: Status) -> str:
    """What it is doing; if it is paused, how that ends."""
    if status.state != "paused":
        return status.state
    if status.waits:
        return "paused while others use this machine (`dupt-peer resume` continues now)"
    if status.paused_until is None:
        return "paused (`dupt-peer resume` continues)"
    until = time.strftime("%H:%M", time.localtime(status.paused_until))
    return f"paused until {until} (`dupt-peer resume` continues now)"


def figure(quality: Quality, decimals: int = 3) -> str:
    """What people compare beside the loss: such as ``1.234 bits/byte`` or ``accuracy 93.4 %, NSP 61.0 %``."""
    if quality.bits_per_byte is not None:
        return f"{quality.bits_per_byte:.{decimals}f} bits/byte"
    shares = {"accuracy": quality.accuracy, "NSP": quality.nsp_accuracy}
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items() if share is not None)


def costs(record: PeerRecord | None) -> str:
    """Such as ``↑ 1.03 MB  ↓ 4.12 MB, waited 0.3 s; 97 % of the time for training``."""
    if record is None or record.round_sent_bytes is None:
        return "none yet"
    sent, received = size(record.round_sent_bytes), size(record.round_received_bytes)
    waited = "" if record.round_waiting_seconds is None else f", waited {wait(record.round_waiting_seconds)}"
    left = "" if record.utilization is None else f"; {utilization(record)} of the time for training"
    return f"↑ {sent}  ↓ {received}{waited}{left}"


def utilization(record: PeerRecord | None) -> str:
    """The part of its time that rounds leave an oracle for training."""
    return "–" if record is None or record.utilization is None else percent(record.utilization, 1.0)


def last_round(status: Status) -> str:
    """How the last round ended."""
    result = status.last_round
    if result is None:
        return "none yet"
    if result.reason is not None:
        return f"failed: {result.reason.replace('_', ' ')} ({result.reason.fate.value})"
    return f"averaged {company(len(result.mates))} in {result.seconds:.1f} s"


def company(others: int) -> str:
    """``alone``, ``with 1 other``, ``with 2 others``."""
    return f"with {plural(others, 'other')}" if others else "alone"


def reasons(counts: Mapping[str, int]) -> str:
    """Such as ``rate 12, form 2``, the most frequent first."""
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items(), key=lambda c: -c[1]))


def sample(prompt: str, text: str) -> str:
    """What the model wrote after the prompt, on one line, fit for a terminal."""
    return one_line(f"generated: {prompt}⟶{text}")


def plural(count: int, noun: str) -> str:
    """``1 donor``, ``2,000 donors``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number(value: float | None) -> str:
    """Four decimals, or a dash."""
    return "–" if value is None else f"{value:.4f}"


def percent(part: float, whole: float) -> str:
    """Such as ``42 %``."""
    return f"{100 * part / whole:.0f} %" if whole else "–"


def amount(count: float, unit: str = "") -> str:
    """Three digits of a number of tokens, weights or bytes: ``812``, ``12.3 k``, ``4.56 MB``."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            scaled = count / size
            return f"{scaled:.{max(0, 3 - len(str(int(scaled))))}f} {prefix}{unit}"
    return f"{count:.0f} {unit}".rstrip()


def size(count: int | None) -> str:
    """An `amount` of bytes, or a dash."""
    return "–" if count is None else amount(count, "B")


def wait(seconds: float | None) -> str:
    """Such as ``0.3 s``, or a dash."""
    return "–" if seconds is None else f"{seconds:.1f} s"


def duration(seconds: float) -> str:
    """``8 s``, ``3 min``, ``2 h``: one unit is precise enough for a guess."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def bar(ratio: float) -> str:
    """A bar of fixed width."""
    full = round(ratio * BAR_WIDTH)
    return "█" * full + "░" * (BAR_WIDTH - full)


def about_left_out(left_out: Sequence[LeftOut]) -> list[str]:
    """What is said of files that could not be read: how many, the first few with the reason, or nothing."""
    if not left_out:
        return []
    named = [f"left out: {one.reason}" for one in left_out[:LEFT_OUT_NAMED]]
    more = len(left_out) - len(named)
    count = f"{plural(len(left_out), 'unreadable file')} left out of the corpus (--strict refuses it instead)"
    return [count, *named, *([f"left out: {more} more"] if more else [])]
