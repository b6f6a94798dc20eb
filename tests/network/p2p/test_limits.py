"""How much a peer may ask, and all strangers together."""

from collections import Counter
from contextlib import ExitStack

import pytest

from dupt_swarm.network.p2p.limits import (
    ACCOUNTS_MAX,
    MEMBER,
    STRANGER,
    STRANGERS,
    PeerLimits,
)
from dupt_swarm.network.p2p.rpc import CallError
from tests.support.clock import Clock


def opened(limits: PeerLimits, peer: str, kind, inside: ExitStack) -> str:
    """Open one more that stays open; why not, or an empty string."""
    before = limits._refused.copy()
    try:
        inside.enter_context(limits.open(peer, kind))
    except CallError:
        [reason] = limits._refused - before
        return reason
    return ""


def test_a_peer_that_is_invited_has_a_members_account() -> None:
    """Strangers take nothing of its share, though its record is not known yet."""
    limits = PeerLimits(Counter())
    limits.invited = {"guest"}
    assert limits.is_member("guest") and not limits.is_member("stranger")
    assert limits.is_trusted("guest") and not limits.is_trusted("stranger")
    with ExitStack() as stack:
        for number in range(STRANGERS.open_streams):
            stack.enter_context(limits.open(f"stranger {number}", "stream"))
        with pytest.raises(CallError):
            stack.enter_context(limits.open("another", "stream"))
        stack.enter_context(limits.open("guest", "stream"))


def test_calls_are_as_many_as_the_clock_allows() -> None:
    """After a pause many at once, then so many per second."""
    clock = Clock(0.0)
    limits = PeerLimits(Counter(), clock)

    def calls() -> int:
        made = 0
        while True:
            try:
                limits.count("a", calls=1)
            except CallError:
                assert set(limits._refused) == {"rate"}
                return made
            made += 1

    assert calls() == STRANGER.calls_at_once
    clock.now += 1.0
    assert calls() == STRANGER.calls
    clock.now += 3600.0
    assert calls() == STRANGER.calls_at_once
    limits.count("b", calls=1)


def test_bytes_are_counted_too() -> None:
    """What cannot be received at once is refused, and a member may send far more."""
    limits = PeerLimits(Counter(), Clock(0.0))
    limits.members = {"member"}
    limits.count("a", size=int(STRANGER.bytes_at_once))
    with pytest.raises(CallError, match="too many bytes"):
        limits.count("a", size=1)
    limits.count("member", size=int(MEMBER.bytes_at_once))


def test_what_was_sent_has_to_be_made_good() -> None:
    """What a peer was given counts as its own, and idle hours before pay for none of it."""
    clock = Clock(0.0)
    limits = PeerLimits(Counter(), clock)
    limits.count("a", size=1)
    clock.now += 3600.0
    limits.charge("a", 2 * int(STRANGER.bytes_at_once))
    with pytest.raises(CallError, match="too many bytes"):
        limits.count("a", size=1)
    clock.now += 1.0 + STRANGER.bytes_at_once / STRANGER.bytes
    limits.count("a", size=1)


def test_what_is_opened_is_a_call() -> None:
    """Also where it is closed again at once, so that few are ever open."""
    limits = PeerLimits(Counter(), Clock(0.0))
    for _ in range(int(STRANGER.calls_at_once)):
        with limits.open("a", "stream"):
            pass
    with ExitStack() as inside:
        assert opened(limits, "a", "stream", inside) == "rate"


def test_what_is_refused_costs_what_is_left() -> None:
    """Asking far too much, again and again, is not free."""
    clock = Clock(0.0)
    limits = PeerLimits(Counter(), clock)
    for _ in range(3):
        with pytest.raises(CallError, match="too many calls"):
            limits.count("a", calls=2 * int(STRANGER.calls_at_once))
    with pytest.raises(CallError, match="too many calls"):
        limits.count("a", calls=1)
    clock.now += 1.0
    limits.count("a", calls=int(STRANGER.calls))


