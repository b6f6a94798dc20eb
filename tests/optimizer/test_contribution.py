"""Every transition in the life of a contribution, as a table: state and event → state and order."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from dupt_swarm.node.messages import Adopted, Lost, RoundResult, StateName
from dupt_swarm.node.reasons import Failure, Fate
from dupt_swarm.optimizer.contribution import (
    ADOPT_SECONDS,
    RETRY_SECONDS,
    Attempt,
    Contribution,
    Order,
)

NOW = 1000.0
BEFORE = StateName(7, 5000, "a" * 64)
ME, MATES, OTHERS = "me", ("x", "y"), ("z",)
OWN, MOST = 200, 640  # tokens that ours stands for, and may stand for at most
TOGETHER, LATER = 900, 1100  # tokens of all contributions of the first and of the second failed round

# 300 tokens of which 200 were sent; two rounds and four failures in earlier days.
LIFE = Contribution(tokens=300, contributed_tokens=640, failed_rounds=4, mates=("old",))
FRESH = LIFE
SENT = replace(LIFE, sent=True, sent_tokens=200)
UNCERTAIN = replace(LIFE, sent_tokens=200, attempts=(Attempt(TOGETHER, MATES),), retry_at=NOW)
SENT_AGAIN = replace(UNCERTAIN, sent=True)
DOUBTFUL = replace(FRESH, doubtful=True)

ACCEPTED = replace(LIFE, tokens=100, contributed_tokens=840, mates=MATES)
GONE = replace(LIFE, tokens=0)
REBASED = replace(LIFE, mates=())

Event = Callable[[Contribution], tuple[Contribution, Order]]


def send(contribution: Contribution) -> tuple[Contribution, Order]:
    return contribution.send()


def success(mates: tuple[str, ...] = MATES, own: int = OWN) -> Event:
    """The round ended well."""
    return lambda it: it.end(RoundResult(StateName(8, 5900, "b" * 64), None, TOGETHER, mates, 1.0, own), NOW)


def failure(reason: Failure, tokens: int = 0, mates: tuple[str, ...] = ()) -> Event:
    """The round failed; ``tokens`` and ``mates`` are those of the group, if there was one."""
    return lambda it: it.end(RoundResult(None, reason, tokens, mates, 1.0), NOW)


def rejection(round_seconds: float) -> Event:
    """The voters stay at the state before."""
    result = RoundResult(None, Failure.REJECTED, TOGETHER, MATES, 1.0)
    return lambda it: it.end(result, NOW, round_seconds)


def swarm_at(round: int, tokens: int, digest: str = "c" * 64) -> Event:
    """The swarm has a newer state, from a round that was not ours."""
    return lambda it: it.meet(BEFORE, Adopted(StateName(round, tokens, digest)), ME, MOST)


def computed(*makers: str) -> Event:
    """It has a newer state, of which it is known whose contributions led there, in two rounds."""
    return lambda it: it.meet(
        BEFORE, Adopted(StateName(9, 6900, "c" * 64), dict.fromkeys(makers, OWN)), ME, MOST
    )


def parted(*makers: str, lost: int, both: int = 0, origin: Path | None = Path("origin")) -> Event:
    """It has a state of another branch, to which these have contributed; ours had so much of us."""
    left = Lost(lost, both, lost - both, origin)
    adopted = Adopted(StateName(9, 6900, "c" * 64), dict.fromkeys(makers, OWN), left)
    return lambda it: it.meet(BEFORE, adopted, ME, MOST)


def after_failure(contribution: Contribution, *attempts: Attempt) -> Contribution:
    """``contribution`` as one more failed round leaves it."""
    return replace(
        contribution,
        sent=False,
        attempts=attempts,
        failed_rounds=5,
        retry_at=NOW + RETRY_SECONDS,
    )


FIRST, SECOND = Attempt(TOGETHER, MATES), Attempt(LATER, OTHERS)
TABLE: dict[str, tuple[Contribution, Event, Contribution, Order]] = {
    # a round is to be ended
    "all progress is sent": (FRESH, send, replace(SENT, sent_tokens=300), Order.CONTRIBUTE),
    "doubtful progress is sent too": (
        DOUBTFUL,
        send,
        replace(DOUBTFUL, sent=True, sent_tokens=300),
        Order.CONTRIBUTE,
    ),
    "sent again as it was": (UNCERTAIN, send, SENT_AGAIN, Order.NOTHING),
    # it ended well
    "in the state": (SENT, success(), ACCEPTED, Order.ACCEPT),
    "in the state, alone": (SENT, success(()), replace(ACCEPTED, mates=()), Order.ACCEPT),
    "in the state at the second try": (SENT_AGAIN, success(), replace(ACCEPTED, retry_at=NOW), Order.ACCEPT),
    "nothing is doubtful once it is in the state": (
        replace(SENT, doubtful=True),
        success(),
        ACCEPTED,
        Order.ACCEPT,
    ),
    # it failed, and others may have it
    "may have arrived": (
        SENT,
        failure(Failure.TIMEOUT, TOGETHER, MATES),
        after_failure(SENT, FIRST),
        Order.NOTHING,
    ),
    "may have arrived, when the node died": (
        SENT,
        failure(Failure.NODE_LOST, TOGETHER, MATES),
        after_failure(SENT, FIRST),
        Order.NOTHING,
    ),
    "may have arrived in either of two rounds": (
        SENT_AGAIN,
        failure(Failure.PEER_LOST, LATER, OTHERS),
        after_failure(SENT_AGAIN, FIRST, SECOND),
        Order.NOTHING,
    ),
    "doubts stay after a failure": (
        replace(SENT, doubtful=True),
        failure(Failure.TIMEOUT, TOGETHER, MATES),
        after_failure(replace(SENT, doubtful=True), FIRST),
        Order.NOTHING,
    ),
    # it failed, and nobody can have it
    "nothing was sent without others": (SENT, failure(Failure.CANCELLED), after_failure(SENT), Order.NOTHING),
    "the first try stays uncertain when the second finds nobody": (
        SENT_AGAIN,
        failure(Failure.CANCELLED),
        after_failure(SENT_AGAIN, FIRST),
        Order.NOTHING,
    ),
    "in no state that voters have rejected, after one try or two": (
        replace(SENT_AGAIN, doubtful=True),
        rejection(7.0),
        replace(FRESH, doubtful=True, failed_rounds=5, retry_at=NOW + 7.0),
        Order.NOTHING,
    ),
    # it failed for what was in it
    **{
        f"given up: {reason}": (
            SENT,
            failure(reason),
            replace(GONE, failed_rounds=5, retry_at=NOW + RETRY_SECONDS),
            Order.DISCARD,
        )
        for reason in Failure
        if reason.fate is Fate.GIVEN_UP
    },
    **{
        f"given up at the second try: {reason}": (
            SENT_AGAIN,
            failure(reason, TOGETHER, MATES),
            replace(GONE, failed_rounds=5, retry_at=NOW + RETRY_SECONDS),
            Order.DISCARD,
        )
        for reason in Failure
        if reason.fate is Fate.GIVEN_UP
    },
    # it was not even tried
    **{
        f"not a try: {reason}": (
            SENT,
            failure(reason),
            replace(SENT, sent=False, retry_at=NOW + ADOPT_SECONDS),
            Order.NOTHING,
        )
        for reason in Failure
        if reason.fate is Fate.NOT_TRIED
    },
    **{
        f"not a second try: {reason}": (
            SENT_AGAIN,
            failure(reason),
            replace(UNCERTAIN, retry_at=NOW + ADOPT_SECONDS),
            Order.NOTHING,
        )
        for reason in Failure
        if reason.fate is Fate.NOT_TRIED
    },
    # the swarm has a newer state
    "rebasing keeps local progress": (FRESH, swarm_at(8, 5900), REBASED, Order.REBASE),
    "no newer state after all": (
        UNCERTAIN,
        lambda it: it.meet(BEFORE, Adopted(BEFORE), ME, MOST),
        UNCERTAIN,
        Order.NOTHING,
    ),
    "the next round with the failed one's tokens has ours in it": (
        UNCERTAIN,
        swarm_at(8, 5000 + TOGETHER),
        replace(ACCEPTED, retry_at=NOW),
        Order.ACCEPT,
    ),
    "the next round with the second failed one's tokens has ours in it": (
        replace(UNCERTAIN, attempts=(FIRST, SECOND)),
        swarm_at(8, 5000 + LATER),
        replace(ACCEPTED, retry_at=NOW, mates=OTHERS),
        Order.ACCEPT,
    ),
    "the next round with other tokens went without us": (
        UNCERTAIN,
        swarm_at(8, 5000 + TOGETHER - 200),
        replace(REBASED, retry_at=NOW),
        Order.REBASE,
    ),
    "two rounds later nobody can tell, and it counts as without us": (
        UNCERTAIN,
        swarm_at(9, 5000 + TOGETHER),
        replace(REBASED, retry_at=NOW),
        Order.REBASE,
    ),
    "another state of the same round went without us": (
        UNCERTAIN,
        swarm_at(7, 5000),
        replace(REBASED, retry_at=NOW),
        Order.REBASE,
    ),
    # and it is known what that was computed from
    "the rounds between have ours": (
        UNCERTAIN,
        computed("me", "x", "y"),
        replace(ACCEPTED, retry_at=NOW),
        Order.ACCEPT,
    ),
    "for as much as it counted there": (
        UNCERTAIN,
        lambda it: it.meet(BEFORE, Adopted(StateName(8, 5900, "c" * 64), {"me": 150, "x": 750}), ME, MOST),
        replace(LIFE, tokens=100, contributed_tokens=790, mates=("x",), retry_at=NOW),
        Order.ACCEPT,
    ),
    "the rounds between do not have ours, whatever their tokens": (
        UNCERTAIN,
        lambda it: it.meet(BEFORE, Adopted(StateName(8, 5000 + TOGETHER, "c" * 64), {"x": OWN}), ME, MOST),
        replace(REBASED, retry_at=NOW),
        Order.REBASE,
    ),
    "doubtful progress is kept when it is known not to have arrived": (
        DOUBTFUL,
        computed("x"),
        REBASED,
        Order.REBASE,
    ),
    "doubtful progress is given up when something of ours has arrived": (
        DOUBTFUL,
        computed("me", "z"),
        replace(GONE, mates=()),
        Order.DISCARD,
    ),
    # it is of another branch than ours
    "what a branch had of ours that was left is brought again": (
        UNCERTAIN,
        parted(lost=150),
        replace(REBASED, tokens=450, contributed_tokens=490, retry_at=NOW),
        Order.BRING_BACK,
    ),
    "for no more tokens than a contribution may stand for": (
        FRESH,
        parted(lost=600),
        replace(REBASED, tokens=MOST, contributed_tokens=40),
        Order.BRING_BACK,
    ),
    "it had more of ours than this peer remembers, as an older checkpoint may not": (
        FRESH,
        parted(lost=700),
        replace(REBASED, tokens=MOST, contributed_tokens=0),
        Order.BRING_BACK,
    ),
    "it had nothing of ours": (FRESH, parted(lost=0), REBASED, Order.REBASE),
    "nobody knows where it began": (
        DOUBTFUL,
        parted(lost=150, origin=None),
        replace(REBASED, contributed_tokens=490),
        Order.REBASE,
    ),
    "the other branch has something of ours that this one has not": (
        UNCERTAIN,
        parted("me", "x", lost=150),
        replace(REBASED, contributed_tokens=690, retry_at=NOW),
        Order.REBASE,
    ),
    "nobody knows what the other branch has of ours": (
        FRESH,
        lambda it: it.meet(
            BEFORE, Adopted(StateName(9, 6900, "c" * 64), None, Lost(150, 0, 150, Path("origin"))), ME, MOST
        ),
        replace(REBASED, contributed_tokens=490),
        Order.REBASE,
    ),
    "both have the round in which they part, and the rest is brought again": (
        UNCERTAIN,
        parted("me", "x", lost=OWN + 150, both=OWN),
        replace(REBASED, tokens=450, contributed_tokens=490, retry_at=NOW),
        Order.BRING_BACK,
    ),
    "both have all of ours": (FRESH, parted("me", "x", lost=OWN, both=OWN), REBASED, Order.REBASE),
    # or it is not known
    "doubtful progress is given up": (DOUBTFUL, swarm_at(8, 5900), replace(GONE, mates=()), Order.DISCARD),
    "doubtful progress is known to have arrived": (
        replace(UNCERTAIN, doubtful=True),
        swarm_at(8, 5000 + TOGETHER),
        replace(ACCEPTED, retry_at=NOW),
        Order.ACCEPT,
    ),
    "doubtful progress is given up when a failed round is not what came": (
        replace(UNCERTAIN, doubtful=True),
        swarm_at(8, 5900 + 1),
        replace(GONE, mates=(), retry_at=NOW),
        Order.DISCARD,
    ),
}


@pytest.mark.parametrize(("state", "event", "after", "order"), TABLE.values(), ids=TABLE)
def test_transition(state: Contribution, event: Event, after: Contribution, order: Order) -> None:
    """What follows from an event, and what the training strategy has to do."""
    assert event(state) == (after, order)


@pytest.mark.parametrize("state", [FRESH, SENT, UNCERTAIN, SENT_AGAIN, DOUBTFUL])
def test_steps_go_on_at_every_stage(state: Contribution) -> None:
    """An inner step adds tokens and changes nothing else, least of all what was sent."""
    assert state.train(50) == replace(state, tokens=350)


UNSOUND = (Failure.NOT_FINITE, Failure.OUTER_OVERFLOW)


@pytest.mark.parametrize("reason", [each for each in Failure if each not in UNSOUND])
def test_no_other_failure_costs_progress(reason: Failure) -> None:
    """Whatever the node says, progress is kept unless the numbers themselves are bad."""
    after, order = failure(reason, TOGETHER, MATES)(SENT)
    known = (Failure.REJECTED, Failure.STALE, Failure.BEHIND)  # it is in no state
    assert (after.tokens, after.sent, order) == (300, False, Order.NOTHING)
    assert bool(after.attempts) == (reason not in known)


@pytest.mark.parametrize(
    ("state", "event"),
    [(SENT, send), (SENT, swarm_at(8, 5900)), (FRESH, success()), (UNCERTAIN, failure(Failure.TIMEOUT))],
)
def test_impossible_events(state: Contribution, event: Event) -> None:
    """Nothing is sent twice at once, no state adopted meanwhile, and no round ends that did not begin."""
    with pytest.raises(AssertionError):
        event(state)


@pytest.mark.parametrize(
    ("state", "unclean", "doubtful"),
    [
        (FRESH, False, False),
        (FRESH, True, True),
        (UNCERTAIN, False, True),
        (UNCERTAIN, True, True),
        (DOUBTFUL, False, True),
    ],
)
def test_saved_and_restored(state: Contribution, unclean: bool, doubtful: bool) -> None:
    """A checkpoint keeps tokens and counts; what was uncertain or saved too early is doubtful."""
    after = Contribution.restored(state.saved(), doubtful=unclean)
    assert after == Contribution(tokens=300, contributed_tokens=640, failed_rounds=4, doubtful=doubtful)


def test_a_round_under_way_cannot_be_saved() -> None:
    """What becomes of it is not known yet."""
    with pytest.raises(AssertionError):
        SENT.saved()


def test_progress_made_while_a_round_ends_is_the_next_ones() -> None:
    """From fresh to the state with steps in between: all tokens are counted, each once."""
    contribution, _ = Contribution().train(64).send()
    contribution, _ = failure(Failure.TIMEOUT, TOGETHER, MATES)(contribution.train(32))
    contribution, order = contribution.train(16).send()
    assert (order, contribution.sent_tokens, contribution.tokens) == (Order.NOTHING, 64, 112)
    contribution, order = success(own=64)(contribution)
    assert (order, contribution.contributed_tokens, contribution.tokens) == (Order.ACCEPT, 64, 48)
    contribution, order = contribution.send()
    assert (order, contribution.sent_tokens) == (Order.CONTRIBUTE, 48)


def test_it_is_a_value() -> None:
    """No event changes a contribution in place, so that any thread may look at it."""
    with pytest.raises(FrozenInstanceError):
        FRESH.tokens = 0  # type: ignore[misc]
