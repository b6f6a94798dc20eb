"""Proof that a peer contradicts itself, and which proofs a peer keeps."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.network.averaging import offences
from dupt_swarm.network.averaging.offences import Offences, name_of
from dupt_swarm.network.averaging.pledge import PROOF_BYTES_MAX, Accepting, Pledge, Proof, Subject, Vote
from dupt_swarm.network.members.attendance import Attendance
from tests.support.sharing_groups import STATE, SWARM, member_keys

ONE, OTHER = "1" * 64, "2" * 64
SUBJECT = Subject(SWARM, "ab" * 20, 3, STATE)
PLACES = 3


@pytest.fixture(scope="module")
def keys() -> dict[str, RSAPrivateKey]:
    """Of peers, by their ids."""
    return member_keys(2 * PLACES)


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are three."""
    monkeypatch.setattr(offences, "KEPT_MAX", PLACES)


class Circle:
    """Whom a peer deals with, and what it does with who is exposed."""

    def __init__(self, voters=(), mates=()) -> None:
        self.voters, self.mates = list(voters), list(mates)
        self.refused = Counter[str]()
        self.attendance = Attendance(self.refused)

    def expose(self, peer_id: str) -> None:
        self.attendance.expose(peer_id)

    @property
    def exposed(self) -> set[str]:
        return set(self.attendance.exposed)


def votes_of(keys, place: int = 0, subject: Subject = SUBJECT) -> tuple[Vote, Vote]:
    """A peer's votes for two states."""
    peer, key = list(keys.items())[place]
    return Vote.sign(subject, ONE, peer, key), Vote.sign(subject, OTHER, peer, key)


def acceptances_of(keys, place: int = 0, subject: Subject = SUBJECT) -> tuple[Accepting, Accepting]:
    """A peer's acceptances of two lists."""
    peer, key = list(keys.items())[place]
    return Accepting.sign(subject, ONE, peer, key), Accepting.sign(subject, OTHER, peer, key)


def proofs_of(keys) -> list[Proof]:
    """One against each of the peers, of both kinds."""
    places = range(len(keys))
    return [
        Proof.of(*acceptances_of(keys, place)) if place % 2 else Proof.of(*votes_of(keys, place))
        for place in places
    ]


@pytest.mark.parametrize("make", [votes_of, acceptances_of])
def test_two_that_differ_are_proof(keys, make: Callable[..., Any]) -> None:
    """Whoever reads it knows who has signed both: votes for two states, or acceptances of two lists."""
    proof = Proof.of(*make(keys))
    assert Proof.read(proof.data, SWARM) == proof
    assert proof.offender == next(iter(keys))
    assert len(proof.data) < PROOF_BYTES_MAX


def pack(*fields: object) -> bytes:
    """As a proof travels."""
    return bytes(msgpack.packb(fields))


@pytest.mark.parametrize(("kind", "make"), [("vote", votes_of), ("acceptance", acceptances_of)])
def test_what_is_no_proof(keys, kind: str, make: Callable[..., Any]) -> None:
    """Forged, cut, of another swarm, of two rolls or signers, of one who was alone, or too long: none."""
    for reason, data in not_proofs(keys, kind, make):
        with pytest.raises(ValueError, match=reason):
            Proof.read(data, SWARM)


def not_proofs(keys, kind: str, make: Callable[..., Any]) -> Iterator[tuple[str, bytes]]:
    """What is none, and why."""
    one, other = make(keys)
    _, strangers = make(keys, 1)
    said = {"vote": b"after", "acceptance": b"list"}[kind]
    yield "signature is wrong", pack(kind, one.data, other.data[:-1] + bytes([other.data[-1] ^ 1]))
    yield "signature is wrong", pack(kind, one.data.replace(b'"%s":"1' % said, b'"%s":"3' % said), other.data)
    yield "another swarm", pack(kind, *data_of(make(keys, 0, replace(SUBJECT, swarm_id="other-0"))))
    yield "do not contradict", pack(kind, one.data, make(keys)[0].data)
    yield "do not contradict", pack(kind, one.data, one.data)
    yield "two peers", pack(kind, one.data, strangers.data)
    for change in ({"roll": "cd" * 20}, {"round": 4}, {"before": ONE}, {"swarm_id": "other-0"}):
        yield "do not contradict", pack(kind, one.data, make(keys, 0, replace(SUBJECT, **change))[1].data)
    yield "too long", pack(kind, one.data, bytes(PROOF_BYTES_MAX))
    yield f"a {kind} is too long", pack(kind, one.data, bytes(PROOF_BYTES_MAX - 2000))
    yield "of another kind", pack("vote" if kind != "vote" else "acceptance", one.data, other.data)
    yield "unknown kind", pack("statement", one.data, other.data)
    for fields in ([kind, one.data], [kind, *[one.data] * 3], [kind, one.data, None], [one.data, other.data]):
        yield "malformed", pack(*fields)
    yield "malformed", pack(kind.encode(), one.data, other.data)


def data_of(both: Iterable[Pledge]) -> list[bytes]:
    """As they were signed."""
    return [each.data for each in both]


def test_who_was_alone_proves_nothing(keys) -> None:
    """After a crash it may honestly do a round again; it never accepts a list."""
    alone = replace(SUBJECT, roll="")
    with pytest.raises(ValueError, match="was alone"):
        Proof.read(pack("vote", *data_of(votes_of(keys, 0, alone))), SWARM)
    with pytest.raises(ValueError, match="roll"):
        acceptances_of(keys, 0, alone)