@pytest.mark.parametrize(("kind", "most"), [("call", STRANGER.open_calls), ("stream", STRANGER.open_streams)])
def test_few_are_open_at_once(kind, most: int) -> None:
    """One peer's are few, and a place is free again when one is closed."""
    limits = PeerLimits(Counter(), Clock(0.0))
    with ExitStack() as inside:
        assert [opened(limits, "a", kind, inside) for _ in range(most + 2)] == [""] * most + ["open"] * 2
    with ExitStack() as inside:
        assert opened(limits, "a", kind, inside) == ""


def test_a_thousand_fresh_ids_leave_room_for_members() -> None:
    """All together have the strangers' share; what members have open is their own."""
    limits = PeerLimits(Counter(), Clock(0.0))
    limits.members = {f"member {number}" for number in range(64)}
    with ExitStack() as inside:
        crowd = [opened(limits, f"stranger {number}", "stream", inside) for number in range(1000)]
        assert crowd.count("") == STRANGERS.open_streams
        assert set(crowd) == {"", "strangers"}
        assert [opened(limits, member, "stream", inside) for member in limits.members] == [""] * 64
    with ExitStack() as inside:
        assert opened(limits, "late", "stream", inside) == ""


def test_strangers_share_their_calls() -> None:
    """Many that each stay within what one may call are refused together, and a member is not."""
    limits = PeerLimits(Counter(), Clock(0.0))
    limits.members = {"member"}
    peers = int(STRANGERS.calls_at_once / STRANGER.calls_at_once)
    for number in range(peers):
        limits.count(str(number), calls=int(STRANGER.calls_at_once))
    with pytest.raises(CallError):
        limits.count("one more", calls=1)
    assert limits._refused == {"strangers": 1}
    limits.count("member", calls=1)


def test_accounts_are_bounded() -> None:
    """However many peers there were; one that has something open is not forgotten."""
    limits = PeerLimits(Counter(), Clock(0.0))
    with ExitStack() as inside:
        assert opened(limits, "first", "call", inside) == ""
        for number in range(3 * ACCOUNTS_MAX):
            limits.count(str(number), size=1)
        assert len(limits._accounts) == ACCOUNTS_MAX
        outcomes = [opened(limits, "first", "call", inside) for _ in range(STRANGER.open_calls)]
        assert outcomes == [""] * (STRANGER.open_calls - 1) + ["open"]


def test_a_peer_that_goes_on_asking_is_not_forgotten() -> None:
    """Else it would have as much again whenever so many others had asked for something."""
    limits = PeerLimits(Counter(), Clock(0.0))
    limits.count("a", calls=int(STRANGER.calls_at_once))
    for number in range(2 * ACCOUNTS_MAX):
        limits.count(str(number), size=1)
        limits.count("a", size=1)
    with pytest.raises(CallError, match="too many calls"):
        limits.count("a", calls=1)


def test_a_newcomer_among_many_is_not_forgotten_at_once() -> None:
    """When all accounts have something open, that of one more is kept as long as it asks."""
    limits = PeerLimits(Counter(), Clock(0.0))
    limits.members = {f"member {number}" for number in range(ACCOUNTS_MAX)}
    with ExitStack() as inside:
        assert {opened(limits, member, "call", inside) for member in limits.members} == {""}
        limits.count("late", calls=int(STRANGER.calls_at_once))
        with pytest.raises(CallError, match="too many calls"):
            limits.count("late", calls=1)


def test_few_strangers_do_not_take_the_share_of_all() -> None:
    """Whoever comes after some that have all they can get still finds a place."""
    limits = PeerLimits(Counter(), Clock(0.0))
    with ExitStack() as inside:
        for number in range(2 * STRANGERS.open_streams // STRANGER.open_streams):
            for _ in range(STRANGER.open_streams):
                opened(limits, str(number), "stream", inside)
        assert opened(limits, "late", "stream", inside) == ""
        assert opened(limits, "late", "stream", inside) == "strangers"
