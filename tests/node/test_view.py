import json

import pytest
from pydantic import ValidationError

from dupt_swarm.manifest import Limits
from dupt_swarm.node.progress import round_progress
from dupt_swarm.node.reasons import REFUSED_MESSAGES, REJECTIONS, in_order
from dupt_swarm.node.record import PeerRecord
from dupt_swarm.node.view import SHOWN_MAX, View

A, B = "a" * 64, "b" * 64


@pytest.fixture
def manifest(make_manifest):
    """20480 tokens per round and peer, records of 30 seconds, weights of at most 4 rounds."""
    return make_manifest(limits={"record_seconds": 30, "max_weight_ratio": 4.0})


def test_oracles(make_peer) -> None:
    """Those who train are oracles, the bootstrap is not."""
    view = View(1000.0, (make_peer("a"), make_peer("b", role="bootstrap")))
    assert [peer.peer_id for peer in view.oracles] == ["a"]


@pytest.mark.parametrize(
    ("tokens", "agreed", "settled"),
    [
        ([900], 900, 900),
        ([900, 600], 900, 600),
        ([900, 600, 300], 600, 600),
        ([9, 6, 6, 3], 6, 6),
        ([9, 6, 3, 3], 6, 3),
    ],
)
def test_agreed_state(make_peer, tokens: list[int], agreed: int, settled: int) -> None:
    """The newest state that half of the oracles at work have reached, and that more than half have."""
    peers = tuple(make_peer(str(place), swarm_tokens=count) for place, count in enumerate(tokens))
    view = View(1.0, peers)
    assert view.agreed is not None and view.settled is not None
    assert (view.agreed.record.swarm_tokens, view.settled.record.swarm_tokens) == (agreed, settled)


@pytest.mark.parametrize("place", range(4))
def test_agreed_round_among_holders_of_one_state(make_peer, place: int) -> None:
    """One that claims a far round for the state that all hold does not set the round, whatever its id."""
    peers = [make_peer(f"{number}", round=10**15 if number == place else 3) for number in range(4)]
    view = View(1.0, tuple(peers))
    assert view.agreed is not None and view.settled is not None
    assert view.agreed.record.round == view.settled.record.round == view.reached == 3


def test_half_that_tell_different_lies_do_not_set_the_round(make_peer) -> None:
    """What several say alike comes before what each says alone."""
    peers = [make_peer(f"{number}", round=round) for number, round in enumerate((10**15, 10**14, 3, 3))]
    assert View(1.0, tuple(peers)).reached == 3


def test_agreed_state_of_nobody(make_peer) -> None:
    """Without peers there is none; peers that only start count when there are no others."""
    assert View(1.0, ()).agreed is View(1.0, ()).settled is None
    working = make_peer("a")
    starting = [make_peer(name, state="starting", swarm_tokens=500) for name in "bcd"]
    assert View(1.0, (working, *starting)).agreed == working
    assert View(1.0, tuple(starting)).agreed in starting


def test_holders(make_peer) -> None:
    """Holders of a state are all peers that show its digest."""
    peers = (make_peer("a", state_digest=A), make_peer("b", state_digest=B), make_peer("c", state_digest=A))
    assert View(0.0, peers).holders(A) == ["a", "c"]
    assert View(0.0, peers).holders("c" * 64) == []


def test_companions(make_peer) -> None:
    """Companions are the other oracles that work on the round after the same state."""
    peers = (
        make_peer("me", state_digest=A),
        make_peer("training", state_digest=A),
        make_peer("averaging", state_digest=A, state="averaging"),
        make_peer("starting", state_digest=A, state="starting"),
        make_peer("paused", state_digest=A, state="paused"),
        make_peer("bootstrap", state_digest=A, role="bootstrap"),
        make_peer("elsewhere", state_digest=B),
    )
    found = View(0.0, peers).companions(A, but="me")
    assert [peer.peer_id for peer in found] == ["training", "averaging"]


def test_stragglers(make_peer) -> None:
    """Oracles at work on an older state are stragglers; those who rest, lead or do not train are not."""
    peers = (
        make_peer("late", swarm_tokens=99),
        make_peer("level", swarm_tokens=100),
        make_peer("paused", swarm_tokens=1, state="paused"),
        make_peer("bootstrap", swarm_tokens=1, role="bootstrap"),
    )
    assert [peer.peer_id for peer in View(0.0, peers).stragglers(100)] == ["late"]
    assert View(0.0, peers).stragglers(100, but=["late"]) == ()


