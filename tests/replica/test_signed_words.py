"""Words and links as they are signed, travel and are kept; and what nobody reads."""

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from dupt_swarm.replica import signed_words
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Acceptance, Accepted, Brought, Choice, Link, Promise, Proposal, Word
from dupt_swarm.replica.signed import sign
from dupt_swarm.replica.signed_words import LinkRecord, Words
from tests.support.signed_records import fresh_keys, id_of

SWARM, STATE, AFTER = "swarm-1", "ab" * 32, "cd" * 32
BROUGHT = [Brought("11", "1" * 64, 10), Brought("22", "2" * 64, 1 << 61)]
CHOICE = Choice(tuple(BROUGHT), left=("33",))
ACCEPTED = Accepted(2, CHOICE.id, AFTER)
KEYS = fresh_keys(3)
IDS = [id_of(key) for key in KEYS]


def words() -> Words:
    """Of one who has read nothing yet."""
    return Words(SWARM)


def said(number: int, word: Word) -> bytes:
    """It, by the owner of that key."""
    return words().sign(KEYS[number], word)


EVERY_KIND = [
    Promise(IDS[0], STATE, 0),
    Promise(IDS[0], STATE, 3, Brought(IDS[0], "1" * 64, 10), ACCEPTED, ("e" * 64, "f" * 64)),
    Promise(IDS[0], STATE, 3, None, ACCEPTED, leaves=True),
    Proposal(IDS[0], STATE, 4, CHOICE),
    Proposal(IDS[0], STATE, 0, Choice((BROUGHT[0],), weak=True)),
    Acceptance(IDS[0], STATE, 4, CHOICE.id, AFTER, ("22",)),
    Acceptance(IDS[0], STATE, 0, CHOICE.id, AFTER, weak=True),
]


@pytest.mark.parametrize("word", EVERY_KIND, ids=lambda word: type(word).__name__)
def test_what_is_said_is_read(word: Word) -> None:
    """By whoever has no key, with the name of its maker."""
    data = said(0, word)
    reader = words()
    found = reader.read(data, type(word))
    assert (found, found.signed) == (word, data)
    assert reader.read(data, type(word)) is found  # and not verified again


@pytest.mark.parametrize("word", EVERY_KIND, ids=lambda word: type(word).__name__)
def test_what_is_not_read(word: Word) -> None:
    """A word of another swarm or of another kind, however often it comes, and one that was touched."""
    data, reader = said(0, word), words()
    with pytest.raises(ValueError, match="another swarm"):
        Words("swarm-2").read(data, type(word))
    other = Acceptance if isinstance(word, Promise) else Promise
    for _ in range(2):
        with pytest.raises(ValueError, match="another kind"):
            reader.read(data, other)
        reader.read(data, type(word))
    with pytest.raises(ValueError, match="malformed"):
        reader.read(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], type(word))


@pytest.mark.parametrize(
    "change",
    [
        {"ballot": -1},
        {"ballot": True},
        {"state": "x"},
        {"refused": ["x"]},
        {"refused": ["e" * 64] * 65},
        {"brought": {"digest": "1" * 64, "tokens": 0}},
        {"accepted": {"ballot": 1, "choice": "1" * 64}},
        {"leaves": 1},
        {"more": 1},
    ],
    ids=str,
)
def test_a_malformed_word(change) -> None:
    """It is signed, and no word all the same."""
    content = {"swarm": SWARM, "state": STATE, "ballot": 1} | change
    with pytest.raises(ValueError, match="not a promise: 1 problems"):
        words().read(sign(KEYS[0], "promise", content), Promise)


def test_the_longest_proposal() -> None:
    """Of 256 contributions in a swarm of 512."""
    made = tuple(Brought("1" * 52, f"{number:064x}", 1 << 61) for number in range(256))
    word = Proposal(IDS[0], STATE, 1 << 20, Choice(made, ("1" * 52,) * 512))
    assert words().read(said(0, word), Proposal) == word
    more = replace(word, choice=Choice((*made, Brought("1" * 52, "f" * 64, 1))))
    with pytest.raises(ValidationError):
        said(0, more)


def test_so_many_words_are_remembered(monkeypatch) -> None:
    """Those that were read last."""
    monkeypatch.setattr(signed_words, "REMEMBERED_MAX", 2)
    reader, all = words(), [said(0, Promise(IDS[0], STATE, ballot)) for ballot in range(3)]
    found = [reader.read(data, Promise) for data in all]
    again = [reader.read(data, Promise) is word for data, word in zip(all[::-1], found[::-1], strict=True)]
    assert again == [True, True, False]


def link_of(*accepting: int, left: tuple[int, ...] = ()) -> Link:
    """What these have accepted, when those had left."""
    brought = [Brought(IDS[number], f"{number}" * 64, 10) for number in sorted(range(3), key=IDS.__getitem__)]
    choice = Choice(tuple(brought), tuple(sorted(IDS[number] for number in left)))

    def signed(number: int, word: Word) -> Word:
        return replace(word, signed=said(number, word))

    accepted = [signed(each, Acceptance(IDS[each], STATE, 0, choice.id, AFTER)) for each in accepting]
    leaves = [signed(each, Promise(IDS[each], STATE, 0, leaves=True)) for each in left]
    return Link(STATE, 0, choice, AFTER, tuple(leaves), tuple(accepted))  # type: ignore[arg-type]


def test_a_link_is_kept() -> None:
    """As one line, from which it is read with all its signatures, and leaves the state as before."""
    link = link_of(0, 1, left=(2,))
    line = LinkRecord.of(link).to_bytes()
    assert b"\n" not in line
    found = LinkRecord.parse(line).link(words())
    assert found == link
    assert [each.signed for each in found.acceptances] == [each.signed for each in link.acceptances]
    found.check(Electorate().after(IDS, weak=True))


def test_a_link_that_was_touched() -> None:
    """Whatever is changed in it: it cannot be read, or does not leave the state."""
    electorate = Electorate().after(IDS, weak=True)
    tree = json.loads(LinkRecord.of(link_of(0, 1)).to_bytes())
    for change in (
        {"state": "ef" * 32},
        {"after": "ef" * 32},
        {"ballot": 1},
        {"choice": tree["choice"] | {"left": [IDS[2]]}},
        {"choice": {"brought": tree["choice"]["brought"][:2]}},
        {"acceptances": tree["acceptances"][:1]},
        {"acceptances": tree["acceptances"][:1] * 2},
        {"acceptances": [tree["acceptances"][0].replace("a", "b"), tree["acceptances"][1]]},
        {"leaves": tree["acceptances"]},
        {"more": 1},
    ):
        with pytest.raises(ValueError, match=r"link|signed message|promise"):
            LinkRecord.parse(json.dumps(tree | change)).link(words()).check(electorate)
