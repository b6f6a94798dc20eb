"""The tokens that a task adds: start ⟨s⟩, delimiter $ and extract ⟨e⟩ (section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from dupt_swarm.errors import UsageError


@dataclass(frozen=True)
class SpecialTokens:
    """Their ids, which follow the tokenizer's."""

    start: int
    delimiter: int
    extract: int

    @classmethod
    def after(cls, vocabulary_size: int) -> SpecialTokens:
        """Those of a model whose tokenizer has ``vocabulary_size`` ids."""
        return cls(vocabulary_size, vocabulary_size + 1, vocabulary_size + 2)

    def around(self, *texts: list[int]) -> list[int]:
        """⟨s⟩ text ⟨e⟩, or ⟨s⟩ first $ second ⟨e⟩."""
        joined = list(texts[0])
        for text in texts[1:]:
            joined += [self.delimiter, *text]
        return [self.start, *joined, self.extract]


def room(context_length: int, texts: int) -> int:
    """How many tokens each of ``texts`` may have in one sequence; what is longer is cut at its end.

    Equal shares whatever the other text's length, as in the code that was published with GPT-1.

    Raises:
        UsageError: there is none.
    """
    share = (context_length - texts - 1) // texts
    if share < 1:
        raise UsageError(
            f"a context of {context_length} tokens has no room for {texts} texts and {texts + 1} special "
            "tokens; use a model with a longer context"
        )
    return share
