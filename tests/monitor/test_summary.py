import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

import monitor
from dupt_swarm.node.record import AT_WORK, EvaluationRecord, RecordUpdate, SampleRecord, TaskResult
from dupt_swarm.node.view import Peer, View
from monitor.health import STALE_SECONDS, STALLED_ROUNDS, Check, gravest
from monitor.history import History, Point
from monitor.summary import (
    EVALUATIONS_MAX,
    HISTORY_MAX,
    PEERS_LISTED_MAX,
    TASKS_LISTED_MAX,
    Summary,
    summarise,
)
from monitor.tally import Tally
from monitor.watcher import Snapshot
from tests.support.invented import ADDRESS, MANIFEST, NOW, peer, remembered, seen

RULES = Path(monitor.__file__).parent / "prometheus" / "rules.yml"
PEER_ID = ADDRESS.rpartition("/")[2]
LOCAL = f"/ip4/127.0.0.1/tcp/31330/p2p/{PEER_ID}"


def summary_of(snapshot: Snapshot, history: History | None = None, now: float = NOW) -> Summary:
    return summarise(snapshot, history or History(), "dupt-peer join", now)


def checks_of(snapshot: Snapshot, history: History | None = None, now: float = NOW) -> dict[str, Check]:
    return {check.name: check for check in summary_of(snapshot, history, now).health}


def test_public_shape() -> None:
    """The JSON has exactly the documented keys: whoever reads version 1 can rely on them."""
    evaluation = EvaluationRecord(dataset="news", bits_per_byte=1.5, loss_nats=4.5, round=3, time=NOW)
    snapshot = seen(peer("a", loss=2.0), peer("e", role="evaluator", evaluation=evaluation))
    data = json.loads(summary_of(snapshot, remembered(Point(NOW, 3, 900))).model_dump_json())

    def keys(part: Any) -> set[str]:
        return set(part)

    assert data["api_version"] == 1
    assert keys(data) == {
        *("api_version", "time", "refreshed", "swarm_id", "name", "manifest_sha256", "model", "join"),
        *("round", "tokens_total", "tokens_per_second", "loss", "evaluations", "sample", "peers"),
        *("health", "history", "objective", "refused", "exposed", "offer", "contributors", "tasks"),
        *("published", "corpus", "unit"),
    }
    assert keys(data["model"]) == {"layers", "width", "context_length", "vocabulary_size"}
    assert keys(data["round"]) == {"number", "tokens", "target_tokens", "ratio", "since"}
    assert keys(data["loss"]) == {
        *("training", "training_min", "training_max", "heldout", "heldout_accuracy"),
        "heldout_nsp_accuracy",
    }
    assert keys(data["evaluations"][0]) == {
        *("dataset", "bits_per_byte", "loss_nats", "accuracy", "nsp_accuracy", "round", "time")
    }
    assert keys(data["peers"]) == {"total", "oracles", "states", "listed", "unlisted"}
    assert keys(data["peers"]["listed"][0]) == {
        *("peer_id", "name", "role", "state", "reach", "round", "rounds_behind", "share", "tokens_total"),
        *("tokens_per_second", "loss", "heldout_loss", "heldout_accuracy", "version", "device"),
        *("last_seen", "round_sent_bytes", "round_received_bytes", "utilization", "round_waiting_seconds"),
        "waiting_seconds",
    }
    assert keys(data["refused"]) == {"messages", "contributions", "records"}
    assert keys(data["health"][0]) == {"name", "level", "text"}
    assert keys(data["history"]) == {field.name for field in fields(Point)}


def test_what_evaluators_say_of_tasks_and_where_they_publish() -> None:
    """Of each task and metric the newest round's median; oracles and rounds yet to come do not count."""

    def judge(peer_id: str, round: int, value: float, **more: Any) -> Peer:
        results = (TaskResult(task="arc", metric="acc", value=value, round=round),)
        evaluation = EvaluationRecord(dataset="a", loss_nats=1.0, round=min(round, 3), time=NOW)
        return peer(peer_id, **{"role": "evaluator", "tasks": results, "evaluation": evaluation, **more})

    found = summary_of(
        seen(
            peer("a"),  # in round 3
            judge("b", 1, 0.9),
            judge("c", 3, 0.1),
            judge("d", 3, 0.2, name="Zoë", published_at="https://example.org/model"),
            judge("e", 3, 0.3),
            judge("f", 4, 1.0),
            judge("g", 3, 0.0, role="oracle", published_at="https://example.org/other"),
        )
    )
    [task] = found.tasks
    assert (task.task, task.metric, task.value, task.round) == ("arc", "acc", 0.2, 3)
    [published] = found.published
    assert (published.evaluator, published.url) == ("Zoë", "https://example.org/model")


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "ftp://x", "https://", "https://a b", "http://\u202e", "http://a@b"]
)
def test_a_record_holds_no_link_but_to_the_web(url: str) -> None:
    """Whoever publishes another is refused."""
    with pytest.raises(ValidationError):
        RecordUpdate(published_at=url)


