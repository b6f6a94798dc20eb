"""The chain of one peer, in memory and on disk, over its starts, branches and full disks."""

import asyncio
import logging
from pathlib import Path

import pytest

from dupt_swarm.network.rounds.history import History
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.signed_words import Words
from dupt_swarm.replica.state import ReplicaState
from tests.support.kept_rounds import KeptRounds
from tests.support.signed_records import fresh_keys

KEYS = fresh_keys(3)
ROUNDS = 3


@pytest.fixture(scope="module")
def kept(make_manifest) -> KeptRounds:
    """Strong rounds of three."""
    return KeptRounds(make_manifest(), KEYS, electing=3).go_on(ROUNDS)


@pytest.fixture(scope="module")
def weak(kept) -> KeptRounds:
    """After the first of them one of the three went on alone."""
    return kept.branch(1).go_on(ROUNDS + 1, [2], weak=True)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "chain"


def history(kept: KeptRounds, state: ReplicaState, path: Path) -> History:
    """Of a peer that is started with this state."""
    return History(state, Words(kept.manifest.swarm_id), path)


def on_disk(kept: KeptRounds, path: Path) -> Chain:
    """What is kept there."""
    return ChainFile(path, Words(kept.manifest.swarm_id)).load()


def afters(links: list[Link]) -> list[str]:
    return [link.after for link in links]


def test_a_peer_that_is_started_again(kept, path) -> None:
    """It has the links of the rounds before, and goes on with them."""
    first = history(kept, kept.states[0], path)
    assert (first.chain.head, first.chain.links) == (kept.states[0].digest, [])
    assert first.follow(kept.links[:1]) == first.follow(kept.links[1:2]) == []
    again = history(kept, kept.states[2], path)
    assert (again.chain.first, again.chain.links) == (kept.states[0].digest, kept.links[:2])
    again.follow(kept.links[2:])
    assert again.chain.links == on_disk(kept, path).links == kept.links
    assert again.from_state(kept.states[1].digest) == kept.links[1]
    assert again.from_state(kept.states[3].digest) is None


def test_a_file_that_was_loaded_whole_is_not_written_again(kept, path) -> None:
    """What comes is appended to it; one whose last line is torn is written, or that line would damage it."""
    history(kept, kept.states[0], path).follow(kept.links[:2])
    written = path.stat().st_ino, path.stat().st_mtime_ns
    again = history(kept, kept.states[2], path)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == written
    again.follow(kept.links[2:])
    assert again.chain.links == on_disk(kept, path).links == kept.links
    path.write_bytes(path.read_bytes()[:-9])
    torn = history(kept, kept.states[2], path)
    torn.follow(kept.links[2:])
    assert on_disk(kept, path).links == kept.links


def test_the_checkpoint_is_older_than_the_chain(kept, path) -> None:
    """It ends where the peer is, in memory and on disk: the others tell again what comes after."""
    history(kept, kept.states[0], path).follow(kept.links)
    again = history(kept, kept.states[1], path)
    assert again.chain.head == kept.states[1].digest
    assert again.chain.links == on_disk(kept, path).links == kept.links[:1]
    assert again.chain.electorate == kept.states[1].electorate
    again.follow(kept.links[1:])
    assert again.chain.links == on_disk(kept, path).links == kept.links


def test_a_state_to_which_the_chain_does_not_lead(kept, path, weak) -> None:
    """It begins anew there."""
    history(kept, kept.states[0], path).follow(kept.links)
    again = history(kept, weak.states[3], path)
    assert (again.chain.first, again.chain.links) == (weak.states[3].digest, [])
    assert again.chain.electorate == weak.states[3].electorate
    assert on_disk(kept, path).first == weak.states[3].digest


@pytest.mark.parametrize("data", [b"", b"{", b"\x80\n", b'{"round":1}\n'], ids=repr)
def test_a_damaged_file(kept, path, caplog, data: bytes) -> None:
    """It ends no start: the chain begins anew, and says so."""
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        found = history(kept, kept.states[1], path)
    assert "begins anew" in caplog.text
    found.follow(kept.links[1:])
    assert on_disk(kept, path).links == kept.links[1:]


