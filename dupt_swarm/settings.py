"""Settings: what concerns one machine only. Nothing here changes what is trained."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dupt_swarm.errors import UsageError

DAY_MINUTES = 24 * 60
_RANGE = re.compile(r"(\d{1,2})(?::(\d\d))?-(\d{1,2})(?::(\d\d))?", re.ASCII)


@dataclass(frozen=True)
class Hours:
    """Half-open ranges of minutes since midnight; no range means all day.

    A range that ends before it begins crosses midnight. Hours are local wall-clock time: on the nights when
    clocks change, a range is shorter or longer.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, texts: tuple[str, ...]) -> Hours:
        """Read ranges such as ``22-07`` and ``12:30-13:30``; a text may hold several, separated by commas.

        Raises:
            UsageError: a text is not a range, or the range is empty.
        """
        return cls(tuple(_parse_range(part.strip()) for text in texts for part in text.split(",")))

    def contain(self, moment: float) -> bool:
        """Whether ``moment`` (seconds since the epoch) lies in one of the ranges."""
        local = time.localtime(moment)
        minute = 60 * local.tm_hour + local.tm_min
        return not self.ranges or any(
            start <= minute < end if start < end else minute >= start or minute < end
            for start, end in self.ranges
        )

    def next_border(self, moment: float) -> float | None:
        """When a range next begins or ends after ``moment``; None if none ever does."""
        inside = self.contain(moment)
        first = int(moment) // 60 * 60 + 60
        # Clocks change by whole minutes, so testing every minute is right on those nights too.
        minutes = range(first, first + 2 * DAY_MINUTES * 60, 60)
        return next((float(minute) for minute in minutes if self.contain(minute) != inside), None)


ALWAYS = Hours()


def _parse_range(text: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"hours {text}: write them like 22-07 or 22:30-07:15", setting="hours")
    start, end = (60 * int(match[hour]) + int(match[hour + 1] or 0) for hour in (1, 3))
    minutes_fit = all(int(match[part] or 0) < 60 for part in (2, 4))
    if not minutes_fit or start >= DAY_MINUTES or end > DAY_MINUTES:
        raise UsageError(f"hours {text}: no such time of day; use 00:00 to 24:00", setting="hours")
    if start == end:
        raise UsageError(f"hours {text}: the range is empty; leave it out to train all day", setting="hours")
    return start, end


PublishedRole = Literal["oracle", "bootstrap", "evaluator"]
# An observer only looks: it publishes nothing, holds no state, and accepts no connections.
Role = Literal[PublishedRole, "observer"]

LISTEN_EVERYWHERE = ("/ip4/0.0.0.0/tcp/0", "/ip4/0.0.0.0/udp/0/quic-v1")
RELAY_BYTES_MIN = 1 << 30  # of a relay that peers choose; libp2p's default are 128 KiB
OF_THE_SWARM = "swarm"  # for a corpus' path: the text that the swarm offers
BATCH_SIZE = 16  # sequences at once, where nothing else is said and no GPU has room for more
# Where an evaluator publishes states, as a link. What stands before an @ would look like the host.
URL_PATTERN = r"^(https?://[!-?A-~]{1,150})?$"
DATASET_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$"  # what an evaluator may call its corpus


@dataclass(frozen=True)
class NodeSettings:
    """How the network node of this peer joins.

    Attributes:
        role: what the peer is to the others.
        name: shown to the others, up to 40 characters.
        device: shown to the others, such as ``NVIDIA H100``.
        initial_peers: multiaddrs ending in ``/p2p/<peer id>``; none only for the first peer.
        host_maddrs: where to listen, as in hivemind.
        announce_maddrs: where others find this peer, if not there: a router forwards its ports.
        invitation: a token of the swarm's organiser, where the swarm admits by invitation.
        revoked: a file with the organiser's revocations, read as it changes, and kept. None: nothing is kept.
        swarm_id: the swarm expected; another one is refused. Empty: whichever the peers are in.
        identity_path: the private key; made if missing. None: a new identity each time.
        own_folder: for what the node must not forget, see `disk.folders`; observers need none.
        offer: a folder of text that the swarm offers, to serve and to fetch into. None: none is kept.
        checkpoint: a saved replica state to go on from, if there is one.
        manifest: canonical bytes, if known already; otherwise they come from the peers.
        tokenizer: tokenizer.json, if known already; otherwise it comes from the peers.
        max_upload: bytes per second that this peer may send to the others; None: no limit.
        max_download: bytes per second that it may receive from them; None: no limit.
        log_rounds: how many of the last rounds at least to keep in memory, for those who are behind or audit;
            at most twice as many.
        log_bytes: how much memory that may take, but for the last round.
        relay: whether to forward the connections of peers that nobody can dial, if this one can be dialled.
        relay_bytes: how many bytes each of those may carry in either direction before it is cut.
    """

    role: Role
    name: str = ""
    device: str = ""
    initial_peers: tuple[str, ...] = ()
    host_maddrs: tuple[str, ...] = LISTEN_EVERYWHERE
    announce_maddrs: tuple[str, ...] = ()
    invitation: str = ""
    revoked: Path | None = None
    swarm_id: str = ""
    identity_path: Path | None = None
    own_folder: Path | None = None
    offer: Path | None = None
    checkpoint: Path | None = None
    manifest: bytes = b""
    tokenizer: bytes = b""
    max_upload: float | None = None
    max_download: float | None = None
    log_rounds: int = 10
    log_bytes: int = 1 << 30
    relay: bool = True
    relay_bytes: int = 1 << 36

    def __post_init__(self) -> None:
        """Raises UsageError: no peer would use such a relay."""
        if self.relay and self.relay_bytes < RELAY_BYTES_MIN:
            raise UsageError(
                "a relay that carries less than 1 GiB per connection is of no use to anybody; "
                "allow more, or do not relay",
                setting=("relay_bytes", "relay"),
            )