def test_sample() -> None:
    """That of the newest round that the swarm has reached, with who asked for it, fit for a terminal."""

    def judge(peer_id: str, round: int, text: str | None, **more: Any) -> Peer:
        sample = None if text is None else SampleRecord(prompt="\x1b[2J", text=text)
        evaluation = EvaluationRecord(
            dataset="news", bits_per_byte=1.5, loss_nats=4.5, round=round, time=NOW - round, sample=sample
        )
        return peer(peer_id, **{"role": "evaluator", "evaluation": evaluation, **more})

    assert summary_of(seen(peer("a"))).sample is None
    found = summary_of(
        seen(
            peer("a"),  # in round 3
            judge("b", 1, "old"),
            judge("c", 2, "new\u202e\n👍", name="\x1b]Zoë"),
            judge("d", 3, None),
            judge("e", 4, "from the future"),
            judge("f", 3, "an oracle's own", role="oracle"),
        )
    ).sample
    assert found is not None
    assert (found.prompt, found.text, found.evaluator) == ("�[2J", "new�\n👍", "�]Zoë")
    assert (found.round, found.time) == (2, NOW - 2)


def test_numbers() -> None:
    """Losses, the round's progress and shares are those of the live oracles."""
    summary = summary_of(
        seen(
            peer("a", loss=2.0, heldout_loss=3.0, tokens_per_second=300.0, round_tokens=200),
            peer("b", loss=6.0, heldout_loss=5.0, tokens_per_second=100.0, round_tokens=100),
            peer("late", round=1, state_digest="b" * 64, swarm_tokens=300),
            peer("first", role="bootstrap"),
        )
    )
    assert (summary.loss.training_min, summary.loss.training_max, summary.loss.heldout) == (2.0, 6.0, 4.0)
    assert summary.loss.training == pytest.approx(3.0)
    target = 2 * MANIFEST.tokens_per_round(3)
    assert summary.round.model_dump() == {
        **{"number": 3, "tokens": 300.0, "target_tokens": target, "ratio": 300 / target, "since": NOW}
    }
    assert (summary.peers.total, summary.peers.oracles) == (4, 3)
    listed = {listed.peer_id: listed for listed in summary.peers.listed}
    assert [listed[name].share for name in ("a", "b", "late", "first")] == [0.75, 0.25, 0.0, None]
    assert [listed[name].rounds_behind for name in ("a", "late")] == [0, 2]


def test_status_and_page_name_the_same_round() -> None:
    """Whatever one peer claims, `dupt-peer status`, the page and the exported counters say the same."""
    snapshot = seen(peer("a"), peer("b"), peer("liar", round=99, swarm_tokens=2**61, loss=9.0))
    status, page = snapshot.view.to_json(MANIFEST), summary_of(snapshot)
    assert (status["round"], status["tokens_total"]) == (3, 900)
    assert (page.round.number, page.tokens_total) == (3, 900)
    assert (snapshot.totals.round, snapshot.totals.tokens) == (3, 900)
    assert page.loss.training == status["loss"]
    assert {listed.rounds_behind for listed in page.peers.listed} == {0}, "who is ahead is not behind"


def test_nobody_owns_every_share() -> None:
    """A peer that claims a trillion tokens per second counts for no more than a weight may be."""
    honest = [peer(f"p{number}", tokens_per_second=1000.0) for number in range(4)]
    summary = summary_of(seen(*honest, peer("liar", tokens_per_second=1e12)))
    shares = {listed.peer_id: listed.share for listed in summary.peers.listed}
    assert shares["liar"] == pytest.approx(0.5)
    assert summary.tokens_per_second == pytest.approx(8000.0)


def test_a_peer_that_does_not_train_has_no_share() -> None:
    """The speed that a paused oracle had counts no more."""
    summary = summary_of(
        seen(peer("a", tokens_per_second=0.5), peer("b", tokens_per_second=99.0, state="paused"))
    )
    assert {listed.peer_id: listed.share for listed in summary.peers.listed} == {"a": 1.0, "b": 0.0}


