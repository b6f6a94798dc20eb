"""Who has given what, counted from the links of a chain, as by hand."""

from dataclasses import replace
from hashlib import sha256

from dupt_swarm.replica.chain import Chain, counted_in
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.ledger import Bookkeeping, Entry, Ledger
from dupt_swarm.replica.link import Brought, Choice, Link
from tests.support.words import STATE, acceptance

Round = dict[str, int]  # tokens by who brought them


def links(*rounds: Round, first: str = STATE, dropped: str = "", weak: bool = True) -> list[Link]:
    """One for each round, accepted by all who brought something; ``dropped``: in vain, in the last."""
    found, state = [], first
    for number, tokens in enumerate(rounds, 1):
        brought = tuple(Brought(maker, f"{state}{maker}", tokens[maker]) for maker in sorted(tokens))
        chosen = Choice(brought, (), weak)
        gone = (dropped,) if dropped and number == len(rounds) else ()
        after = sha256(f"{state} {chosen.id} {gone}".encode()).hexdigest()
        said = tuple(
            replace(acceptance(maker, chosen, after=after), state=state, dropped=gone) for maker in tokens
        )
        found.append(Link(state, 0, chosen, after, (), said))
        state = after
    return found


def chain_of(found: list[Link], first: str = STATE, electorate: Electorate | None = None) -> Chain:
    chain = Chain(first, electorate or Electorate())
    chain.follow(found)
    return chain


def test_joins_and_leaves() -> None:
    """One gives from the first round to the last, one leaves and comes back, one comes late."""
    chain = chain_of(
        links({"ada": 10, "bob": 30}, {"ada": 10, "bob": 30}, {"ada": 20}, {"ada": 20, "cid": 5, "bob": 1})
    )
    ledger = Bookkeeping().read(chain)
    assert ledger == Ledger(
        0,
        4,
        (Entry("bob", 61, 3, 0, 1, 4), Entry("ada", 60, 4, 0, 1, 4), Entry("cid", 5, 1, 0, 4, 4)),
        weak=4,
    )
    assert (ledger.tokens, ledger.contributors) == (126, 3)
    assert [ledger.place(peer) for peer in ("ada", "bob", "cid", "eve")] == [2, 1, 3, None]
    assert ledger.of("eve") == Entry("eve")


def test_what_was_dropped_counts_for_nothing() -> None:
    """It is told apart: somebody's work was lost, or was harmful."""
    ledger = Bookkeeping().read(chain_of(links({"ada": 10}, {"ada": 10, "eve": 1000}, dropped="eve")))
    assert ledger.entries == (Entry("ada", 20, 2, 0, 1, 2), Entry("eve", 0, 0, 1, 0, 0))
    assert (ledger.tokens, ledger.contributors) == (20, 1)
    assert (ledger.place("ada"), ledger.place("eve")) == (1, None)


def test_a_maker_counts_once_in_a_round() -> None:
    """As in the state's own number of tokens; a link may name it twice."""
    [link] = links({"ada": 10})
    twice = replace(link.choice, brought=(*link.choice.brought, *link.choice.brought))
    said = tuple(replace(each, choice=twice.id) for each in link.acceptances)
    ledger = Bookkeeping().read(chain_of([replace(link, choice=twice, acceptances=said)]))
    assert ledger.entries == (Entry("ada", 10, 1, 0, 1, 1),)
    assert ledger.tokens == sum(counted_in([link]).values())


def test_it_goes_on_with_the_chain() -> None:
    """What comes to it is added; the whole is the same as if it had been counted at once."""
    rounds: list[Round] = [{"ada": 10}, {"ada": 3, "bob": 4}, {"bob": 5}, {"ada": 1}]
    every = links(*rounds)
    chain, keeping = chain_of(every[:1]), Bookkeeping()
    for number in range(1, 5):
        chain.follow(every[:number])
        assert keeping.read(chain) == Bookkeeping().read(chain_of(every[:number]))


def test_a_fork_and_a_merge() -> None:
    """What was on the branch that is left counts no more, until it is brought again."""
    common = links({"ada": 10, "bob": 10, "cid": 10})
    parted = links({"cid": 100}, {"cid": 100}, first=common[0].after)
    chain, keeping = chain_of([*common, *parted]), Bookkeeping()
    assert keeping.read(chain).of("cid") == Entry("cid", 210, 3, 0, 1, 3)
    others = links({"ada": 7, "bob": 7}, first=common[0].after)
    assert chain.follow(others) == parted
    ledger = keeping.read(chain)
    assert ledger == Bookkeeping().read(chain_of([*common, *others]))
    assert ledger.entries == (
        Entry("ada", 17, 2, 0, 1, 2),
        Entry("bob", 17, 2, 0, 1, 2),
        Entry("cid", 10, 1, 0, 1, 1),
    )
    chain.follow(links({"ada": 1, "bob": 1, "cid": 200}, first=chain.head))
    assert keeping.read(chain).of("cid") == Entry("cid", 210, 2, 0, 1, 3)


def test_a_chain_that_begins_later_says_so() -> None:
    """Who has joined counts what came since; when the past is known, all of it."""
    past, later = links({"ada": 10}, {"ada": 10}), {"ada": 10, "bob": 2}
    whole = chain_of([*past, *links(later, first=past[-1].after)])
    part = Chain(past[-1].after, whole.electorate_of(past[-1].after))
    part.follow(whole.links[2:])
    keeping = Bookkeeping()
    assert keeping.read(part) == Ledger(
        2, 3, (Entry("ada", 10, 1, 0, 3, 3), Entry("bob", 2, 1, 0, 3, 3)), weak=1
    )
    assert keeping.read(whole) == Ledger(
        0, 3, (Entry("ada", 30, 3, 0, 1, 3), Entry("bob", 2, 1, 0, 3, 3)), weak=3
    )


def test_before_the_first_round() -> None:
    """Nobody has given anything."""
    assert Bookkeeping().read(Chain(STATE, Electorate())) == Ledger(0, 0)


def test_a_peer_is_found_by_the_end_of_its_id() -> None:
    """As others show it; what is short could be anybody."""
    ledger = Ledger(0, 1, (Entry("QmAbcdefgh", 2, 1, 0, 1, 1), Entry("QmXbcdefgh", 1, 1, 0, 1, 1)))
    assert ledger.find("QmXbcdefgh") == ledger.entries[1]
    assert ledger.find("bcdefgh") == ledger.entries[0]
    assert ledger.find("defgh") is None
    assert ledger.find("zzzzzzz") is None