@dataclass(frozen=True)
class WeightedCorpus:
    """One corpus among several.

    Attributes:
        path: a file, a folder or a glob of text; None: the text that the swarm offers.
        weight: a token of it is seen so many times as often as one of a corpus of weight 1, however large
            both are: with equal weights, several corpora are trained on as if they were one.
    """

    path: Path | None
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Raises UsageError: the weight is no positive number."""
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise UsageError(
                f"{self.name}: a corpus cannot have the weight {self.weight:g}; "
                "give a positive number such as 0.3, or leave the corpus out",
                setting="corpus",
            )

    def __str__(self) -> str:
        """As on a command line."""
        return self.name if self.weight == 1 else f"{self.name}:{self.weight:g}"

    @property
    def name(self) -> str:
        """Its path, or the word for what the swarm offers."""
        return OF_THE_SWARM if self.path is None else f"{self.path}"


@dataclass(frozen=True)
class DataSettings:
    """Which data of this machine to read.

    Attributes:
        corpus: a file, a folder or a glob of text; or several, each with a weight; none: the text that the
            swarm offers. For a task a table of labelled examples, or a folder of tables.
        field: the key of .jsonl and the column of .parquet that hold the text.
        language: of the dumps of Wikipedia there, read only those in this one; None: all.
        columns: of labelled examples: what a column is called there, by what it is, as in
            ``{"text": "review"}``; for those with other names.
        strict: refuse a corpus with a file that cannot be read; otherwise such files are left out.
    """

    corpus: Path | Sequence[WeightedCorpus] | None = ()
    field: str = "text"
    language: str | None = None
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    strict: bool = False

    @property
    def corpora(self) -> Sequence[WeightedCorpus]:
        """All of them."""
        if isinstance(self.corpus, str | Path):
            return [WeightedCorpus(Path(self.corpus))]
        return self.corpus or [WeightedCorpus(None)]


@dataclass(frozen=True)
class OracleSettings(DataSettings):
    """How an oracle trains on this machine.

    Attributes:
        device: ``auto``, or a torch device such as ``cuda:1``; ``cuda`` is all GPUs, ``cuda:0,1`` are some.
        batch_size: sequences at once at most on each device; gradients are accumulated up to the manifest's
            step. None: on a GPU as many as it has room for, elsewhere 16.
        gpu_memory: the part of a GPU's memory that training takes at most; others have the rest.
        max_temperature: of a GPU, °C, above which training rests until it has cooled down; None: any.
        max_power: of a GPU, W in the mean over some seconds, above which training rests; None: any.
        compile: whether to use `torch.compile`; None: on CUDA only.
        offload: whether the inner optimizer's moments are in the main memory; None: on CUDA, if the model
            has no room otherwise.
        activation_checkpointing: whether activations are computed again; None: as a last resort likewise.
        rounds: stop after so many rounds; None: go on until told to stop.
        checkpoint_seconds: how often to save.
        held_out_blocks: how many held-out blocks of text to evaluate on; 16 examples of a task for each.
        hours: when to train; outside of them the oracle is paused.
        when_idle: whether it is paused, too, while others use the machine.
        threads: on a CPU, how many to compute with; None: as many as there are cores that others leave.
    """

    device: str = "auto"
    batch_size: int | None = None
    gpu_memory: float = 1.0
    max_temperature: float | None = None
    max_power: float | None = None
    compile: bool | None = None
    offload: bool | None = None
    activation_checkpointing: bool | None = None
    rounds: int | None = None
    checkpoint_seconds: float = 300.0
    held_out_blocks: int = 64
    hours: Hours = ALWAYS
    when_idle: bool = False
    threads: int | None = None


@dataclass(frozen=True)
class EvaluatorSettings(DataSettings):
    """How an evaluator measures on this machine.

    Attributes:
        corpus: all of it is measured on, nothing trained. None: what is held out of the text that the swarm
            offers.
        dataset: what the others see it called; empty: the name of the file or folder.
        device: ``auto``, or a torch device such as ``cuda:1``.
        batch_size: sequences at once.
        blocks: measure on so many sequences or examples at most; None: on the whole corpus.
        prompt: let each state continue this text, for all to read; None: let it write nothing.
        sample_tokens: how much it writes at most.
    """

    corpus: Path | None = None
    dataset: str = ""
    device: str = "auto"
    batch_size: int = BATCH_SIZE
    blocks: int | None = None
    prompt: str | None = None
    sample_tokens: int = 64
