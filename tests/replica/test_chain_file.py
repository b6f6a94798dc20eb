"""The chain of rounds on disk: what is kept of it, and what a damaged file says."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dupt_swarm.errors import FileError
from dupt_swarm.replica import chain_file
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.signed_words import Words
from tests.support.kept_rounds import KeptRounds
from tests.support.signed_records import fresh_keys

KEYS = fresh_keys(3)
ROUNDS = 4


@pytest.fixture(scope="module")
def kept(make_manifest) -> KeptRounds:
    """Rounds of three: of all, of two, of two when the third has left, and a weak one."""
    rounds = KeptRounds(make_manifest(), KEYS, electing=3)
    rounds.end_round()
    rounds.end_round([0, 1])
    rounds.end_round([0, 1], left=[2])
    rounds.end_round([2], weak=True)
    assert len(rounds.links) == ROUNDS
    return rounds


@pytest.fixture
def file(kept, tmp_path) -> ChainFile:
    """One in which all rounds are."""
    found = ChainFile(tmp_path / "chain", Words(kept.manifest.swarm_id))
    found.write(kept.chain())
    return found


def again(file: ChainFile, kept: KeptRounds) -> Chain:
    """What a process that has read nothing yet finds."""
    return ChainFile(file.path, Words(kept.manifest.swarm_id)).load()


def states_of(chain: Chain) -> list[str]:
    return [chain.first, *(link.after for link in chain.links)]


def test_what_is_kept(file, kept) -> None:
    """All links with their signatures, the electorate of each state, and a line for each."""
    chain = again(file, kept)
    assert (chain.first, chain.links) == (kept.states[0].digest, kept.links)
    assert [chain.electorate_of(state.digest) for state in kept.states] == [
        state.electorate for state in kept.states
    ]
    signed = [[each.signed for each in (*link.leaves, *link.acceptances)] for link in chain.links]
    assert signed == [[each.signed for each in (*link.leaves, *link.acceptances)] for link in kept.links]
    assert file.path.read_bytes().count(b"\n") == 1 + ROUNDS
    assert [each.name for each in file.path.parent.iterdir()] == [file.path.name]


def test_what_a_link_takes_in_memory(file, kept, monkeypatch) -> None:
    """Not more than what it says: a digest or a peer id is one object, and what a check works out is gone."""
    monkeypatch.setattr(chain_file, "ThreadPoolExecutor", lambda: ThreadPoolExecutor(1))
    chain = again(file, kept)
    for before, link in zip(states_of(chain), chain.links, strict=False):
        assert not any(hasattr(each, "__dict__") for each in (link, *link.words, *link.choice.brought))
        assert {id(link.state), *(id(each.state) for each in link.words)} == {id(before)}
        assert {id(each.after) for each in link.acceptances} == {id(link.after)}
    makers = [each.maker for link in chain.links for each in link.choice.brought]
    assert len(set(map(id, makers))) == len(set(makers)) == len(KEYS)
    for state in states_of(chain):
        assert set(vars(chain.electorate_of(state))) == {"round", "services"}


def test_links_are_read_batch_by_batch(file, kept, monkeypatch) -> None:
    """None is lost between two, and a damaged one is named by its round."""
    for size in range(1, 2 + ROUNDS):
        monkeypatch.setattr(chain_file, "BATCH", size)
        assert again(file, kept).links == kept.links
    lines = file.path.read_bytes().splitlines(keepends=True)
    file.path.write_bytes(b"".join([*lines[:ROUNDS], b"{}\n"]))
    for size in range(1, 2 + ROUNDS):
        monkeypatch.setattr(chain_file, "BATCH", size)
        with pytest.raises(ValueError, match=f"chain: the link of round {1 + ROUNDS}: "):
            again(file, kept)


def test_what_is_appended(file, kept) -> None:
    """Link by link, it is the file that was written at once."""
    whole = file.path.read_bytes()
    file.write(kept.chain(0))
    assert states_of(again(file, kept)) == [kept.states[0].digest]
    file.append(kept.links[:1])
    file.append([])
    file.append(kept.links[1:])
    assert file.path.read_bytes() == whole


def test_a_last_line_that_was_not_written_to_its_end(file, kept) -> None:
    """Wherever it was cut off: the rounds before it are there."""
    data = file.path.read_bytes()
    start = data[:-1].rindex(b"\n") + 1
    for end in (start, start + 1, (start + len(data)) // 2, len(data) - 1):
        file.path.write_bytes(data[:end])
        assert again(file, kept).links == kept.links[:-1]


def test_a_file_that_ends_in_its_first_line(file, kept) -> None:
    """It does not say where it begins."""
    data = file.path.read_bytes()
    for end in (0, 1, data.index(b"\n")):
        file.path.write_bytes(data[:end])
        with pytest.raises(ValueError, match="chain: it does not say where it begins"):
            again(file, kept)


@pytest.mark.parametrize("bit", [1, 128])
@pytest.mark.parametrize("line", range(1, 1 + ROUNDS))
def test_a_damaged_line_is_named(file, kept, line: int, bit: int) -> None:
    """By the round of the state to which it leads."""
    lines = file.path.read_bytes().splitlines(keepends=True)
    for place in (0, len(lines[line]) // 2, len(lines[line]) - 20):
        damaged = bytearray(lines[line])
        damaged[place] ^= bit
        file.path.write_bytes(b"".join([*lines[:line], bytes(damaged), *lines[line + 1 :]]))
        with pytest.raises(ValueError, match=f"chain: the link of round {1 + line}: "):
            again(file, kept)


@pytest.mark.parametrize(
    "first",
    ["", "[]", "3", "{}", '{"round": 1, "first": 2, "electorate": []}', "{", "\x80"],
    ids=["empty", "list", "number", "nothing", "no digest", "no JSON", "no text"],
)
def test_a_damaged_first_line(file, kept, first: str) -> None:
    """It is a ValueError with the file's name."""
    _, *links = file.path.read_bytes().splitlines(keepends=True)
    file.path.write_bytes(b"".join([first.encode("latin-1") + b"\n", *links]))
    with pytest.raises(ValueError, match="chain: it does not say where it begins"):
        again(file, kept)


