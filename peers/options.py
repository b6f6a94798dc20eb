"""Options that several commands have, and how options become settings."""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dupt_swarm.command_line.paths import SEPARATOR, UserPath
from dupt_swarm.disk.home import expanded
from dupt_swarm.errors import UsageError
from dupt_swarm.settings import BATCH_SIZE, OF_THE_SWARM, NodeSettings, WeightedCorpus

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # only newer versions of click have it generic


# Below this, not even a single chunk arrives within the time limits.
RATE_MIN = 100_000
BYTES_END = 1 << 63
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


def parse_bytes(text: str) -> int:
    """How many bytes ``text`` means; units are decimal (kB, MB, GB, TB) or binary (KiB, MiB, GiB, TiB).

    Upper or lower case, the ``B`` and a space before the unit do not matter; no unit means bytes.

    Raises:
        ValueError: not a positive amount, or one that nothing holds.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]i?)?b?", text.strip().lower(), re.ASCII)
    if match is None:
        raise ValueError(f"`{text}` is not an amount of bytes; write it like 500kB, 20GB or 1.5GiB")
    number, unit = match.groups()
    amount = float(number) * (_UNITS | _BINARY_UNITS)[unit or ""]
    if not 0.5 < amount < BYTES_END:
        what = "no byte at all" if amount < 1 else "more than there is anywhere"
        raise ValueError(f"`{text}` is {what}; write an amount like 500kB, 20GB or 1.5GiB")
    return round(amount)


def parse_rate(text: str) -> int:
    """Like `parse_bytes`, per second.

    Raises:
        ValueError: also what is meant as bits, or is too little to take part.
    """
    amount = text.strip().removesuffix("/s")
    try:
        if "b" in amount:
            raise ValueError("a small b means bits")
        rate = parse_bytes(amount)
    except ValueError as error:
        raise ValueError(
            f"`{text}` is no rate in bytes per second; write it like 10MB or 500kB "
            "(a link of 100 Mbit/s moves 12.5MB)"
        ) from error
    if rate < RATE_MIN:
        raise ValueError(f"`{text}` is less than 100kB per second, too little to take part")
    return rate


class Parsed(_ParamType):
    """The type of options whose text a function reads; what that refuses is a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        """``parse`` raises ValueError or UsageError."""
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What the function makes of a text; what is none is a default."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except (ValueError, UsageError) as error:
            self.fail(str(error), param, ctx)


BYTES, RATE = Parsed("bytes", parse_bytes), Parsed("rate", parse_rate)


class Numbers(click.FloatRange):
    """A range of numbers; click would let nan pass, which is neither below nor above anything."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, which is one."""
        number: float = super().convert(value, param, ctx)
        return self.fail(f"{value} is no number", param, ctx) if math.isnan(number) else number


def parse_text_path(text: str) -> str:
    """A path of text, as it is typed.

    Raises:
        UsageError: it is empty, and would mean all text in the working folder.
    """
    if not text.strip():
        raise UsageError("the path is empty, as a variable is that was not set; write . for this folder")
    return text


