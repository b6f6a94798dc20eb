"""When a round is to be ended."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dupt_swarm.node.messages import StateName
from dupt_swarm.node.view import View
from dupt_swarm.optimizer import due as due_module
from dupt_swarm.optimizer.contribution import Contribution
from dupt_swarm.optimizer.due import CATCH_UP_SECONDS, Due

DIGEST = "ab" * 32


def due_beside(make_manifest: Any, view: View) -> Due:
    """Of an oracle ``me`` that sees this; nothing of a swarm but what it looks at."""
    state = StateName(8, 900, DIGEST)
    still = SimpleNamespace(fetching=False)
    about = {"manifest": make_manifest(), "view": view, "state": state, "peer_id": "me", "catching_up": still}
    return Due(SimpleNamespace(**about))  # type: ignore[arg-type]


@pytest.mark.parametrize(("ago", "waits"), [(1.0, False), (-1.0, True)])
def test_mates_that_come_a_little_later(make_manifest, make_peer, ago: float, waits: bool) -> None:
    """A record from before the round's end says nothing; after it, that its maker is not there yet."""
    due = due_beside(make_manifest, View(0.0, ()))
    before = make_peer("mate", round=7, swarm_tokens=800, time=time.time() - ago)
    due._swarm.view = View(0.0, (before,))  # type: ignore[misc]
    enough = due._swarm.manifest.tokens_per_round(8) * 2
    assert due.now(Contribution(tokens=enough, mates=("mate",))) is not waits


@pytest.mark.parametrize("claimed", [0, 1 << 61])
def test_claims_of_newcomers(make_manifest, make_peer, claimed: int) -> None:
    """They neither end a round of voters nor keep them from it; while nobody votes, all count."""
    at = {"round": 8, "state_digest": DIGEST, "tokens_per_second": 0.0, "round_tokens": 100}
    voter = make_peer("voter", **at)
    newcomer = make_peer("newcomer", **at | {"round_tokens": claimed, "state": "averaging"})
    contribution = Contribution(tokens=100)
    peers = (newcomer, voter)
    among_voters = due_beside(make_manifest, View(0.0, peers, {}, frozenset({"me", "voter"})))
    progress = among_voters.progress(contribution)
    assert (progress.tokens, progress.live, progress.others_averaging) == (200.0, 2, False)
    among_all = due_beside(make_manifest, View(0.0, peers)).progress(contribution)
    assert (among_all.live, among_all.others_averaging) == (3, True)


@pytest.mark.parametrize("state", ["paused", "starting"])
def test_oracles_that_resume_at_the_same_hour(make_manifest, make_peer, state: str) -> None:
    """No round ends on the word of who was away when this one resumed, but for a view that is new enough."""
    enough = Contribution(tokens=1 << 40)
    away = make_peer("mate", round=8, state_digest=DIGEST, state=state, time=time.time() - 1.0)
    due = due_beside(make_manifest, View(time.time(), (away,)))
    assert not due.now(enough)
    due._swarm.view = View(time.time() + CATCH_UP_SECONDS, (away,))  # type: ignore[misc]
    due.begin()  # and the rounds after that wait for nobody
    assert due.now(enough)
    due._swarm.view = View(time.time(), (make_peer("mate", round=8, state_digest=DIGEST),))  # type: ignore[misc]
    assert due.now(enough)


@pytest.mark.parametrize("back", [0.0, 30.0, 3600.0])
def test_a_clock_that_is_set_back(monkeypatch, make_manifest, make_peer, back: float) -> None:
    """A paused oracle is waited for as long as ever, though views seem to be from before this one resumed."""
    now, steady = 1e9, 1000.0
    clock = SimpleNamespace(time=lambda: now, monotonic=lambda: steady)
    monkeypatch.setattr(due_module, "time", clock)
    due = due_beside(make_manifest, View(now, ()))
    now -= back
    for _ in range(20):
        now, steady = now + 1.0, steady + 1.0
        away = make_peer("mate", round=8, state_digest=DIGEST, state="paused", time=now)
        due._swarm.view = View(now, (away,))  # type: ignore[misc]
        if due.now(Contribution(tokens=1 << 40)):
            break
    assert steady - 1000.0 <= 2 * CATCH_UP_SECONDS + 1.0


@pytest.mark.parametrize(("state", "waits"), [("training", True), ("averaging", False)])
def test_stragglers_are_not_waited_for_alone(make_manifest, make_peer, state: str, waits: bool) -> None:
    """Who waits for them while another ends the round already would be left out of it."""
    enough = Contribution(tokens=1 << 40)
    mate = make_peer("mate", round=8, swarm_tokens=900, state_digest=DIGEST, state=state)
    straggler = make_peer("late", round=7, swarm_tokens=800)
    due = due_beside(make_manifest, View(time.time() + CATCH_UP_SECONDS, (mate, straggler)))
    assert due.now(enough) is not waits


def test_a_failed_round_is_not_tried_again_at_once(make_manifest) -> None:
    """The others' records need time to show whether it succeeded without this oracle."""
    due = due_beside(make_manifest, View(0.0, ()))
    enough = Contribution(tokens=1 << 40, retry_at=time.monotonic() + 60.0)
    assert not due.now(enough)
    assert due.now(replace(enough, retry_at=time.monotonic()))


def test_a_round_takes_no_longer_than_the_manifest_says(make_manifest) -> None:
    """Also where too little was trained on; but what is full does not end while a newer state comes."""
    due = due_beside(make_manifest, View(0.0, ()))
    due._swarm.catching_up.fetching = True  # type: ignore[misc]
    assert not due.now(Contribution(tokens=1 << 40))
    due._training_since -= due._swarm.manifest.rounds.max_round_seconds
    assert due.now(Contribution(tokens=1))


def test_a_mate_counts_once(make_manifest, make_peer) -> None:
    """Its record that it is here may be from before this oracle was."""
    here = make_peer("mate", round=8, state_digest=DIGEST, time=time.time() - 1.0)
    due = due_beside(make_manifest, View(0.0, (here,)))
    assert due.companions(Contribution(mates=("mate",))) == (here,)