def test_who_is_named_by_a_proof_is_left_out(keys) -> None:
    """Whether this peer saw it or was told; it is counted once."""
    first, second, *_ = keys
    circle = Circle(voters=[first, second])
    known = Offences(SWARM, circle)
    known.expose([Proof.of(*votes_of(keys, 0))])
    for _ in range(2):
        known.take(proofs_of(keys)[:2])
    assert circle.exposed == {first, second} == set(known.proofs)
    assert circle.refused == {"contradiction": 2}


def test_strangers_take_no_places(keys) -> None:
    """Keys cost nothing: proofs against who is neither a voter nor a mate are not taken from others."""
    voter, mate, *strangers = keys
    circle = Circle([voter], [mate])
    known = Offences(SWARM, circle)
    assert set(known.wanted(list(map(name_of, keys)))) == {name_of(voter), name_of(mate)}
    known.take(proofs_of(keys))
    assert circle.exposed == {voter, mate}
    assert known.wanted(list(map(name_of, keys))) == []
    assert known.find([name_of(mate), name_of(strangers[0])]) == [known.proofs[mate]]


@pytest.mark.usefixtures("few_places")
def test_when_all_places_are_taken(keys) -> None:
    """A voter takes the place of the newest who never was one; nobody takes a voter's."""
    peers = list(keys)
    circle = Circle(mates=peers)
    known = Offences(SWARM, circle)
    known.take(proofs_of(keys)[:4])
    assert list(known.proofs) == peers[:3]
    assert circle.exposed == set(peers[:4])  # which costs no place
    assert known.wanted([name_of(peers[4])]) == []
    circle.voters = [peers[2], peers[4]]
    known.take(proofs_of(keys))
    assert set(known.proofs) == {peers[0], peers[2], peers[4]}
    circle.voters = [peers[3]]
    assert known.wanted([name_of(peer) for peer in peers[3:]]) == [name_of(peers[3])]
    circle.voters = [peers[3], peers[5]]
    known.take(proofs_of(keys))
    assert set(known.proofs) == {peers[2], peers[3], peers[4]}
    assert known.wanted([name_of(peers[5])]) == []


def test_proofs_are_kept(keys, tmp_path: Path) -> None:
    """After a restart offenders are left out from the beginning, before anybody else is known."""
    path, circle = tmp_path / "offences.json", Circle(voters=list(keys)[:2])
    Offences(SWARM, circle, path).take(proofs_of(keys)[:1])
    Offences(SWARM, circle, path).expose([Proof.of(*votes_of(keys, 5))])
    restarted = Circle()
    known = Offences(SWARM, restarted, path)
    first, *_, last = keys
    assert set(known.proofs) == restarted.exposed == {first, last}
    for offender, proof in known.proofs.items():
        assert Proof.read(proof.data, SWARM).offender == offender
    assert restarted.refused == {"contradiction": 2}
    assert [each.name for each in tmp_path.iterdir()] == ["offences.json"]


@pytest.mark.usefixtures("few_places")
def test_who_was_a_voter_keeps_its_place(keys, tmp_path: Path) -> None:
    """Also after a restart, when it votes no longer, as it was left out of all rounds."""
    path, peers = tmp_path / "offences.json", list(keys)
    Offences(SWARM, Circle(peers[:3]), path).take(proofs_of(keys))
    Offences(SWARM, Circle(peers[3:]), path).take(proofs_of(keys))
    assert set(Offences(SWARM, Circle(), path).proofs) == set(peers[:3])


def test_a_damaged_file_is_set_aside(keys, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It ends no start, nobody is left out because of it, and what comes then is kept."""
    path, circle = tmp_path / "offences.json", Circle(list(keys))
    Offences(SWARM, circle, path).take(proofs_of(keys))
    good = path.read_text()
    bad = [good[:-100], "", "[]", '{"voters": [], "others": ["abcd"]}', "[" * 100_000, good * 2000]
    for text in (*bad, good.replace("A", "B", 1)):
        path.write_text(text)
        started = Circle(list(keys))
        known = Offences(SWARM, started, path)
        assert (known.proofs, started.exposed, path.exists()) == ({}, set(), False)
        assert (tmp_path / "offences.json.damaged").read_text() == text
        assert "offences.json is damaged, and set aside as offences.json.damaged" in caplog.text
        known.take(proofs_of(keys))
        assert len(Offences(SWARM, Circle(), path).proofs) == len(keys)
        caplog.clear()


def test_another_swarms_file_is_set_aside(keys, tmp_path: Path) -> None:
    """Proofs are of one swarm."""
    path = tmp_path / "offences.json"
    Offences(SWARM, Circle(list(keys)), path).take(proofs_of(keys))
    assert Offences("other-0", Circle(list(keys)), path).proofs == {}
    assert not path.exists()


def test_a_folder_that_cannot_be_written(keys, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Offenders are left out all the same, and the log says that nothing is kept."""
    circle = Circle(list(keys))
    known = Offences(SWARM, circle, tmp_path / "gone" / "offences.json")
    known.take(proofs_of(keys))
    assert circle.exposed == set(keys)
    assert "is not kept" in caplog.text
