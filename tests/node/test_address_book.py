"""Who is written down, and when."""

from pathlib import Path

import pytest

from dupt_swarm.node.address_book import AWAY_SECONDS, OF_ONE_NETWORK, PEERS_MAX, AddressBook
from dupt_swarm.node.view import Peer, View


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time, to be changed."""
    time = [1000.0]
    monkeypatch.setattr("dupt_swarm.node.address_book.time.monotonic", lambda: time[0])
    return time


def test_somebody_new_is_written_down_soon(tmp_path: Path, make_peer, now: list[float]) -> None:
    """After two seconds; times of those that are known already are every thirty."""
    path = tmp_path / "peers.json"
    book = AddressBook(path)

    def meet(*peer_ids: str, seen: float = 1000.0) -> set[str]:
        met = [make_peer(each, addresses=("/ip4/8.8.8.8/tcp/1",)) for each in peer_ids]
        peers: tuple[Peer, ...] = tuple(met)
        book.meet(View(seen, peers), "own")
        return AddressBook(path).peer_ids

    assert meet("a") == {"a"}
    now[0] += 1.0
    assert meet("a", "b", "own") == {"a"}
    now[0] += 1.5
    assert meet("a", "b") == {"a", "b"}
    text = path.read_text()
    now[0] += 20.0
    meet("a", "b", seen=1020.0)
    assert path.read_text() == text
    now[0] += 20.0
    meet("a", "b", seen=1040.0)
    assert path.read_text() != text


def test_the_event_loop_does_not_wait_for_the_disk(
    tmp_path: Path, make_peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A book that a power cut damages is an empty one: nothing has to be on the disk at once."""

    def busy(_: int) -> None:
        raise AssertionError("it waits for the disk")

    monkeypatch.setattr("os.fsync", busy)
    path = tmp_path / "peers.json"
    book = AddressBook(path)
    peers: tuple[Peer, ...] = (make_peer("a", addresses=("/ip4/8.8.8.8/tcp/1",)),)
    book.meet(View(0.0, peers), "own")
    assert AddressBook(path).peer_ids == {"a"}
    data = path.read_bytes()
    for damaged in (b"", data[:-9], bytes(len(data)), b"\xff" + data):
        path.write_bytes(damaged)
        assert AddressBook(path).peer_ids == set()


def test_keys_without_end_do_not_empty_the_book(make_peer) -> None:
    """Who is known longer stays, whatever time others claim; of each network a few are enough."""
    book = AddressBook(None)

    def peers(name: str, count: int, host: str, time: float) -> tuple[Peer, ...]:
        where = [host.format(number) for number in range(count)]
        return tuple(
            make_peer(f"{name}{n}", addresses=(f"/ip4/{each}/tcp/1",), time=time)
            for n, each in enumerate(where)
        )

    def kept(name: str) -> int:
        return sum(each.startswith(name) for each in book.peer_ids)

    honest = peers("honest", 12, "8.8.{}.1", 1000.0)
    one_house = peers("liar", 60, "9.9.9.{}", 1003.0)
    book.meet(View(1000.0, (*one_house, *honest)), "own")
    assert (kept("honest"), kept("liar")) == (12, PEERS_MAX - 12)  # there is place
    many = peers("other", 60, "7.7.{}.1", 1003.0)
    book.meet(View(1001.0, (*many, *one_house, *honest)), "own")
    assert (kept("honest"), kept("liar")) == (12, OF_ONE_NETWORK)
    late = make_peer("late", addresses=("/ip4/9.9.9.9/tcp/1",), time=1.0)
    book.meet(View(1002.0, (*many, late), voters=frozenset({"late"})), "own")
    assert {"late"} <= book.peer_ids and kept("honest") == 12
    comers = peers("comer", 60, "6.6.{}.1", 1.0)
    book.meet(View(1003.0 + AWAY_SECONDS, (*honest, *comers)), "own")
    assert (kept("honest"), kept("comer")) == (12, PEERS_MAX - 12)


def test_since_when_a_peer_is_known_is_written_down(tmp_path: Path, make_peer) -> None:
    """A node that comes back knows whom it has known longest."""
    path = tmp_path / "peers.json"
    first, then = [
        tuple(make_peer(f"{n}", addresses=(f"/ip4/8.8.{n}.1/tcp/1",)) for n in range(count))
        for count in (PEERS_MAX, 2 * PEERS_MAX)
    ]
    AddressBook(path).meet(View(10.0, first), "own")
    book = AddressBook(path)
    book.meet(View(20.0, then[::-1]), "own")
    assert book.peer_ids == {peer.peer_id for peer in first}


def test_voters_are_kept_however_many_one_house_has(make_peer) -> None:
    """And of the others those that are known longest, also longer than one that voted for a while."""
    book = AddressBook(None)

    def met(name: str, count: int, host: str) -> tuple[Peer, ...]:
        where = [f"/ip4/{host.format(number)}/tcp/1" for number in range(count)]
        return tuple(make_peer(f"{name}{n}", addresses=(each,)) for n, each in enumerate(where))

    voters, others = met("voter", OF_ONE_NETWORK + 2, "9.9.9.{}"), met("other", PEERS_MAX, "8.8.{}.1")
    ids = {peer.peer_id for peer in voters}
    book.meet(View(1.0, (*others, *voters), voters=frozenset(ids)), "own")
    assert ids <= book.peer_ids and len(book.peer_ids) == PEERS_MAX
    book = AddressBook(None)
    old, once = met("old", PEERS_MAX - 1, "8.8.{}.1"), met("once", 1, "9.9.9.{}")
    book.meet(View(1.0, old), "own")
    book.meet(View(2.0, (*old, *once), voters=frozenset({"once0"})), "own")
    new = met("new", 1, "7.7.7.{}")
    book.meet(View(3.0, (*old, *once, *new), voters=frozenset({"new0"})), "own")
    assert book.peer_ids == {peer.peer_id for peer in (*old, *new)}


def test_who_was_seen_last_is_called_first(make_peer) -> None:
    """When every initial peer is gone, its address is the likeliest to be right."""
    book = AddressBook(None)
    for time, name in enumerate("ab"):
        book.meet(View(float(time), (make_peer(name, addresses=("/ip4/8.8.8.8/tcp/1",)),)), "own")
    assert book.addresses == ("/ip4/8.8.8.8/tcp/1/p2p/b", "/ip4/8.8.8.8/tcp/1/p2p/a")