def test_many_peers() -> None:
    """Those with the greatest share are listed, the others counted; the history is thinned."""
    peers = [peer(f"p{number}", tokens_per_second=float(number)) for number in range(1000)]
    history = remembered(*(Point(float(number), number, number) for number in range(2000)))
    summary = summary_of(seen(*peers), history)
    assert [listed.peer_id for listed in summary.peers.listed[:2]] == ["p999", "p998"]
    assert len(summary.peers.listed) == PEERS_LISTED_MAX
    assert summary.peers.unlisted == 1000 - PEERS_LISTED_MAX
    assert {len(column) for column in summary.history.values()} <= set(range(1, HISTORY_MAX + 1))
    assert len(summary.model_dump_json()) < 60_000
    assert all(isinstance(number, int) for number in summary.history["round"])


def test_evaluators_without_end() -> None:
    """Whatever they claim, oracles are listed before them, and of what they say only so much is."""

    def judge(number: int) -> Peer:
        results = tuple(
            TaskResult(task=f"t{number}-{each}", metric="acc", value=0.5, round=3) for each in range(8)
        )
        evaluation = EvaluationRecord(dataset=f"d{number}", loss_nats=1.0, round=3, time=NOW)
        says = {"evaluation": evaluation, "tasks": results, "published_at": "https://example.org/"}
        return peer(f"e{number}", role="evaluator", tokens_total=2**61, **says)

    summary = summary_of(seen(peer("z"), *map(judge, range(99))))
    assert summary.peers.listed[0].peer_id == "z"
    assert (len(summary.evaluations), len(summary.published)) == (EVALUATIONS_MAX, EVALUATIONS_MAX)
    assert len(summary.tasks) == TASKS_LISTED_MAX


def test_names_are_cleaned() -> None:
    """Control characters and marks that turn the reading direction are gone already in the JSON."""
    summary = summary_of(seen(peer("a", name="x\u202egnp\x07", device="y\x1b[2J", version="1\n2")))
    (listed,) = summary.peers.listed
    assert (listed.name, listed.device, listed.version) == ("x�gnp�", "y�[2J", "1�2")


def test_empty_swarm() -> None:
    """Before anybody was heard of there are no numbers, and health says so."""
    summary = summary_of(Snapshot(MANIFEST, View(NOW, ())))
    assert summary.loss.training is None
    assert summary.round.ratio == 0.0
    assert [(check.name, check.level) for check in summary.health] == [("data", "critical")]


def test_healthy() -> None:
    """A swarm whose oracles train and agree is well in every respect."""
    snapshot = seen(peer("a", round_seconds=24.0), peer("b"), peer("first", role="bootstrap"))
    checks = checks_of(snapshot, remembered(Point(NOW, 3, 900)))
    assert {name: check.level for name, check in checks.items()} == dict.fromkeys(
        ("data", "oracles", "rounds", "replicas", "reach"), "good"
    )
    assert "24\xa0s" in checks["rounds"].text


def test_first_round() -> None:
    """Nothing is said of how long rounds take before one has ended."""
    history = remembered(Point(NOW, 0, 0))
    assert checks_of(seen(peer("a", round=0)), history)["rounds"].text == "The first round is under way."
    assert checks_of(seen(peer("a", round=1)), history)["rounds"].text == "Rounds end in time."


def test_stale_data() -> None:
    """When the swarm does not answer, the page says how old its data is, and still knows the round."""
    snapshot, history = seen(peer("a")), remembered(Point(NOW, 3, 900))
    assert checks_of(snapshot.failed(3.0), history)["data"].level == "warning"
    assert checks_of(snapshot, history, NOW + STALE_SECONDS + 1)["data"].level == "critical"

    later = summary_of(snapshot.failed(3.0), history, NOW + 600)
    assert "10\xa0min" in later.health[0].text
    assert (later.round.number, later.peers.total, later.tokens_total) == (3, 0, 900)


def test_no_oracles() -> None:
    """A first peer alone waits for oracles; oracles that are paused do not count as training."""
    assert checks_of(seen(peer("first", role="bootstrap")))["oracles"].level == "critical"
    paused = checks_of(seen(peer("a", state="paused")))["oracles"]
    assert (paused.level, paused.text) == ("warning", "0 oracles train, 1 is starting, paused or leaving.")


def test_stalled() -> None:
    """A round that should have ended long ago is a problem, unless nobody works on it."""
    working, paused = seen(peer("a")), seen(peer("a", state="paused"))
    limit = STALLED_ROUNDS * MANIFEST.rounds.limit_seconds

    def since(snapshot: Snapshot, seconds: float) -> Snapshot:
        totals = snapshot.totals.model_copy(update={"round_time": NOW - seconds})
        return replace(snapshot, totals=totals, working_since=0.0)

    assert checks_of(since(working, limit - 1))["rounds"].level == "good"
    assert checks_of(since(working, limit + 1))["rounds"].level == "critical"
    assert "rounds" not in checks_of(since(paused, limit + 1))