def test_an_electorate_that_was_touched(file, kept) -> None:
    """The links do not leave its state: one who was not of it has accepted them."""
    head, *links = file.path.read_bytes().splitlines(keepends=True)
    tree = json.loads(head)
    tree["electorate"] = [["1", 9, 1, 1], ["2", 9, 1, 1]]
    file.path.write_bytes(b"".join([json.dumps(tree).encode() + b"\n", *links]))
    with pytest.raises(ValueError, match=r"link of round 2: .* less than a quorum"):
        again(file, kept)


def test_a_line_that_is_missing_or_comes_twice(file, kept) -> None:
    """Then the next one leaves another state."""
    head, first, second, *rest = file.path.read_bytes().splitlines(keepends=True)
    file.path.write_bytes(b"".join([head, first, *rest]))
    with pytest.raises(ValueError, match=r"link of round 3: .* one is missing"):
        again(file, kept)
    file.path.write_bytes(b"".join([head, first, second, second, *rest]))
    assert again(file, kept).links == kept.links  # the same again says nothing else


def test_links_of_another_swarm(file) -> None:
    """What is signed there is not read here."""
    with pytest.raises(ValueError, match=r"link of round 2: .* of another swarm"):
        ChainFile(file.path, Words("another")).load()


@pytest.mark.parametrize("rounds", range(1 + ROUNDS))
def test_cut_to_a_state(file, kept, rounds: int) -> None:
    """What comes after it is forgotten, in memory and on disk, and can be followed again."""
    chain = again(file, kept)
    chain.cut(kept.states[rounds].digest)
    assert (chain.head, chain.links) == (kept.states[rounds].digest, kept.links[:rounds])
    assert chain.electorate == kept.states[rounds].electorate
    assert [state.digest in chain for state in kept.states] == [
        place <= rounds for place in range(1 + ROUNDS)
    ]
    file.write(chain)
    assert states_of(again(file, kept)) == states_of(chain)
    chain.follow(kept.links[rounds:])
    assert chain.links == kept.links


def test_a_file_that_cannot_be_written(kept, tmp_path) -> None:
    """It is a FileError when it is written, and an OSError when something comes to it."""
    nowhere = ChainFile(tmp_path / "none" / "chain", Words(kept.manifest.swarm_id))
    with pytest.raises(FileError, match="cannot be written"):
        nowhere.write(kept.chain())
    with pytest.raises(OSError, match="none"):
        nowhere.append(kept.links)
    with pytest.raises(OSError, match="none"):
        nowhere.load()


def test_writing_keeps_the_old_file_until_the_new_one_is_there(file, kept, monkeypatch) -> None:
    """A disk that fills up takes nothing away."""

    def full(*_given: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    before = file.path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        with pytest.raises(FileError, match="No space left"):
            file.write(kept.chain(1))
    assert file.path.read_bytes() == before
