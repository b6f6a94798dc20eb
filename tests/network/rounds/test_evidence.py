"""Who has said what about one state: proof against whoever contradicts itself, once, and no more."""

from dataclasses import replace

import pytest

from dupt_swarm.network.rounds import evidence
from dupt_swarm.network.rounds.evidence import NEW_MAX, WORDS_MAX, Evidence
from dupt_swarm.network.rounds.reports import Report
from dupt_swarm.replica.link import Accepted, Word, contradict
from tests.support.words import acceptance, brought, choice, promise, proposal

ALL, THREE = choice("abcde"), choice("abc")


class Noting:
    """Evidence, and what it has exposed."""

    def __init__(self, makers: str = "abcde") -> None:
        self.proofs: list[tuple[Word, Word]] = []
        self.evidence = Evidence(makers, lambda one, other: self.proofs.append((one, other)))

    def note(self, *words: Word) -> list[tuple[Word, Word]]:
        """The proofs so far, when these were seen one by one."""
        for word in words:
            self.evidence.note([word])
        return self.proofs


def pair(one: Word, other: Word, id: str) -> object:
    return pytest.param(one, other, id=id)


LIES = [
    pair(acceptance("a", ALL), acceptance("a", THREE), "two acceptances in a ballot"),
    pair(acceptance("a", ALL), acceptance("a", ALL, after="ef" * 32), "two states of one choice"),
    pair(proposal(map(promise, "abc"), THREE), proposal(map(promise, "abcde"), ALL), "two proposals"),
    pair(acceptance("a", ALL), promise("a", 1), "denied what it had accepted"),
    pair(replace(promise("a"), refused=(ALL.id,)), acceptance("a", ALL, 1), "accepted what it had refused"),
    pair(promise("a", leaves=True), acceptance("a", ALL), "accepted when it had left"),
    pair(promise("a", leaves=True), promise("a", 1), "promised when it had left"),
]


@pytest.mark.parametrize(("one", "other"), LIES)
@pytest.mark.parametrize("turned", [False, True])
def test_words_that_contradict_each_other(one: Word, other: Word, turned: bool) -> None:
    """In whatever order, and whatever was said between: they are the proof, which is given once."""
    words = [other, one] if turned else [one, other]
    between = acceptance("b", ALL), promise("c", 3), promise("d", leaves=True)
    noting = Noting()
    assert noting.note(words[0], *between, words[0]) == []
    assert noting.note(words[1]) == [(words[0], words[1])]
    assert noting.note(*words, acceptance(one.maker, choice("de"))) == [(words[0], words[1])]


def test_both_at_once() -> None:
    """As a report has them that carries the words of several."""
    noting = Noting()
    noting.evidence.note([promise("b"), acceptance("a", ALL), promise("a"), acceptance("a", THREE)])
    assert noting.proofs == [(acceptance("a", ALL), acceptance("a", THREE))]


def test_honest_words_are_no_proof() -> None:
    """Ballot after ballot: what was accepted is told, and a weak link comes after the last word."""
    known = Accepted(0, ALL.id, "cd" * 32)
    honest = [
        *(promise("a"), acceptance("a", ALL), promise("a", 1, known), acceptance("a", ALL, 1)),
        promise("a", 2, replace(known, ballot=1)),
        replace(promise("a", 2, replace(known, ballot=1), leaves=True), brought=promise("a").brought),
        acceptance("a", choice("ab", weak=True), 0),
        acceptance("a", choice("abc", weak=True), 1),
    ]
    assert Noting().note(*honest, *honest[::-1]) == []


def test_each_liar_is_exposed_by_itself() -> None:
    """What one has said says nothing of another."""
    noting = Noting()
    noting.note(acceptance("a", ALL), acceptance("b", THREE), acceptance("c", choice("de")))
    assert noting.proofs == []
    noting.note(acceptance("b", ALL), acceptance("c", ALL))
    assert [one.maker for one, _ in noting.proofs] == ["b", "c"]


def test_words_of_strangers_are_not_kept() -> None:
    """They decide nothing, and there may be any number of them."""
    noting = Noting("ab")
    assert noting.note(acceptance("x", ALL), acceptance("x", THREE)) == []
    assert noting.evidence._words.keys() == {"a", "b"}


def test_memory_is_bounded(monkeypatch) -> None:
    """Words without end of one maker are not kept without end, nor do they hide what another says."""
    noting = Noting()
    noting.note(*(promise("a", ballot) for ballot in range(2 * WORDS_MAX)))
    assert len(noting.evidence._words["a"]) == WORDS_MAX
    assert noting.note(acceptance("b", ALL), acceptance("b", THREE)) != []
    noting = Noting()
    noting.note(*(acceptance("a", ALL, ballot) for ballot in range(9, 9 + WORDS_MAX)), acceptance("a", ALL))
    assert noting.note(acceptance("a", THREE)) != []
    noting = Noting()
    noting.note(*(replace(promise("a"), brought=brought("a", tokens)) for tokens in range(WORDS_MAX)))
    assert noting.note(acceptance("a", ALL), acceptance("a", THREE)) != []
    noting = Noting()
    noting.note(*(replace(promise("a"), brought=brought("a", tokens)) for tokens in range(WORDS_MAX)))
    assert noting.note(promise("a", 1), acceptance("a", ALL)) != []
    monkeypatch.setattr(evidence, "WORDS_MAX", 2)
    assert len(Noting().note(acceptance("a", ALL), acceptance("a", THREE), acceptance("a", ALL, 1))) == 1


def test_a_message_costs_little(monkeypatch) -> None:
    """However many words of one maker are in it; those that are left out are noted when they come again."""
    noting, compared = Noting(), list[Word]()

    def noted(one: Word, other: Word) -> bool:
        compared.append(other)
        return contradict(one, other)

    monkeypatch.setattr(evidence, "contradict", noted)
    words = [replace(promise("a"), brought=brought("a", tokens)) for tokens in range(WORDS_MAX)]
    for known in (NEW_MAX, 2 * NEW_MAX):
        noting.evidence.note([*words, *words, acceptance("b", ALL)])
        assert len(noting.evidence._words["a"]) == known
    assert len(compared) == WORDS_MAX * (WORDS_MAX - 1) / 2


def test_words_of_a_leave_hide_no_others() -> None:
    """Whoever has left may show any number of another's words: what is proposed is looked at before them."""
    noting, first, second = Noting(), proposal([], ALL), proposal([], THREE)
    liar = first.maker
    junk = [replace(promise(liar), brought=brought(liar, tokens)) for tokens in range(4 * WORDS_MAX)]
    left = Report(promise("c", leaves=True), replace(proposal(junk, THREE), maker="c"))
    for said in (first, second):
        for _ in range(4):  # nothing else is kept of so many
            noting.evidence.note(Report(promise("b"), basis=said, leaves=(left,)).words)
    assert noting.proofs == [(first, second)]