@pytest.mark.parametrize("first_peer", [True, False])
def test_a_swarm_that_comes_back_is_not_stalled(first_peer: bool) -> None:
    """After a night it has the time of a round again, even if the monitor saw nobody; then it is."""
    limit = STALLED_ROUNDS * MANIFEST.rounds.limit_seconds
    night, morning = NOW + 3600, NOW + 36_000

    def at(moment: float, **fields: Any) -> View:
        return View(moment, (peer("a", time=moment, **fields),))

    snapshot = seen(peer("a"))
    tally = Tally(snapshot.totals)
    if first_peer:
        snapshot = snapshot.succeeded(at(night, role="bootstrap"), tally, 0.1)
    else:
        snapshot = snapshot.failed(0.1)
    snapshot = snapshot.succeeded(at(morning), tally, 0.1)
    moment = morning
    while moment < morning + limit:
        check = checks_of(snapshot, now=moment)["rounds"]
        assert (check.level, check.text.partition(";")[0]) == ("good", "The oracles are back")
        moment += 5
        snapshot = snapshot.succeeded(at(moment), tally, 0.1)
    check = checks_of(snapshot, now=moment + 1)["rounds"]
    assert (check.level, "10\xa0h" in check.text) == ("critical", True)


def test_page_and_alert_agree_on_stalled() -> None:
    """The page calls a swarm stalled that DuptSwarmStalled is about, and nobody else's."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rules = {
        rule.get("alert", rule.get("record")): rule["expr"] for group in groups for rule in group["rules"]
    }
    limit = f"> {STALLED_ROUNDS} * dupt_swarm_round_limit_seconds"
    assert limit in rules["DuptSwarmStalled"]
    assert "run_instance:dupt_swarm_oracles_working:sum > 0" in rules["DuptSwarmStalled"]
    working = rules["run_instance:dupt_swarm_oracles_working:sum"]
    assert f'{{role="oracle", state=~"{"|".join(AT_WORK)}"}}' in working


def test_replicas_disagree() -> None:
    """Different states of one round are a problem; a peer of an older round is only late."""
    late = peer("late", round=2, state_digest="c" * 64)
    assert checks_of(seen(peer("a"), peer("b"), late))["replicas"].level == "good"
    wrong = checks_of(seen(peer("a"), peer("b"), peer("w", state_digest="d" * 64)))["replicas"]
    assert (wrong.level, wrong.text) == (
        "critical",
        "1 peer holds another state than most of the same round.",
    )


def test_what_rounds_leave() -> None:
    """The part of the time that is left for training is told as soon as an oracle knows it."""
    oracles = [peer(name, round_seconds=50.0, utilization=0.97) for name in ("a", "b")]
    text = "Rounds end in time and leave 97\N{NO-BREAK SPACE}% of the time for training; the last one took 50"
    assert checks_of(seen(*oracles))["rounds"].text.startswith(text)
    text = "Rounds end in time; the last one took 50"
    assert checks_of(seen(peer("a", round_seconds=50.0)))["rounds"].text.startswith(text)


def test_what_a_round_cost_is_as_the_oracle_says() -> None:
    """In numbers; null where it does not say so."""
    costs = {
        **{"round_sent_bytes": 7, "round_received_bytes": 9, "utilization": 0.5},
        **{"round_waiting_seconds": 0.25, "waiting_seconds": 4.0},
    }
    listed = summary_of(seen(peer("a", **costs), peer("b"))).peers.listed
    assert [one.model_dump(include=set(costs)) for one in listed] == [costs, dict.fromkeys(costs)]


def test_reach() -> None:
    """Oracles that only relays reach are counted, and those that nobody does; that is no illness."""
    direct, nobody = peer("a"), peer("c", reach="client")
    relayed = tuple(peer(name, reach="relayed") for name in ("b", "d"))
    for peers, text in (
        ((direct,), "Every oracle can be reached directly."),
        ((direct, *relayed), "2 oracles are reachable through relays only."),
        ((direct, nobody), "1 oracle is reachable by nobody."),
        (
            (direct, *relayed, nobody),
            "2 oracles are reachable through relays only, 1 oracle is reachable by nobody.",
        ),
    ):
        check = checks_of(seen(*peers))["reach"]
        assert (check.level, check.text) == ("good", text)


def test_gravest() -> None:
    """The gravest check decides."""
    checks = [Check(name="data", level=level, text="") for level in ("good", "critical", "warning")]
    some = (checks, checks[:1], [*checks[:1], *checks[2:]])
    assert [gravest(these).level for these in some] == ["critical", "good", "warning"]
