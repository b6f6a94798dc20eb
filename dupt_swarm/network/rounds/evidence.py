"""What each peer has said about one state: words that contradict each other are proof against their maker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from dupt_swarm.replica.link import Word, contradict

WORDS_MAX = 64  # of one maker and kind; those of a ballot of which it says much, or a late one, give way
NEW_MAX = 32  # of one maker in a message; each is compared with all others, while everybody waits

Expose = Callable[[Word, Word], None]
"""Gets two words of one peer that no honest one would have signed both."""


class Evidence:
    """The words about one state, of those whose word counts."""

    def __init__(self, makers: Collection[str], expose: Expose) -> None:
        """``makers`` are their ids; ``expose`` gets a proof against each that lies, once."""
        self._words: dict[str, dict[Word, None]] = {maker: {} for maker in makers}
        self._expose = expose

    def note(self, words: Iterable[Word]) -> None:
        """Note words of a message; whoever contradicts itself by one of them is exposed.

        What is too much at once comes again: each message repeats all that was said.
        """
        new = Counter[str]()
        for word in words:
            known = self._words.get(word.maker)
            if known is None or word in known or new[word.maker] == NEW_MAX:
                continue
            new[word.maker] += 1
            other = next((each for each in known if contradict(each, word)), None)
            if other is not None:
                del self._words[word.maker]
                self._expose(other, word)
                continue
            known[word] = None
            alike = [each for each in known if type(each) is type(word)]
            if len(alike) > WORDS_MAX:
                of_ballot = Counter(each.ballot for each in alike)
                del known[max(alike, key=lambda each: (of_ballot[each.ballot], each.ballot))]
