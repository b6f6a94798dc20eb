"""Is the swarm well? A few checks, each with a verdict and one plain sentence."""

from __future__ import annotations

from collections import Counter
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.node.view import View
from monitor import formats
from monitor.watcher import REFRESH_SECONDS, Snapshot

STALE_SECONDS = 6 * REFRESH_SECONDS
# So many times the manifest's `limit_seconds`; as DuptSwarmStalled in prometheus/rules.yml has it.
STALLED_ROUNDS = 2

Level = Literal["good", "warning", "critical"]  # the gravest last


class Check(BaseModel):
    """One aspect of the swarm's health."""

    model_config = ConfigDict(frozen=True)

    name: Literal["data", "oracles", "rounds", "replicas", "reach"]
    level: Level
    text: str = Field(description="one sentence in English; may change")


def check_health(snapshot: Snapshot, view: View, now: float) -> list[Check]:
    """All checks of the live ``view`` at ``now``."""
    checks = [_data(snapshot, now)]
    if checks[0].level == "critical":
        return checks  # whoever is there, we do not see them
    checks.append(_oracles(view))
    if view.at_work and snapshot.totals.round_time is not None:
        checks.append(_rounds(snapshot, view, now))
    if len(view.peers) > 1:
        checks.append(_replicas(view))
    if view.oracles:
        checks.append(_reach(view))
    return checks


def gravest(checks: list[Check]) -> Check:
    """The first of those with the most serious verdict."""
    return max(checks, key=lambda check: get_args(Level).index(check.level))


def _data(snapshot: Snapshot, now: float) -> Check:
    if snapshot.last_refresh is None:
        return Check(name="data", level="critical", text="The swarm has not been reached yet.")
    if (age := now - snapshot.last_refresh) > STALE_SECONDS:
        return Check(
            name="data",
            level="critical",
            text=f"The swarm has not answered for {formats.duration(age)}; the data shown is stale.",
        )
    if not snapshot.up:
        return Check(name="data", level="warning", text="The last refresh failed; trying again.")
    # No age in seconds: this sentence should not change at every refresh.
    return Check(name="data", level="good", text="The swarm answers; the data is fresh.")


def _oracles(view: View) -> Check:
    working = len(view.at_work)
    if not view.oracles:
        return Check(name="oracles", level="critical", text="No oracle is here; the line above starts one.")
    others = len(view.oracles) - working
    text = formats.count(working, "oracle trains", "oracles train")
    if others:
        text += f", {others:,} {'is' if others == 1 else 'are'} starting, paused or leaving"
    return Check(name="oracles", level="good" if working else "warning", text=f"{text}.")


def _rounds(snapshot: Snapshot, view: View, now: float) -> Check:
    ended, limit = snapshot.totals.round_time or 0.0, snapshot.manifest.rounds.limit_seconds
    # Oracles that return after a night have to complete a round first.
    if now - max(ended, snapshot.working_since) > STALLED_ROUNDS * limit:
        text = f"No round has ended for {formats.duration(now - ended)}."
        return Check(name="rounds", level="critical", text=text)
    if now - ended > STALLED_ROUNDS * limit:
        text = "The oracles are back; their first round is under way."
        return Check(name="rounds", level="good", text=text)
    lengths = sorted(peer.record.round_seconds for peer in view.oracles if peer.record.round_seconds)
    if lengths:
        usual = formats.duration(lengths[len(lengths) // 2])
        ratio = view.utilization
        left = "" if ratio is None else f" and leave {formats.percent(ratio)} of the time for training"
        text = f"Rounds end in time{left}; the last one took {usual}."
    elif any(peer.record.round for peer in view.peers):
        text = "Rounds end in time."
    else:
        text = "The first round is under way."
    return Check(name="rounds", level="good", text=text)


def _replicas(view: View) -> Check:
    if different := view.disagreeing:
        who = formats.count(different, "peer holds", "peers hold")
        text = f"{who} another state than most of the same round."
        return Check(name="replicas", level="critical", text=text)
    return Check(
        name="replicas", level="good", text="All peers of a round hold the same parameters, bit for bit."
    )


def _reach(view: View) -> Check:
    ways: Counter[str] = Counter(peer.record.reach for peer in view.oracles)
    hidden = ", ".join(
        f"{formats.count(ways[way], 'oracle is', 'oracles are')} reachable {how}"
        for way, how in (("relayed", "through relays only"), ("client", "by nobody"))
        if ways[way]
    )
    # None of this is an illness: those call the others.
    return Check(name="reach", level="good", text=f"{hidden or 'Every oracle can be reached directly'}.")