def test_at_work(make_peer) -> None:
    """Oracles that train or average are at work."""
    states = ("starting", "syncing", "training", "averaging", "paused", "stopping")
    peers = (*(make_peer(state, state=state) for state in states), make_peer("b", role="bootstrap"))
    assert [peer.peer_id for peer in View(0.0, peers).at_work] == ["training", "averaging"]


def test_speeds_are_bounded(make_peer) -> None:
    """Nobody's speed counts for more than a few times the median; who does not work has none."""
    honest = [make_peer(f"p{number}", tokens_per_second=1000.0) for number in range(4)]
    liar = make_peer("liar", tokens_per_second=1e12)
    paused = make_peer("paused", tokens_per_second=99.0, state="paused")
    view = View(0.0, (*honest, liar, paused, make_peer("b", role="bootstrap", tokens_per_second=7.0)))
    assert view.speeds(Limits(max_weight_ratio=4.0)) == {
        **{peer.peer_id: 1000.0 for peer in honest},
        "liar": 4000.0,
        "paused": 0.0,
    }
    assert view.speeds(Limits(max_weight_ratio=2.0))["liar"] == 2000.0
    assert View(0.0, (paused,)).speeds(Limits()) == {"paused": 0.0}


def test_loss_is_weighted_by_speed(make_peer) -> None:
    """The swarm's loss is the oracles' mean by tokens per second; the bootstrap has none."""
    peers = (
        make_peer("a", loss=2.0, tokens_per_second=300.0),
        make_peer("b", loss=4.0, tokens_per_second=100.0),
        make_peer("c", tokens_per_second=1e6),
        make_peer("d", loss=9.0, tokens_per_second=1e6, role="bootstrap"),
    )
    assert View(0.0, peers).loss(Limits()) == pytest.approx(2.5)
    assert View(0.0, peers[2:]).loss(Limits()) is None
    assert View(0.0, (make_peer("a", loss=3.0),)).loss(Limits()) == pytest.approx(3.0)


def test_nobody_owns_the_loss(make_peer) -> None:
    """An oracle that claims a trillion tokens per second weighs as much as the manifest lets it."""
    honest = [make_peer(f"p{number}", loss=2.0, tokens_per_second=10.0) for number in range(4)]
    view = View(0.0, (*honest, make_peer("liar", loss=8.0, tokens_per_second=1e12)))
    assert view.loss(Limits(max_weight_ratio=4.0)) == pytest.approx(5.0)
    assert view.loss(Limits(max_weight_ratio=1.0)) == pytest.approx(3.2)


def evaluation(bits: float, round: int = 3, dataset: str = "wiki") -> dict[str, object]:
    return {"dataset": dataset, "bits_per_byte": bits, "loss_nats": 2.0, "round": round, "time": 999.0}


def test_evaluations(make_peer) -> None:
    """Of each dataset the newest round counts, of several evaluators the median; none from the future."""
    peers = (
        make_peer("a", role="evaluator", evaluation=evaluation(1.3)),
        make_peer("b", role="evaluator", evaluation=evaluation(1.1)),
        make_peer("c", role="evaluator", evaluation=evaluation(1.2)),
        make_peer("d", role="evaluator", evaluation=evaluation(0.5, round=2)),
        make_peer("e", role="evaluator", evaluation=evaluation(0.0, round=4)),
        make_peer("f", role="evaluator", evaluation=evaluation(0.9, dataset="code", round=1)),
        make_peer("g", role="evaluator"),
        make_peer("h", evaluation=evaluation(0.1)),  # an oracle's word on its own work
    )
    found = View(0.0, peers).evaluations
    assert {name: (one.bits_per_byte, one.round) for name, one in found.items()} == {
        "code": (0.9, 1),
        "wiki": (1.2, 3),
    }
    assert View(0.0, ()).evaluations == {}


def test_an_evaluator_does_not_say_which_round_is_reached(make_peer) -> None:
    """Nothing counts that is of a later round than the oracles', whatever state its evaluator claims."""
    task = {"task": "arc", "metric": "acc", "value": 0.5, "round": 3}
    found = {"role": "evaluator", "evaluation": evaluation(1.1), "tasks": (task,)}
    far = {"round": 10**15, "swarm_tokens": 2**61, "state_digest": B}
    lies = {"evaluation": evaluation(0.01, round=10**15), "tasks": ({**task, "value": 1.0, "round": 10**15},)}
    oracles = [make_peer(name, round=3) for name in "abc"]
    view = View(0.0, (*oracles, make_peer("e", **found), make_peer("liar", **found | far | lies)))
    assert view.evaluations["wiki"].bits_per_byte == 1.1
    assert view.tasks["arc", "acc"].value == 0.5


