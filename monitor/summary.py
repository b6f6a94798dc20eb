"""The swarm in public: what ``/api/v1/swarm`` answers and the page shows, from one snapshot.

Whatever a peer says about itself is untrusted: bounded by the record's schema, which cleans
it of control characters, and escaped by whoever puts it into a page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.command_line.printable import printable
from dupt_swarm.node.progress import round_progress
from dupt_swarm.node.record import PeerState
from dupt_swarm.node.view import Peer, View
from dupt_swarm.replica.ledger import Entry, Ledger
from monitor.chart import thinned
from monitor.health import Check, check_health
from monitor.history import History, Point
from monitor.watcher import Snapshot

TASKS_LISTED_MAX = 20
PEERS_LISTED_MAX = 30
EVALUATIONS_MAX = 5
HISTORY_MAX = 300
CONTRIBUTORS_MAX = 10


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class ModelSummary(_Part):
    """What is trained."""

    layers: int
    width: int
    context_length: int
    vocabulary_size: int


class OfferSummary(_Part):
    """Text that the swarm offers to oracles without a corpus."""

    title: str
    source: str = Field(description="where it is from")
    licence: str
    tokens: int = Field(description="to train on")


class RoundSummary(_Part):
    """The round under way."""

    number: int = Field(
        description="rounds in the newest replica state that half of the working oracles have"
    )
    tokens: float = Field(description="trained on in this round so far, carried on to now")
    target_tokens: int = Field(description="that end it; 0: no oracle works on it")
    ratio: float = Field(description="how full it is, from 0 to 1")
    since: float | None = Field(description="when the monitor saw the round rise, seconds since the epoch")


class LossSummary(_Part):
    """Nats per token, or per example of a task; null where nobody said anything."""

    training: float | None = Field(description="mean of the oracles, weighted by their speed")
    training_min: float | None
    training_max: float | None
    heldout: float | None = Field(description="median of the oracles, on text they do not train on")
    heldout_accuracy: float | None = Field(
        description="of a task's answers or of masked tokens, likewise, from 0 to 1"
    )
    heldout_nsp_accuracy: float | None = Field(description="of whether a text follows on another, likewise")


class EvaluationSummary(_Part):
    """What evaluators measured on text that no oracle trains on."""

    dataset: str
    bits_per_byte: float | None = Field(description="null: a decoder's text is not what it learns")
    loss_nats: float
    accuracy: float | None = Field(description="of a task's answers or of masked tokens, from 0 to 1")
    nsp_accuracy: float | None = Field(description="of whether a text follows on another, from 0 to 1")
    round: int
    time: float


class TaskSummary(_Part):
    """A figure of lm-evaluation-harness, as an evaluator found it."""

    task: str
    metric: str
    value: float
    round: int


class PublishedSummary(_Part):
    """Where measured states are published, as their evaluator says: nobody has checked it."""

    evaluator: str = Field(description="name or peer id")
    url: str = Field(description="http or https")


class SampleSummary(_Part):
    """What the model wrote of itself: nobody wrote or checked it, and an evaluator chose the prompt."""

    prompt: str
    text: str = Field(description="what the model wrote after it; may have line breaks")
    round: int = Field(description="of the state that wrote it")
    evaluator: str = Field(description="name or peer id of who asked for it")
    time: float


class PeerSummary(_Part):
    """One peer, as it describes itself; losses in nats per token, or per example of a task."""

    peer_id: str
    name: str
    role: str
    state: str
    reach: str
    round: int
    rounds_behind: int = Field(description="the newest state's round less this peer's")
    share: float | None = Field(description="own speed ÷ that of all oracles, 0 to 1; null: no oracle")
    tokens_total: int
    tokens_per_second: float
    loss: float | None
    heldout_loss: float | None
    heldout_accuracy: float | None
    round_sent_bytes: int | None = Field(
        description="in its last round: from the end of the one before to its own; null: there was none"
    )
    round_received_bytes: int | None = Field(description="likewise")
    utilization: float | None = Field(
        description="part of its time that the last ten rounds left for training, 0 to 1; null: not known"
    )
    round_waiting_seconds: float | None = Field(
        description="for which its trainer waited for its node, and so for the network, in its last round"
    )
    waiting_seconds: float | None = Field(description="likewise, since it started")
    version: str
    device: str
    last_seen: float = Field(description="time of its last record, seconds since the epoch")


class PeersSummary(_Part):
    """The peers that are there."""

    total: int
    oracles: int
    states: dict[str, int] = Field(description="peers by state, all states")
    listed: list[PeerSummary] = Field(description=f"the {PEERS_LISTED_MAX} with the greatest share")
    unlisted: int = Field(description="how many more there are")


class ContributorSummary(_Part):
    """What a peer has given, by the chain of rounds."""

    place: int = Field(description="0: nothing of it has counted")
    peer_id: str
    name: str = Field(description="as it calls itself now; empty: it is not there, or has none")
    tokens: int = Field(description="behind its contributions that counted, as it stated them")
    share: float = Field(description="of all tokens, from 0 to 1")
    rounds: int = Field(description="in which one counted")
    dropped: int = Field(description="rounds in which one was brought, and counted for nothing")
    first_round: int
    last_round: int


class ContributorsSummary(_Part):
    """What each peer has contributed, ever."""

    begins: int = Field(description="the round after which the links begin that are known; 0: all are")
    round: int = Field(description="the last one that is counted")
    tokens: int
    total: int = Field(description="peers with a contribution that counted")
    weak: int = Field(description="rounds that less than a quorum has signed")
    listed: list[ContributorSummary] = Field(description=f"the {CONTRIBUTORS_MAX} with the most tokens")


class RefusedSummary(_Part):
    """What was refused since the monitor watches, by reason; what was not is left out."""

    messages: dict[str, int] = Field(description="of others, and calls and entries, by peers")
    contributions: dict[str, int] = Field(description="left out of an average, by peers")
    records: dict[str, int] = Field(description="by the monitor, at each reading")


class Summary(_Part):
    """Version 1 of the public shape: fields may be added to it, none removed or changed in meaning."""

    api_version: Literal[1] = 1
    time: float = Field(description="of this answer, seconds since the epoch")
    refreshed: float | None = Field(description="when the swarm was last reached; null: never")
    swarm_id: str
    name: str
    manifest_sha256: str
    model: ModelSummary
    objective: str = Field(description="`lm`, `mlm`, `seq2seq`, or the task")
    corpus: str = Field(description="what oracles bring: text, pairs of texts, or labelled examples")
    unit: str = Field(description="of all losses")
    offer: OfferSummary | None = Field(description="null: oracles bring all text themselves")
    join: str = Field(description="the command that joins the swarm")
    round: RoundSummary
    tokens_total: int = Field(
        description="in the newest replica state that most working oracles were ever seen to have"
    )
    tokens_per_second: float
    loss: LossSummary
    evaluations: list[EvaluationSummary]
    tasks: list[TaskSummary]
    published: list[PublishedSummary]
    sample: SampleSummary | None = Field(description="of the newest state that has one; null: none")
    peers: PeersSummary
    contributors: ContributorsSummary | None = Field(description="null: the links are not known yet")
    health: list[Check]
    refused: RefusedSummary
    exposed: dict[str, int] = Field(description="by id of who has contradicted itself: who leave it out")
    history: dict[str, list[int | float | None]] = Field(
        description=f"columns of at most {HISTORY_MAX} points since the monitor started, oldest first"
    )


def summarise(snapshot: Snapshot, history: History, join: str, now: float) -> Summary:
    """Everything that is public about the swarm at ``now`` (seconds since the epoch)."""
    manifest, totals, view = snapshot.manifest, snapshot.totals, snapshot.live_view(now)
    point = Point.of(view, totals.tokens or 0, manifest.limits)
    speeds = view.speeds(manifest.limits)
    return Summary(
        time=now,
        refreshed=snapshot.last_refresh,
        swarm_id=manifest.swarm_id,
        name=manifest.name,
        manifest_sha256=manifest.sha256,
        model=ModelSummary.model_validate(manifest.model),
        objective=manifest.objective.kind,
        corpus=manifest.objective.corpus,
        unit=manifest.objective.unit,
        offer=OfferSummary.model_validate(manifest.offer) if manifest.offer else None,
        join=join,
        round=_round(snapshot, view, history),
        tokens_total=point.tokens,
        tokens_per_second=sum(speeds.values()),
        loss=LossSummary(
            training=point.loss,
            training_min=point.loss_min,
            training_max=point.loss_max,
            heldout=point.heldout_loss,
            heldout_accuracy=point.heldout_accuracy,
            heldout_nsp_accuracy=point.heldout_nsp_accuracy,
        ),
        evaluations=list(map(EvaluationSummary.model_validate, view.evaluations.values()))[:EVALUATIONS_MAX],
        tasks=list(map(TaskSummary.model_validate, view.tasks.values()))[:TASKS_LISTED_MAX],
        published=[
            PublishedSummary(evaluator=peer.record.name or peer.peer_id, url=peer.record.published_at)
            for peer, _ in view.evaluators
            if peer.record.published_at
        ][:EVALUATIONS_MAX],
        sample=_sample(view),
        peers=_peers(view, speeds),
        contributors=_contributors(snapshot.ledger, view),
        health=check_health(snapshot, view, now),
        refused=RefusedSummary(
            messages=+Counter(totals.refused_messages),  # without what is zero
            contributions=+Counter(totals.rejected),
            records=+Counter(totals.refused),
        ),
        exposed=view.exposed,
        history=columns(history.points),
    )


def columns(points: Sequence[Point]) -> dict[str, list[int | float | None]]:
    """The fields of the points by name, thinned."""
    few = thinned(points, HISTORY_MAX)
    return {name: [getattr(point, name) for point in few] for name in Point.__dataclass_fields__}


def _round(snapshot: Snapshot, view: View, history: History) -> RoundSummary:
    agreed, since = view.agreed, snapshot.totals.round_time
    if agreed is None:
        number = history.points[-1].round if history.points else 0
        return RoundSummary(number=number, tokens=0, target_tokens=0, ratio=0, since=since)
    record = agreed.record
    companions = view.companions(record.state_digest)
    progress = round_progress(snapshot.manifest, record.round, companions, view.time)
    return RoundSummary(
        number=record.round,
        tokens=progress.tokens,
        target_tokens=int(progress.target),
        ratio=progress.ratio,
        since=since,
    )


def _contributors(ledger: Ledger | None, view: View) -> ContributorsSummary | None:
    if ledger is None:
        return None
    return ContributorsSummary(
        begins=ledger.begins,
        round=ledger.round,
        tokens=ledger.tokens,
        total=ledger.contributors,
        weak=ledger.weak,
        listed=[
            contributor(ledger, entry, view) for entry in ledger.entries[:CONTRIBUTORS_MAX] if entry.rounds
        ],
    )


def contributor(ledger: Ledger, entry: Entry, view: View) -> ContributorSummary:
    """A row of the ledger."""
    record = view.record(entry.peer_id)
    return ContributorSummary(
        place=ledger.place(entry.peer_id) or 0,
        name=record.name if record else "",
        share=entry.tokens / max(1, ledger.tokens),
        **asdict(entry),
    )


def _sample(view: View) -> SampleSummary | None:
    if view.latest_sample is None:
        return None
    peer, found, sample = view.latest_sample
    return SampleSummary(
        prompt=printable(sample.prompt),
        text=printable(sample.text),
        round=found.round,
        evaluator=peer.record.name or peer.peer_id,
        time=found.time,
    )


def _peers(view: View, speeds: dict[str, float]) -> PeersSummary:
    agreed, total = view.agreed, sum(speeds.values())
    states = Counter(peer.record.state for peer in view.peers)

    def order(peer: Peer) -> tuple[Any, ...]:
        is_oracle = peer.record.role == "oracle"
        return not is_oracle, -speeds.get(peer.peer_id, 0.0), -peer.record.tokens_total, peer.peer_id

    listed = sorted(view.peers, key=order)[:PEERS_LISTED_MAX]
    return PeersSummary(
        total=len(view.peers),
        oracles=len(view.oracles),
        states={state: states[state] for state in get_args(PeerState)},
        listed=[_peer(peer, speeds, total, agreed.record.round if agreed else 0) for peer in listed],
        unlisted=len(view.peers) - len(listed),
    )


def _peer(peer: Peer, speeds: dict[str, float], total: float, newest_round: int) -> PeerSummary:
    record, speed = peer.record, speeds.get(peer.peer_id)
    return PeerSummary(
        peer_id=peer.peer_id,
        rounds_behind=max(0, newest_round - record.round),
        share=None if speed is None else speed / total if total else 0.0,
        last_seen=record.time,
        **record.model_dump(include=set(PeerSummary.model_fields)),
    )