class _Texts(Parsed):
    """The type of options that take text, of which several may be given."""

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Those in an environment variable."""
        return [one.strip() for one in rv.split(SEPARATOR) if one.strip()]


TEXT_PATH, WORDS = _Texts("path", parse_text_path), _Texts("text", str)


def parse_corpus(text: str) -> WeightedCorpus:
    """A corpus and its weight; what exists as it is typed is a path without one.

    The word ``swarm`` means the text that the swarm offers, whatever exists here; a folder is ``./swarm``.

    Raises:
        UsageError: neither, or empty, or the weight is no positive number.
    """
    if parse_text_path(text) == OF_THE_SWARM:
        return WeightedCorpus(None)
    path, colon, weight = text.rpartition(":")
    if not colon or _is_there(text):
        return WeightedCorpus(Path(text))
    number = _number(weight)
    if not path or number is None:
        raise UsageError(
            f"`{text}`: no such file or folder, and what follows its last colon is no weight; "
            "write PATH, or PATH:WEIGHT with a number such as 0.3"
        )
    return WeightedCorpus(None if path == OF_THE_SWARM else Path(path), number)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_there(text: str) -> bool:
    """Whether a path or a glob leads to anything."""
    path = str(expanded(text))
    return os.path.lexists(path) or any(glob.iglob(path, recursive=True))  # noqa: PTH207


def _is_empty(folder: str) -> bool:
    path = Path(folder)
    try:
        return path.is_dir() and not any(path.iterdir())
    except OSError:  # whoever reads it says so
        return False


class _Corpora(_Texts):
    """The type of ``--corpus`` where several may be given."""

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """The corpora in an environment variable.

        An empty folder is none: in the image /corpus is there whether something is mounted on it or not.
        """
        return [one for one in super().split_envvar_value(rv) if not _is_empty(one)]


CORPUS = _Corpora("corpus", parse_corpus)


Settings = TypeVar("Settings")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Several options at once, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        return reduce(lambda inner, option: option(inner), reversed(options), command)

    return decorate


def parse_columns(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """``--column NAME=COLUMN``, repeated, as a dict."""
    del context, parameter
    columns: dict[str, str] = {}
    for value in values:
        name, equals, column = value.partition("=")
        if not (name and equals and column):
            raise click.BadParameter(f"{value!r} is not NAME=COLUMN, such as text=review")
        if name in columns:
            raise click.BadParameter(f"`{name}` is given twice")
        columns[name] = column
    return columns


def _initial_peers(*, required: bool) -> Decorator:
    return click.option(
        "--initial-peers",
        multiple=True,
        required=required,
        metavar="ADDRESS",
        help="Multiaddr of a peer of the swarm, ending in /p2p/<peer id>. Repeatable.",
    )


initial_peers = _initial_peers(required=True)
initial_peers_if_any = _initial_peers(required=False)
field = click.option(
    "--field", default="text", show_default=True, help="Key of .jsonl, column of .parquet with the text."
)
language = click.option(
    "--language",
    default=None,
    metavar="CODE",
    help="Of Wikipedia's dumps read only those in this language, such as de. [default: all]",
)
strict = click.option(
    "--strict", is_flag=True, help="Refuse a corpus with unreadable files, instead of leaving those out."
)
device = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps.")
devices = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="auto, cpu, cuda (all GPUs), cuda:1, cuda:0,1 (several), mps.",
)
batch_size = click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=BATCH_SIZE,
    show_default=True,
    help="Sequences at once at most.",
)
batch_size_that_fits = click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=None,
    help=f"Sequences at once at most. [default: on a GPU as many as fit, elsewhere {BATCH_SIZE}]",
)
gpu_memory = click.option(
    "--gpu-memory",
    type=Numbers(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Take at most this part of the GPU's memory.",
)
offload = click.option(
    "--offload/--no-offload",
    default=None,
    help="Keep Adam's and Muon's moments in the main memory. [default: where a GPU has no room otherwise]",
)
activation_checkpointing = click.option(
    "--activation-checkpointing/--no-activation-checkpointing",
    default=None,
    help="Compute activations again instead of keeping them. [default: where a GPU has no room otherwise]",
)
swarm_id = click.option(
    "--swarm", "swarm_id", default="", metavar="ID", help="Refuse any other swarm than this one."
)
invitation = click.option(
    "--invitation",
    default="",
    metavar="TOKEN",
    help="From the organiser, where the swarm admits by invitation. Others on this machine see it on the "
    "command line, so the environment is a better place. `join`, `evaluate` and `bootstrap` keep it.",
)
state_dir = click.option(
    "--state-dir",
    type=UserPath(file_okay=False, path_type=Path),
    default=None,
    help="Where to keep state, a sub-folder per swarm. [default: the platform's state folder]",
)
threads = click.option(
    "--threads",
    type=click.IntRange(1),
    default=None,
    help="Compute with so many threads on a CPU. [default: as many as there are cores that others leave]",
)
max_disk = click.option(
    "--max-disk",
    type=BYTES,
    default=None,
    metavar="BYTES",
    help="What this swarm's folder may take of the disk, such as 20GB; text that the swarm offers takes 2 GB "
    "of it at most. [default: no limit]",
)
nice = click.option(
    "--nice",
    type=click.IntRange(0, 19),
    default=0,
    show_default=True,
    help="CPU priority, 0 to 19: 19 yields to everything else.",
)
name = click.option("--name", default="", help="Shown to the others. [default: none; they see the peer id]")
max_upload = click.option(
    "--max-upload",
    type=RATE,
    default=None,
    help="Send at most this many bytes (not bits) per second, such as 10MB or 500kB. [default: no limit]",
)
max_download = click.option(
    "--max-download",
    type=RATE,
    default=None,
    help="Receive at most this many bytes (not bits) per second, such as 10MB or 500kB. [default: no limit]",
)
log_rounds = click.option(
    "--log-rounds",
    type=click.IntRange(1),
    default=NodeSettings.log_rounds,
    show_default=True,
    help="Keep at least so many of the last rounds in memory, at most twice as many, for peers that are "
    "behind and for `dupt-peer audit`.",
)
log_size = click.option(
    "--log-size",
    "log_bytes",
    type=BYTES,
    default=NodeSettings.log_bytes,
    metavar="BYTES",
    help="What all of them but the last one may take, such as 500MB. [default: 1GiB]",
)
relay = click.option(
    "--relay/--no-relay",
    default=NodeSettings.relay,
    show_default=True,
    help="Forward the traffic of peers that nobody can dial, if others can dial this one. What that takes is "
    "not limited by --max-upload and --max-download.",
)
relay_size = click.option(
    "--relay-size",
    "relay_bytes",
    type=BYTES,
    default=NodeSettings.relay_bytes,
    metavar="BYTES",
    help="What each connection may carry that this peer forwards, such as 10GB. [default: 64GiB]",
)
metrics_addr = click.option(
    "--metrics-addr",
    default=None,
    metavar="HOST:PORT",
    help="Serve metrics for Prometheus at this address, such as 127.0.0.1:9465. [default: nowhere]",
)
columns = click.option(
    "--column",
    "columns",
    type=WORDS,
    multiple=True,
    callback=parse_columns,
    metavar="NAME=COLUMN",
    help="What one of the task's columns is called in the files, such as text=review. Repeatable.",
)
local_swarm = click.option(
    "--swarm", "swarm_id", default="", metavar="ID", help="The peer of this machine in this swarm."
)
local_name = click.option("--name", default="", help="The peer of this machine with this name.")
local_role = click.option(
    "--role",
    type=click.Choice(("oracle", "bootstrap", "evaluator")),
    default=None,
    help="The peer of this machine with this role. [default: any]",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")


# What several commands have in a row.
data = together(field, language, columns, strict)
saving = together(offload, activation_checkpointing)
running = together(
    *(state_dir, name, max_upload, max_download), *(log_rounds, log_size, relay, relay_size, metrics_addr)
)
looking = together(swarm_id, invitation, max_download)


def corpora(help: str) -> Decorator:
    """``--corpus``, repeatable."""
    return click.option(
        "--corpus",
        type=CORPUS,
        multiple=True,
        metavar="PATH[:WEIGHT]",
        help=f"{help} Repeatable: a token of PATH:0.3 is seen 0.3 times as often as one of a corpus without "
        "weight, however large both are; `swarm` is the text that the swarm offers. In DUPT_PEER_…_CORPUS "
        "several are separated by `;`. [default: swarm]",
    )


def pick(settings: type[Settings], options: dict[str, Any], **more: Any) -> Settings:
    """The settings whose fields have the names of these options."""
    names = {field.name for field in fields(settings)}  # type: ignore[arg-type]
    return settings(**{key: value for key, value in options.items() if key in names}, **more)
