"""What a task declares, and the tokens that its input transformations add (section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from dupt_swarm.errors import UsageError

AnswerKind = Literal["label", "score", "choice"]


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of start ⟨s⟩, delimiter $ and extract ⟨e⟩, which follow the tokenizer's."""

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


class Task:
    """One task: its name, how its examples become sequences, what answers they have, what its card says.

    What is said here is plain data, for the manifest, the commands and the card; nothing here computes.
    One sequence for each text of a row, or for each pair, is the usual; `sequences` may make others.
    """

    kind: ClassVar[str]
    """What `objective.kind` calls it."""
    columns: ClassVar[tuple[str, ...]]
    """The names of the inputs, in a table of examples."""
    forms: ClassVar[Mapping[str, str]] = {}
    """What those of them are that are no plain text, for who writes the table."""
    texts_at_once: ClassVar[int]
    """How many texts a sequence holds; they share the context."""
    answers: ClassVar[tuple[AnswerKind, ...]]
    """What answers may be. With ``choice`` W_y reads each sequence by itself, otherwise their sum."""
    hub_name: ClassVar[str]
    """The pipeline of Hugging Face's hub."""
    input: ClassVar[str]
    """The input transformation in a sentence of the card."""
    example: ClassVar[str]
    """An answer in Python, from ``state(*texts)``, which is h_l^m, and ``score(h)``, which is h·W_y."""

    @property
    def needs_labels(self) -> bool:
        """Whether only labels can be its answers, so that the manifest must name them."""
        return self.answers == ("label",)

    def texts(self, row: Mapping[str, object]) -> list[str]:
        """The texts of a row, to be tokenised one by one.

        Raises:
            ValueError: an input is not what it should be; says which, and what it should be.
        """
        return [text_of(row, name) for name in self.columns]

    def sequences(self, texts: list[list[int]], special: SpecialTokens) -> list[list[int]]:
        """The sequences of an example, from the tokens of its `texts`, which are short enough."""
        return [special.around(*texts)]


def text_of(row: Mapping[str, object], name: str) -> str:
    """The text in column ``name``; null counts as empty.

    Raises:
        ValueError: it is not text.
    """
    value = row[name]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"`{name}` is {type(value).__name__}, not text")
    return value


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
