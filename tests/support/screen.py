"""What the tests of the screen share: an oracle's report and what is known beside it."""

import time
from dataclasses import replace
from typing import Any

from dupt_swarm.learning.quality import Quality
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.messages import RoundResult, StateName
from dupt_swarm.node.progress import RoundProgress
from dupt_swarm.node.record import PeerRecord, Reach
from dupt_swarm.node.view import Peer, View
from dupt_swarm.oracle.status import Activity, Status
from dupt_swarm.presets import manifest_from_preset
from peers.screen.facts import About, Facts, Flow
from tests.support.costs import cost_fields


def manifest() -> Manifest:
    """Of the preset `tiny`."""
    return manifest_from_preset("tiny", name="demo", seed=0, tokenizer_sha256="0" * 64, vocabulary_size=257)


def oracle(
    peer_id: str, tokens_per_second: float, reach: Reach = "direct", name: str = "", **more: Any
) -> Peer:
    """One that trains."""
    record = PeerRecord(
        role="oracle",
        state="training",
        time=time.time(),
        round=7,
        state_digest="a" * 64,
        swarm_tokens=4_000_000,
        tokens_per_second=tokens_per_second,
        reach=reach,
        name=name,
        **more,
    )
    return Peer(peer_id, record)


def status(last: RoundResult | None = None, **changed: Any) -> Status:
    """Of an oracle in round 7."""
    found = Status(
        state="training",
        round=7,
        progress=RoundProgress(tokens=470.0, target=1000.0, live=2, others_averaging=False),
        rounds_done=3,
        tokens_per_second=100.0,
        contributed_tokens=1_234_567,
        loss=5.5,
        first=None,
        latest=Quality(6.0, {"tokens": 10, "bytes": 40}, bits_per_byte=2.5),
        last_round=last,
        failed_rounds=0,
        activity=Activity("stepping", 3, 8, "micro-batches"),
    )
    return replace(found, **changed)


def averaged(number: int = 7) -> RoundResult:
    """A round that went well."""
    return RoundResult(StateName(number, 1, "a" * 64), None, 1000, ("other",), 0.61)


def about(**changed: Any) -> About:
    """An oracle called alice."""
    found = About(
        name="alice",
        peer_id="me",
        manifest=manifest(),
        weights=4_200_000,
        device="cpu, 2 threads",
        corpus="~/texts: 3.20 M tokens",
        max_upload=1e6,
    )
    return replace(found, **changed)


def facts(**changed: Any) -> Facts:
    """All that the panel shows, some time after the start."""
    found = Facts(
        about(),
        status(averaged()),
        View(0.0, (oracle("me", 90.0, reach="relayed", **cost_fields()), oracle("other", 300.0))),
        up=Flow(12_300_000, 400e3, 1e6),
        down=Flow(456_000_000, 200e3, None),
        losses=[9 - step / 100 for step in range(300)],
        held_out=[9.0, 7.0, 6.0],
        events=[f"12:00:{second:02}  event {second}" for second in range(60)],
    )
    return replace(found, **changed)
