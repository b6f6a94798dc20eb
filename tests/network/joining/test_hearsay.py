"""Which state most of the initial peers have told."""

from dupt_swarm.network.joining.entry import Hearsay
from tests.support import invented
from tests.support.hello import hello

OLD, NOW, NEW, LIE = ("abcd"[number] * 64 for number in range(4))


def heard(hellos: dict[str, str], *looks: dict[str, str]) -> Hearsay:
    """By peer: what each says when asked first, and the states in all records at each look after that."""
    hearsay = Hearsay({peer_id: hello(digest) for peer_id, digest in hellos.items()})
    for look in looks:
        hearsay.hear(invented.peer(peer_id, state_digest=digest) for peer_id, digest in look.items())
    return hearsay


def test_what_more_than_half_tell_counts() -> None:
    """Of those who tell anything; others may say what they like."""
    assert heard({"a": NOW, "b": NOW, "c": LIE}).digests == [NOW]
    assert heard({"a": NOW, "b": LIE}).digests == []
    assert heard({"a": NOW, "b": "", "c": ""}).digests == [NOW]
    assert heard({"a": NOW}, {"x": LIE, "y": LIE}).digests == [NOW]
    assert heard({"a": ""}, {"x": LIE}).tellers == frozenset()
    assert heard({}).digests == []


def test_peers_that_are_never_at_one_state_at_the_same_moment_agree_all_the_same() -> None:
    """One is always a round behind."""
    hearsay = heard({"a": NOW, "b": OLD}, {"a": NEW, "b": NOW})
    assert hearsay.digests == [NOW]


def test_what_was_told_last_is_tried_first() -> None:
    """Whoever is asked may have forgotten what was before."""
    hearsay = heard({"a": OLD, "b": OLD}, {"a": NOW, "b": NOW}, {"a": NEW, "b": NOW})
    assert hearsay.digests == [NOW, OLD]


def test_one_liar_among_three_cannot_tell_more_by_telling_it_often() -> None:
    """However many states it names, what most have not told does not count."""
    looks = [{"a": NOW, "b": NOW, "c": f"{number:064x}"} for number in range(100)]
    assert heard({"a": OLD, "b": OLD, "c": LIE}, *looks).digests == [NOW, OLD]
