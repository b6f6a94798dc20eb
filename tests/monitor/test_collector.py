import math
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dupt_swarm.node.reasons import FAILURES, in_order
from dupt_swarm.node.view import Peer, View
from dupt_swarm.replica.ledger import Entry, Ledger
from monitor.collector import METRICS, TASKS_MAX, SwarmCollector
from monitor.tally import Tally
from monitor.watcher import Snapshot
from tests.support.invented import MANIFEST, NOW, peer

EVERYTHING = {
    "loss": 4.0,
    "exposed": ("QmLiar",),
    "heldout_loss": 4.5,
    "heldout_bits_per_byte": 2.5,
    "heldout_accuracy": 0.75,
    "heldout_nsp_accuracy": 0.5,
    "round_tokens": 7,
    "group_size": 3,
    "averaging_seconds": 1.5,
    "round_seconds": 60.0,
    "checkpoint_round": 2,
    "round_sent_bytes": 7_000,
    "round_received_bytes": 9_000,
    "utilization": 0.9,
    "round_waiting_seconds": 0.5,
    "waiting_seconds": 30.0,
}
EVALUATION = {"dataset": "wiki", "bits_per_byte": 1.5, "loss_nats": 3.0, "round": 2, "time": NOW - 5}
TASK = {"task": "arc", "metric": "acc", "value": 0.25, "round": 2}
OF_A_TASK = {"dataset": "reviews", "accuracy": 0.9, "loss_nats": 0.3, "round": 2, "time": NOW - 5}