def test_evaluators_do_not_train(make_peer) -> None:
    """An evaluator is no oracle: nobody waits for it, nobody averages with it."""
    view = View(0.0, (make_peer("a", role="evaluator", state="training", loss=1.0),))
    assert (
        view.oracles,
        view.companions(view.peers[0].record.state_digest, but=""),
        view.loss(Limits()),
    ) == (
        (),
        (),
        None,
    )


def test_json_shape(manifest, make_peer) -> None:
    """`status --json` has the swarm's state and all fields of all peers, as plain JSON."""
    view = View(5.0, (make_peer("a", loss=2.0, round=7, swarm_tokens=9, name="Ä"),))
    tree = json.loads(json.dumps(view.to_json(manifest)))
    assert {key: tree[key] for key in tree if key != "peers"} == {
        "swarm_id": manifest.swarm_id,
        "round": 7,
        "loss": 2.0,
        "tokens_total": 9,
        "refused": {},
        "exposed": {},
    }
    assert [set(peer) for peer in tree["peers"]] == [{"peer_id", *PeerRecord.model_fields}]
    assert (tree["peers"][0]["peer_id"], tree["peers"][0]["name"]) == ("a", "Ä")


def test_refusals(make_peer) -> None:
    """What all peers have refused is summed by kind and reason; what nobody has is not there."""
    messages = [in_order(counts, REFUSED_MESSAGES) for counts in ({"rate": 2, "form": 1}, {"rate": 3})]
    contributions = in_order({"norm": 4}, REJECTIONS)
    view = View(
        5.0,
        (make_peer("a", refused=messages[0]), make_peer("b", refused=messages[1], rejections=contributions)),
    )
    assert view.refusals == {"messages": {"rate": 5, "form": 1}, "contributions": {"norm": 4}}
    assert View(5.0, (make_peer("a"),)).refusals == {}


def test_a_peer_that_is_exposed(make_peer) -> None:
    """By how many of the peers, the most at first; what one says twice counts once."""
    liar, other = "QmLiar", "QmVictim"
    view = View(
        5.0,
        (
            make_peer("a", exposed=(other, liar)),
            make_peer("d", exposed=(other, other)),
            make_peer("b", exposed=(liar,)),
            make_peer("c", exposed=(liar,)),
            make_peer("e"),
        ),
    )
    assert list(view.exposed.items()) == [(liar, 3), (other, 2)]
    invented = [make_peer(f"s{number}", exposed=(f"Qm{number}",)) for number in range(1, 5)]
    slandered = View(5.0, (*invented, *view.peers))
    assert len(slandered.exposed) == SHOWN_MAX
    assert list(slandered.exposed)[:2] == [liar, other]


def test_json_of_nobody(manifest) -> None:
    """With no peer in sight the shape is the same."""
    assert View(5.0, ()).to_json(manifest) == {
        "swarm_id": manifest.swarm_id,
        "round": 0,
        "loss": None,
        "tokens_total": 0,
        "refused": {},
        "exposed": {},
        "peers": [],
    }


def test_arriving(make_peer) -> None:
    """A peer that is about to reach a state counts as at its beginning, with all else as it was."""
    before = make_peer("a", round_tokens=500, state="averaging", loss=2.0)
    [peer] = View(0.0, (before, make_peer("b"))).arriving(["a"], 8, B, 2000.0)
    record = peer.record
    assert (peer.peer_id, record.round, record.state_digest, record.time) == ("a", 8, B, 2000.0)
    assert (record.round_tokens, record.state, record.loss) == (0, "training", 2.0)


def test_progress_alone(manifest) -> None:
    """Alone, the round is complete with the tokens of one peer."""
    progress = round_progress(manifest, 0, (), 1000.0, 20479)
    assert (progress.tokens, progress.target, progress.live) == (20479.0, 20480.0, 1)
    assert not progress.complete
    assert round_progress(manifest, 0, (), 1000.0, 20480).complete


def test_progress_of_onlookers(manifest, make_peer) -> None:
    """Who takes no part adds nothing to the target; a round without oracles is never complete."""
    peers = (make_peer("a", round_tokens=20480), make_peer("b", round_tokens=0))
    progress = round_progress(manifest, 0, peers, 1000.0)
    assert (progress.tokens, progress.target, progress.live, progress.ratio) == (20480.0, 40960.0, 2, 0.5)
    assert not progress.complete
    assert round_progress(manifest, 0, peers[:1], 1000.0).complete
    nobody = round_progress(manifest, 0, (), 1000.0)
    assert (nobody.tokens, nobody.target, nobody.ratio, nobody.complete) == (0.0, 0.0, 0.0, False)


