"""Which proofs a peer keeps, and against which peers."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.network.members.identity import short_name
from dupt_swarm.network.rounds import offences
from dupt_swarm.network.rounds.offences import Offences
from dupt_swarm.replica.proof import Proof
from tests.support.lies import denied, keys_by_id, longest, proposed_twice

SWARM = "test-0"
PLACES = 3


@pytest.fixture(scope="module")
def keys() -> dict[str, Ed25519PrivateKey]:
    """Of peers, by their ids."""
    return keys_by_id(2 * PLACES)


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are three."""
    monkeypatch.setattr(offences, "KEPT_MAX", PLACES)


class Circle:
    """Whom a peer deals with, and what it does with who is exposed."""

    def __init__(self, voters=(), mates=()) -> None:
        self.voters, self.mates = list(voters), list(mates)
        self.exposed: set[str] = set()

    def expose(self, peer_id: str) -> None:
        self.exposed.add(peer_id)


def proofs_of(keys) -> list[Proof]:
    """One against each of the peers, of two kinds."""
    return [(denied if place % 2 else proposed_twice)(SWARM, key) for place, key in enumerate(keys.values())]


def test_a_peer_that_is_named_by_a_proof_is_left_out(keys, tmp_path: Path) -> None:
    """Whether this peer saw it or was told."""
    first, second, *_ = keys
    circle = Circle(voters=[first, second])
    known = Offences(SWARM, circle, tmp_path / "offences.json")
    known.expose(proofs_of(keys)[:1])
    for _ in range(2):
        known.take(proofs_of(keys)[:2])
    assert circle.exposed == {first, second} == set(known.proofs)


def test_strangers_take_no_places(keys, tmp_path: Path) -> None:
    """Keys cost nothing: proofs against who is neither a voter nor a mate are not taken from others."""
    voter, mate, *strangers = keys
    circle = Circle([voter], [mate])
    known = Offences(SWARM, circle, tmp_path / "offences.json")
    assert set(known.wanted(list(map(short_name, keys)))) == {short_name(voter), short_name(mate)}
    known.take(proofs_of(keys))
    assert circle.exposed == {voter, mate}
    assert known.wanted(list(map(short_name, keys))) == []
    assert known.find([short_name(mate), short_name(strangers[0])]) == [known.proofs[mate]]


@pytest.mark.usefixtures("few_places")
def test_when_all_places_are_taken(keys, tmp_path: Path) -> None:
    """A voter takes the place of the newest who never was one; nobody takes a voter's."""
    peers = list(keys)
    circle = Circle(mates=peers)
    known = Offences(SWARM, circle, tmp_path / "offences.json")
    known.take(proofs_of(keys)[:4])
    assert list(known.proofs) == peers[:3]
    assert circle.exposed == set(peers[:4])  # which costs no place
    assert known.wanted([short_name(peers[4])]) == []
    circle.voters = [peers[2], peers[4]]
    known.take(proofs_of(keys))
    assert set(known.proofs) == {peers[0], peers[2], peers[4]}
    circle.voters = [peers[3]]
    assert known.wanted([short_name(peer) for peer in peers[3:]]) == [short_name(peers[3])]
    circle.voters = [peers[3], peers[5]]
    known.take(proofs_of(keys))
    assert set(known.proofs) == {peers[2], peers[3], peers[4]}
    assert known.wanted([short_name(peers[5])]) == []


def test_proofs_are_kept(keys, tmp_path: Path) -> None:
    """After a restart offenders are left out from the beginning, before anybody else is known."""
    path, circle = tmp_path / "offences.json", Circle(voters=list(keys)[:2])
    Offences(SWARM, circle, path).take(proofs_of(keys)[:1])
    Offences(SWARM, circle, path).expose(proofs_of(keys)[5:])
    restarted = Circle()
    known = Offences(SWARM, restarted, path)
    first, *_, last = keys
    assert set(known.proofs) == restarted.exposed == {first, last}
    for offender, proof in known.proofs.items():
        assert Proof.read(proof.data, SWARM).offender == offender
    assert [each.name for each in tmp_path.iterdir()] == ["offences.json"]


@pytest.mark.usefixtures("few_places")
def test_a_peer_that_was_a_voter_keeps_its_place(keys, tmp_path: Path) -> None:
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


def test_the_longest_proofs_are_kept(tmp_path: Path) -> None:
    """As many as there are places: what is written is read again."""
    path, keys = tmp_path / "offences.json", keys_by_id(offences.KEPT_MAX)
    Offences(SWARM, Circle(list(keys)), path).take([longest(SWARM, key) for key in keys.values()])
    assert Offences(SWARM, Circle(), path).proofs.keys() == keys.keys()
