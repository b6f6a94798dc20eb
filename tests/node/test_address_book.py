"""Who is written down, and when."""

from pathlib import Path

import pytest

from dupt_swarm.node.address_book import AddressBook
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
        met = [make_peer(each, addresses=("/ip4/8.8.8.8/tcp/1",), time=seen) for each in peer_ids]
        peers: tuple[Peer, ...] = tuple(met)
        book.meet(View(0.0, peers), "own")
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