def test_progress_is_extrapolated(manifest, make_peer) -> None:
    """Old records are carried on at the peer's speed, for no longer than a record lives."""
    peer = make_peer(time=1000.0, round_tokens=100, tokens_per_second=10.0)

    def tokens(now: float) -> float:
        return round_progress(manifest, 0, (peer,), now, 1).tokens

    assert [tokens(now) for now in (1000.0, 1002.5, 1030.0, 2000.0)] == [101.0, 126.0, 401.0, 401.0]
    assert tokens(990.0) == 101.0  # a clock that goes ahead of ours


def test_progress_is_bounded(manifest, make_peer) -> None:
    """Nobody, we included, counts for more than a contribution can weigh."""
    most = 4.0 * 20480
    boaster = make_peer(round_tokens=1 << 61, tokens_per_second=1e12)
    assert round_progress(manifest, 0, (boaster,), 1000.0, 0).tokens == most
    assert round_progress(manifest, 0, (), 1000.0, 1 << 61).tokens == most


def test_one_boaster_does_not_end_a_large_round(manifest, make_peer) -> None:
    """In a swarm of six, one peer that claims everything is not enough to end the round."""
    boaster = make_peer("b", round_tokens=1 << 61)
    others = tuple(make_peer(str(number), round_tokens=2000) for number in range(4))
    progress = round_progress(manifest, 0, (boaster, *others), 1000.0, 2000)
    assert progress.live == 6
    assert not progress.complete
    assert progress.ratio == pytest.approx((4 * 20480 + 5 * 2000) / (6 * 20480))


def test_others_averaging_ends_a_round_that_is_half_full(manifest, make_peer) -> None:
    """A companion that averages ends the round for us too, but not one that has hardly begun."""
    companion = make_peer(state="averaging")
    half = round_progress(manifest, 0, (companion,), 1000.0, manifest.rounds.tokens_per_round)
    assert half.ratio < 1
    assert half.complete
    assert not round_progress(manifest, 0, (companion,), 1000.0, 5).complete
    assert round_progress(manifest, 0, (), 0.0, 40_000).ratio == 1.0


@pytest.mark.parametrize(
    "fields",
    [
        {"loss": float("nan")},
        {"loss": -1.0},
        {"loss": 1e7},
        {"round": -1},
        {"round": 1 << 62},
        {"round": 1.5},
        {"round": True},
        {"tokens_per_second": float("inf")},
        {"tokens_per_second": 1e13},
        {"time": -1.0},
        {"state_digest": "A" * 64},
        {"state_digest": "a" * 63},
        {"state_digest": "a" * 64 + "\n"},
        {"name": "x" * 41},
        {"role": "observer"},
        {"evaluation": {"dataset": "wiki"}},
        {"evaluation": evaluation(float("nan"))},
        {"evaluation": evaluation(-1.0)},
        {"evaluation": evaluation(1.0, dataset="")},
        {"evaluation": evaluation(1.0, dataset="x" * 41)},
        {"evaluation": evaluation(1.0, dataset="a b")},
        {"evaluation": evaluation(1.0, dataset="a\n")},
        {"evaluation": evaluation(1.0, round=-1)},
        {"state": "dancing"},
    ],
)
def test_implausible_records(make_peer, fields) -> None:
    """A record with an implausible field is refused."""
    with pytest.raises(ValidationError):
        make_peer("a", **fields)


def test_the_record_of_a_peer(make_peer) -> None:
    """By its id, if it is there."""
    view = View(0.0, (make_peer("a", name="ada"), make_peer("b")))
    found = view.record("a")
    assert found is not None
    assert found.name == "ada"
    assert view.record("c") is None


def test_utilization_is_the_oracles_median(make_peer) -> None:
    """One that lies does not move it, and who knows none, or does not train, does not count."""
    oracles = [make_peer(name, utilization=ratio) for name, ratio in (("a", 0.9), ("b", 0.95), ("c", 0.0))]
    assert View(0.0, (make_peer("d"), make_peer("e", role="bootstrap", utilization=0.1))).utilization is None
    assert View(0.0, (*oracles, make_peer("d"))).utilization == 0.9