class Scrapes:
    """A collector whose snapshot and clock the test moves."""

    def __init__(self, max_peer_series: int = 50) -> None:
        self.now = NOW
        self.snapshot, self._tally = Snapshot(MANIFEST, View(NOW, ())), Tally()
        self.registry = CollectorRegistry()
        self.registry.register(SwarmCollector(lambda: self.snapshot, max_peer_series, lambda: self.now))

    def see(self, *peers: Peer) -> None:
        self.snapshot = self.snapshot.succeeded(View(self.now, peers), self._tally, 0.5)

    def labelled(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Each sample of ``name`` by the values of some of its labels."""
        families = list(text_string_to_metric_families(generate_latest(self.registry).decode()))
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return {tuple(sample.labels.get(label, "") for label in labels): sample.value for sample in samples}

    def values(self, name: str, label: str = "run") -> dict[str, float]:
        """Each sample of ``name`` by the value of one of its labels."""
        return {value: sample for (value,), sample in self.labelled(name, label).items()}


@pytest.fixture
def scrapes() -> Scrapes:
    return Scrapes()


def test_all_metrics(scrapes: Scrapes) -> None:
    """A swarm whose peers report everything has every metric of the table, of the table's type."""
    scrapes.snapshot = replace(scrapes.snapshot, ledger=Ledger(0, 1, (Entry("a", 10, 1, 0, 1, 1),)))
    scrapes.see(
        peer("a", **EVERYTHING),
        *(
            peer(name, role="evaluator", evaluation=found, tasks=(TASK,))
            for name, found in (("e", EVALUATION), ("f", OF_A_TASK))
        ),
    )

    families = {family.name: family.type for family in scrapes.registry.collect()}

    suffixes = {"counter": "_total", "info": "_info", "gauge": ""}
    assert {spec.name: spec.kind for spec in METRICS} == {
        name + suffixes[kind]: kind for name, kind in families.items()
    }


def test_every_swarm_metric_names_the_run(scrapes: Scrapes) -> None:
    """Metrics of the swarm carry the swarm's id as `run`; those of the monitor carry no label."""
    scrapes.see(peer("a", loss=4.0, heldout_loss=4.5))

    for family in scrapes.registry.collect():
        for sample in family.samples:
            if family.name.startswith("dupt_monitor_"):
                assert sample.labels.keys() <= {"version"}
            else:
                assert sample.labels["run"] == MANIFEST.swarm_id


def test_peers_by_state(scrapes: Scrapes) -> None:
    """Every role in every state is exported, those that nobody is in as zero."""
    scrapes.see(peer("a"), peer("b"), peer("c", state="paused"), peer("first", role="bootstrap"))

    found = scrapes.labelled("dupt_swarm_peers", "role", "state")
    assert len(found) == 24
    assert {labels: value for labels, value in found.items() if value} == {
        ("oracle", "training"): 2.0,
        ("oracle", "paused"): 1.0,
        ("bootstrap", "training"): 1.0,
    }


def test_losses(scrapes: Scrapes) -> None:
    """The swarm's loss weighs oracles by their speed, and lies between the least and the greatest."""
    scrapes.see(
        peer("a", loss=2.0, tokens_per_second=300.0, heldout_loss=3.0),
        peer("b", loss=6.0, tokens_per_second=100.0, heldout_loss=5.0),
        peer("c"),
    )

    run = MANIFEST.swarm_id
    assert scrapes.values("dupt_swarm_loss_nats")[run] == pytest.approx(3.0)
    assert scrapes.values("dupt_swarm_loss_min_nats") == {run: 2.0}
    assert scrapes.values("dupt_swarm_loss_max_nats") == {run: 6.0}
    assert scrapes.values("dupt_swarm_heldout_loss_nats") == {run: 4.0}


@pytest.mark.parametrize("claim", [0.0, 1e6])
def test_a_loss_that_one_claims(scrapes: Scrapes, claim: float) -> None:
    """The median, which an alert compares, stays between those of the others."""
    losses = {"a": 3.0, "b": 4.0, "c": 5.0, "liar": claim}
    scrapes.see(*(peer(name, loss=loss, tokens_per_second=100.0) for name, loss in losses.items()))

    assert 3.0 <= scrapes.values("dupt_swarm_loss_median_nats")[MANIFEST.swarm_id] <= 5.0


def test_accuracy_of_a_task(scrapes: Scrapes) -> None:
    """The median of the oracles that know theirs, and each evaluator's, without any bits per byte."""
    scrapes.see(
        peer("a", heldout_accuracy=0.5, heldout_nsp_accuracy=0.25),
        peer("b", heldout_accuracy=0.75),
        peer("c"),
        peer("e", role="evaluator", evaluation=OF_A_TASK),
    )

    assert scrapes.values("dupt_swarm_heldout_accuracy") == {MANIFEST.swarm_id: 0.625}
    assert scrapes.values("dupt_swarm_heldout_nsp_accuracy") == {MANIFEST.swarm_id: 0.25}
    assert scrapes.values("dupt_swarm_eval_accuracy", "dataset") == {"reviews": 0.9}
    assert scrapes.values("dupt_swarm_eval_bpb", "dataset") == {}
    assert scrapes.values("dupt_swarm_eval_round", "dataset") == {"reviews": 2.0}


def test_one_oracle_does_not_decide_what_is_held_out(scrapes: Scrapes) -> None:
    """Whatever one of three claims of its held-out text, the swarm's figures stay between the others'."""
    fields = ("heldout_loss", "heldout_bits_per_byte", "heldout_accuracy", "heldout_nsp_accuracy")
    scrapes.see(
        peer("a", **dict.fromkeys(fields, 0.5)),
        peer("b", **dict.fromkeys(fields, 0.75)),
        peer("liar", **dict.fromkeys(fields[:2], 1e6) | dict.fromkeys(fields[2:], 1.0)),
    )

    for name in ("loss_nats", "bpb", "accuracy", "nsp_accuracy"):
        assert scrapes.values(f"dupt_swarm_heldout_{name}") == {MANIFEST.swarm_id: 0.75}


def test_evaluations(scrapes: Scrapes) -> None:
    """What independent evaluators found is exported by data set, for a bounded number of those."""
    scrapes.see(
        peer("a"),
        *(
            peer(f"e{number}", role="evaluator", evaluation={**EVALUATION, "dataset": f"set-{number:02d}"})
            for number in range(30)
        ),
    )

    found = scrapes.values("dupt_swarm_eval_bpb", "dataset")
    assert found == {f"set-{number:02d}": 1.5 for number in range(9)}
    assert scrapes.values("dupt_swarm_eval_round", "dataset")["set-00"] == 2.0
    assert scrapes.values("dupt_swarm_eval_timestamp_seconds", "dataset")["set-00"] == NOW - 5


def test_tasks_are_bounded(scrapes: Scrapes) -> None:
    """However many tasks evaluators invent, only so many have a series."""
    judges = range(9)
    tasks = [tuple({**TASK, "task": f"t{judge}-{number}"} for number in range(8)) for judge in judges]
    scrapes.see(peer("a"), *(peer(f"e{judge}", role="evaluator", tasks=tasks[judge]) for judge in judges))

    assert len(scrapes.values("dupt_swarm_eval_task", "task")) == TASKS_MAX


def test_averagings(scrapes: Scrapes) -> None:
    """All attempts are counted, those that failed among them, for what divides the two."""
    scrapes.see(peer("a"))
    scrapes.see(peer("a", averaged_rounds=3, failures=in_order({"timeout": 2}, FAILURES)))

    assert scrapes.values("dupt_swarm_averaging_rounds_total") == {MANIFEST.swarm_id: 5.0}
    assert scrapes.values("dupt_swarm_averaging_rounds_failed_total", "reason")["timeout"] == 2.0


def test_averaging(scrapes: Scrapes) -> None:
    """How the oracles' last rounds went: medians, the slowest, the smallest and the largest group."""
    for name, seconds, size in (("a", 1.0, 3), ("b", 2.0, 3), ("c", 9.0, 2)):
        fields = {"group_size": size, "averaging_seconds": seconds, "round_seconds": 60 * seconds}
        scrapes.see(*scrapes.snapshot.view.peers, peer(name, **fields))
    scrapes.see(*scrapes.snapshot.view.peers, peer("new"), peer("first", role="bootstrap"))

    run = MANIFEST.swarm_id
    assert scrapes.values("dupt_swarm_averaging_duration_seconds") == {run: 2.0}
    assert scrapes.values("dupt_swarm_averaging_duration_max_seconds") == {run: 9.0}
    assert scrapes.values("dupt_swarm_round_duration_seconds") == {run: 120.0}
    assert scrapes.values("dupt_swarm_group_size_min") == {run: 2.0}
    assert scrapes.values("dupt_swarm_group_size_max") == {run: 3.0}


def test_what_rounds_cost(scrapes: Scrapes) -> None:
    """Of each oracle as far as it says so, and the median utilization; nothing of those who do not train."""
    scrapes.see(
        peer("a", **EVERYTHING),
        peer("b", utilization=0.5),
        peer("c", **EVERYTHING | {"utilization": 0.1, "waiting_seconds": 4.0}),
        peer("old"),
        peer("first", **EVERYTHING | {"role": "bootstrap"}),
    )

    assert scrapes.values("dupt_swarm_utilization_ratio") == {MANIFEST.swarm_id: 0.5}
    expected = {
        "utilization_ratio": {"a": 0.9, "b": 0.5, "c": 0.1},
        "round_transmit_bytes": {"a": 7_000.0, "c": 7_000.0},
        "round_receive_bytes": {"a": 9_000.0, "c": 9_000.0},
        "round_waiting_seconds": {"a": 0.5, "c": 0.5},
        "waiting_seconds_total": {"a": 30.0, "c": 4.0},
    }
    for name, values in expected.items():
        assert scrapes.values(f"dupt_swarm_peer_{name}", "peer_id") == values


def test_newest_checkpoint(scrapes: Scrapes) -> None:
    """The checkpoint of the highest round counts, whoever has it on disk."""
    scrapes.see(
        peer("a", checkpoint_round=3, checkpoint_time=50.0),
        peer("b", checkpoint_round=2, checkpoint_time=90.0),
        peer("c"),
    )

    assert scrapes.values("dupt_swarm_checkpoint_round") == {MANIFEST.swarm_id: 3.0}
    assert scrapes.values("dupt_swarm_checkpoint_timestamp_seconds") == {MANIFEST.swarm_id: 50.0}


def test_checkpoints_that_cannot_be(scrapes: Scrapes) -> None:
    """Who claims one of a round that the swarm has not reached, or of tomorrow, hides no old checkpoint."""
    scrapes.see(
        peer("a", checkpoint_round=2, checkpoint_time=50.0),
        peer("liar", checkpoint_round=4, checkpoint_time=NOW),
        peer("other", checkpoint_round=3, checkpoint_time=NOW + 1),
    )

    assert scrapes.values("dupt_swarm_checkpoint_round") == {MANIFEST.swarm_id: 2.0}
    assert scrapes.values("dupt_swarm_checkpoint_timestamp_seconds") == {MANIFEST.swarm_id: 50.0}


def test_learning_rate(scrapes: Scrapes) -> None:
    """The learning rate is the schedule's at the swarm's round."""
    scrapes.see(peer("a", round=3))
    expected = MANIFEST.inner.learning_rate * MANIFEST.schedule.factor(MANIFEST.first_update(3))
    assert scrapes.values("dupt_swarm_learning_rate") == {MANIFEST.swarm_id: pytest.approx(expected)}


def test_unreachable_peers(scrapes: Scrapes) -> None:
    """Who can be called through a relay is reachable; who can only call is not."""
    scrapes.see(peer("a"), peer("b", reach="relayed"), peer("c", reach="client"))
    assert scrapes.values("dupt_swarm_peers_unreachable") == {MANIFEST.swarm_id: 1.0}


def test_a_peers_counters_do_not_fall(scrapes: Scrapes) -> None:
    """An oracle that went on from an older checkpoint keeps the counters that it had."""
    scrapes.see(peer("a", tokens_total=900, failed_rounds=3))
    scrapes.see(peer("a", tokens_total=600, failed_rounds=1))
    assert scrapes.values("dupt_swarm_peer_tokens_total", "peer_id") == {"a": 900.0}
    assert scrapes.values("dupt_swarm_peer_failed_rounds_total", "peer_id") == {"a": 3.0}


def test_progress_of_the_round(scrapes: Scrapes) -> None:
    """The target counts the oracles that work on the newest state, and no others."""
    scrapes.see(
        peer("a", round_tokens=30),
        peer("b", round_tokens=12),
        peer("late", round=2, swarm_tokens=600, state_digest="b" * 64, round_tokens=500),
        peer("first", role="bootstrap"),
    )

    run = MANIFEST.swarm_id
    assert scrapes.values("dupt_swarm_round") == {run: 3.0}
    assert scrapes.values("dupt_swarm_round_tokens") == {run: 42.0}
    assert scrapes.values("dupt_swarm_round_target_tokens") == {run: 2.0 * MANIFEST.tokens_per_round(3)}


def test_unknown_is_absent(scrapes: Scrapes) -> None:
    """What no peer has said has no sample: neither NaN nor an invented zero."""
    assert scrapes.values("dupt_swarm_last_round_timestamp_seconds") == {}
    scrapes.see(peer("first", role="bootstrap"))

    samples = [sample for family in scrapes.registry.collect() for sample in family.samples]
    assert not [sample for sample in samples if not math.isfinite(sample.value)]
    unknown = ("loss", "round_tokens", "bpb", "group", "duration", "checkpoint", "eval", "util", "waiting")
    swarm = [sample.name for sample in samples if sample.name.startswith("dupt_swarm_")]
    assert not [name for name in swarm if any(word in name for word in unknown)]


def test_counter_never_falls(scrapes: Scrapes) -> None:
    """The swarm's tokens stay when the peers that held the newest state are lost."""
    scrapes.see(peer("a", swarm_tokens=900), peer("c", swarm_tokens=900), peer("b", swarm_tokens=600))
    scrapes.see(peer("b", swarm_tokens=600))
    assert scrapes.values("dupt_swarm_tokens_total") == {MANIFEST.swarm_id: 900.0}

    scrapes.see(peer("b", swarm_tokens=1200))
    assert scrapes.values("dupt_swarm_tokens_total") == {MANIFEST.swarm_id: 1200.0}


def test_departed_peers_vanish(scrapes: Scrapes) -> None:
    """A peer that is no longer in the view has no series at the next scrape."""
    scrapes.see(peer("a", loss=1.0), peer("b", loss=1.0))
    scrapes.see(peer("b", loss=1.0))

    for name in ("info", "tokens_total", "loss_nats", "round", "last_seen_timestamp_seconds"):
        assert list(scrapes.values(f"dupt_swarm_peer_{name}", "peer_id")) == ["b"]


def test_unreachable_swarm(scrapes: Scrapes) -> None:
    """While refreshes fail the monitor is not up, and peers go as their records expire."""
    scrapes.see(peer("a"))
    scrapes.snapshot = scrapes.snapshot.failed(30.0).failed(20.0)
    assert scrapes.values("dupt_monitor_up") == {"": 0.0}
    assert scrapes.values("dupt_monitor_refresh_errors_total") == {"": 2.0}
    assert scrapes.values("dupt_monitor_refresh_duration_seconds") == {"": 20.0}
    assert scrapes.values("dupt_monitor_last_refresh_timestamp_seconds") == {"": NOW}
    assert list(scrapes.values("dupt_swarm_peer_round", "peer_id")) == ["a"]

    scrapes.now += MANIFEST.limits.record_seconds
    assert scrapes.values("dupt_swarm_peer_round", "peer_id") == {}
    assert sum(scrapes.labelled("dupt_swarm_peers", "role", "state").values()) == 0
    assert scrapes.values("dupt_swarm_tokens_total") == {MANIFEST.swarm_id: 900.0}


def test_disagreement(scrapes: Scrapes) -> None:
    """Peers disagree that hold different states of one round; who is a round behind is only late."""
    scrapes.see(
        peer("a"),
        peer("b"),
        peer("wrong", state_digest="c" * 64),
        peer("late", round=2, state_digest="b" * 64),
    )

    assert scrapes.values("dupt_swarm_digests_disagreeing") == {MANIFEST.swarm_id: 1.0}


def test_busiest_peers_only() -> None:
    """Only the peers with the most tokens get series of their own, as many as allowed."""
    scrapes = Scrapes(max_peer_series=2)
    scrapes.see(*(peer(f"p{tokens}", tokens_total=tokens, loss=tokens) for tokens in (5, 30, 20, 10)))

    assert scrapes.values("dupt_swarm_peer_tokens_total", "peer_id") == {"p30": 30.0, "p20": 20.0}
    assert set(scrapes.values("dupt_swarm_peer_info", "peer_id")) == {"p30", "p20"}
    # What is told of all together is of all.
    assert scrapes.values("dupt_swarm_loss_median_nats") == {MANIFEST.swarm_id: 15.0}


def test_versions_are_bounded(scrapes: Scrapes) -> None:
    """However many versions peers invent, common ones keep their series and the rest share one."""
    invented = [peer(f"x{number}", version=f"9.{number // 2}") for number in range(200)]
    scrapes.see(peer("a"), peer("b"), peer("c"), *invented, peer("o", version="other"))

    versions = scrapes.values("dupt_swarm_peer_versions", "version")
    assert len(versions) == 10
    assert versions["0.1.0"] == 3.0
    assert sum(versions.values()) == 204.0


def test_hostile_names(scrapes: Scrapes) -> None:
    """No name can break the text format, forge a line, or smuggle in control characters."""
    evil = 'x"} 1\ndupt_monitor_up 7\n\\\x1b[2J\u202e\x00'
    scrapes.see(peer("a", name=evil, device="\r\n# EOF"))

    text = generate_latest(scrapes.registry).decode()
    assert [line for line in text.splitlines() if line.startswith("dupt_monitor_up")] == [
        "dupt_monitor_up 1.0"
    ]
    assert set("\r\x1b\u202e\x00") & set(text) == set()
    (name,) = scrapes.values("dupt_swarm_peer_info", "name")
    assert name == 'x"} 1�dupt_monitor_up 7�\\�[2J��'


def test_records_without_end_take_no_series_of_others() -> None:
    """Who has given by the ledger comes first, then oracles, whatever others' records claim."""
    scrapes = Scrapes(max_peer_series=3)
    honest = [peer("gave", tokens_total=5), peer("gave-more", tokens_total=1), peer("new", tokens_total=3)]
    liars = [peer(f"e{number}", role="evaluator", tokens_total=2**61) for number in range(9)]
    scrapes.see(*honest, *liars)
    assert set(scrapes.values("dupt_swarm_peer_info", "peer_id")) == {each.peer_id for each in honest}

    entries = [Entry("gave-more", 20, 1), Entry("gave", 10, 1), Entry("o8", 2**61, 0)]
    scrapes.snapshot = replace(scrapes.snapshot, ledger=Ledger(0, 1, tuple(entries)))
    scrapes.see(*honest, *liars, *(peer(f"o{number}", tokens_total=2**61) for number in range(9)))
    assert set(scrapes.values("dupt_swarm_peer_info", "peer_id")) == {"gave", "gave-more", "o0"}