def test_a_line_that_was_not_written_to_its_end(kept, path) -> None:
    """What comes next does not go on in it."""
    history(kept, kept.states[0], path).follow(kept.links)
    path.write_bytes(path.read_bytes()[:-5])
    again = history(kept, kept.states[2], path)
    again.follow(kept.links[2:])
    assert on_disk(kept, path).links == kept.links


def test_a_branch_that_loses_is_gone_from_disk_too(kept, weak, path) -> None:
    """And given back; what is not to be followed changes nothing."""
    found = history(kept, kept.states[0], path)
    found.follow(weak.links)
    assert found.follow(kept.links) == weak.links[1:]
    assert found.chain.links == on_disk(kept, path).links == kept.links
    before = path.read_bytes()
    assert found.follow(weak.links) == []
    with pytest.raises(ValueError, match="do not know"):
        found.follow(weak.links[2:])
    assert path.read_bytes() == before


def test_what_was_left(kept, weak, path) -> None:
    """A branch that lost is known by its links, from where it parted; so is a branch of a branch."""
    found = history(kept, kept.states[0], path)
    found.follow(weak.links)
    assert found.left_up_to(weak.states[3].digest) == []  # it is where we are
    twig = weak.branch(3)
    for number in range(2):
        twig.end_round([2], weak=True, number=20 + number)
    found.chain = twig.chain()
    assert found.follow(weak.links) == twig.links[3:]
    assert found.follow(kept.links) == weak.links[1:]
    assert found.left_up_to(weak.states[3].digest) == weak.links[1:3]
    assert found.left_up_to(twig.states[-1].digest) == [*weak.links[1:3], *twig.links[3:]]
    assert found.left_up_to(kept.states[2].digest) == found.left_up_to("0" * 64) == []


def test_a_peer_that_was_at_a_state_of_a_branch_that_was_left(kept, weak, path) -> None:
    """Started again before it got to the other one, it finds back."""
    for rounds in (3, len(weak.links)):
        path.unlink(missing_ok=True)
        first = history(kept, kept.states[0], path)
        first.follow(weak.links)
        first.follow(kept.links)
        again = history(kept, weak.states[rounds], path)
        assert again.chain.links == on_disk(kept, path).links == weak.links[:rounds]
        assert again.follow(kept.links) == weak.links[1:rounds]
        assert again.chain.links == on_disk(kept, path).links == kept.links


def test_a_chain_that_begins_earlier(kept, path) -> None:
    """Who has joined in the middle may learn what was before, and keeps it."""
    found = history(kept, kept.states[2], path)
    asyncio.run(found.begin(kept.chain(2)))
    found.follow(kept.links[2:])
    assert found.chain.first == on_disk(kept, path).first == kept.states[0].digest
    assert on_disk(kept, path).links == kept.links


def torn(self: ChainFile, links: list[Link]) -> None:
    """In place of `ChainFile.append`: the disk is full within a line."""
    with self.path.open("ab") as file:
        file.write(b'{"state":"' + links[0].state[:9].encode())
    raise OSError(28, "No space left on device")


def test_a_disk_that_was_full(kept, path, monkeypatch, caplog) -> None:
    """Rounds go on; as soon as there is room, what is kept has no gap."""
    found = history(kept, kept.states[0], path)
    found.follow(kept.links[:1])
    with monkeypatch.context() as patched:
        patched.setattr(ChainFile, "append", torn)
        found.follow(kept.links[1:2])
    assert "is not kept" in caplog.text
    assert found.chain.links == kept.links[:2]
    found.follow(kept.links[2:])
    assert on_disk(kept, path).links == kept.links


def test_a_branch_that_was_left_while_the_disk_was_full(kept, weak, path, monkeypatch) -> None:
    """Who is started again at one of its states finds what was kept of it, though its last line is torn."""
    found = history(kept, kept.states[0], path)
    found.follow(weak.links[:3])
    with monkeypatch.context() as patched:
        patched.setattr(ChainFile, "append", torn)
        found.follow(weak.links[3:])
    found.follow(kept.links)
    again = history(kept, weak.states[3], path)
    assert again.chain.links == on_disk(kept, path).links == weak.links[:3]


def test_a_folder_that_is_not_there(kept, path, caplog) -> None:
    """A chain that cannot be kept at all is no reason to stop."""
    found = history(kept, kept.states[0], path.parent / "none" / "chain")
    found.follow(kept.links)
    assert found.chain.links == kept.links
    assert "not kept" in caplog.text
