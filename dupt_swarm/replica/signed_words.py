"""The words of `link` as their makers sign them, and links as they travel and are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, Self, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dupt_swarm import fields
from dupt_swarm.fields import Count
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.electorate import ROWS_MAX, Electorate
from dupt_swarm.replica.link import (
    BROUGHT_MAX,
    Acceptance,
    Accepted,
    Brought,
    Choice,
    Link,
    Promise,
    Proposal,
    Word,
)
from dupt_swarm.replica.signed import as_text, from_text, read_signed, sign


@lru_cache(maxsize=4096)
def _one(text: str) -> str:
    """One object for equal texts: each stands in many words of many links."""
    return text


Digest = Annotated[fields.Digest, AfterValidator(_one)]
PeerId = Annotated[fields.PeerId, AfterValidator(_one)]

REFUSED_MAX = 64
# Of a member's words each comes again with every report and answer, until the state is left.
REMEMBERED_MAX = 4096

Signed = Annotated[str, Field(pattern="^[A-Za-z0-9+/=]*$", max_length=110_000)]  # a message in base 64
Peers = Annotated[tuple[PeerId, ...], Field(max_length=ROWS_MAX, strict=False)]  # JSON has lists
W = TypeVar("W", bound=Word)


class Plain(BaseModel):
    """A part of what travels: nothing more, and nothing of another type."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class _Content(Plain, ABC):
    """What a word says, besides who says it in which swarm: its fields are called as those of the word."""

    state: Digest
    ballot: Count

    @abstractmethod
    def word(self, maker: str, signed: bytes) -> Word:
        """What it says, said by ``maker``."""


class _Contribution(Plain):
    digest: Digest
    tokens: Annotated[int, Field(ge=1, lt=1 << 62)]


class _Made(_Contribution):
    maker: PeerId


class AcceptedRecord(Plain):
    """What somebody has accepted."""

    ballot: Count
    choice: Digest
    after: Digest

    @classmethod
    def of(cls, accepted: Accepted) -> Self:
        """The record of ``accepted``."""
        return cls(ballot=accepted.ballot, choice=accepted.choice, after=accepted.after)

    @property
    def accepted(self) -> Accepted:
        """What was accepted."""
        return Accepted(self.ballot, self.choice, self.after)


class _Chosen(Plain):
    brought: Annotated[tuple[_Made, ...], Field(max_length=BROUGHT_MAX, strict=False)]
    left: Peers = ()
    weak: bool = False

    @property
    def choice(self) -> Choice:
        brought = tuple(Brought(each.maker, each.digest, each.tokens) for each in self.brought)
        return Choice(brought, self.left, self.weak)


class _Promise(_Content):
    brought: _Contribution | None = None
    accepted: AcceptedRecord | None = None
    refused: Annotated[tuple[Digest, ...], Field(max_length=REFUSED_MAX, strict=False)] = ()
    leaves: bool = False
    callable: bool = True

    def word(self, maker: str, signed: bytes) -> Promise:
        brought = self.brought
        return Promise(
            *(maker, self.state, self.ballot),
            Brought(maker, brought.digest, brought.tokens) if brought else None,
            self.accepted.accepted if self.accepted else None,
            self.refused,
            leaves=self.leaves,
            callable=self.callable,
            signed=signed,
        )


class _Proposal(_Content):
    choice: _Chosen

    def word(self, maker: str, signed: bytes) -> Proposal:
        return Proposal(maker, self.state, self.ballot, self.choice.choice, signed=signed)


class _Acceptance(_Content):
    choice: Digest
    after: Digest
    dropped: Peers = ()
    weak: bool = False

    def word(self, maker: str, signed: bytes) -> Acceptance:
        return Acceptance(maker, **dict(self), signed=signed)


KINDS: dict[type[Word], tuple[str, type[_Content]]] = {
    Promise: ("promise", _Promise),
    Proposal: ("proposal", _Proposal),
    Acceptance: ("acceptance", _Acceptance),
}


class Words:
    """Signs and reads the words of one swarm; what was read lately is not verified again."""

    def __init__(self, swarm_id: str) -> None:
        self._swarm_id = swarm_id
        self._remembering = lru_cache(REMEMBERED_MAX)(self._read)

    def sign(self, key: Ed25519PrivateKey, word: Word) -> bytes:
        """``word`` as the owner of ``key`` signs it, who is its maker; of a proposal all but its evidence."""
        kind, content_type = KINDS[type(word)]
        content = content_type.model_validate(word, from_attributes=True).model_dump(exclude_defaults=True)
        return sign(key, kind, {"swarm": self._swarm_id, **content})

    def read(self, data: bytes, type: type[W]) -> W:
        """Read a word of this type and verify its signature; a proposal comes without its evidence.

        Raises:
            ValueError: it is malformed, of another type or another swarm, or its signature is wrong.
        """
        word = self._remembering(data, *KINDS[type])
        assert isinstance(word, type)
        return word

    def _read(self, data: bytes, kind: str, content_type: type[_Content]) -> Word:
        maker, fields = read_signed(data, kind)
        if fields.pop("swarm", None) != self._swarm_id:
            raise ValueError(f"{kind} of another swarm")
        try:
            return content_type.model_validate(fields).word(maker, data)
        except ValidationError as error:
            raise ValueError(f"not a {kind}: {error.error_count()} problems") from None

    def proposal(self, data: bytes, promises: tuple[Promise, ...], basis: Proposal | None) -> Proposal:
        """Read a proposal, and give it its evidence."""
        return replace(self.read(data, Proposal), promises=promises, basis=basis)

    def read_all(self, texts: Iterable[str], type: type[W]) -> tuple[W, ...]:
        """Read several words of one type, each as `as_text` writes it."""
        found = []
        for number, text in enumerate(texts, 1):
            try:
                found.append(self.read(from_text(text), type))
            except ValueError as error:
                raise ValueError(f"{KINDS[type][0]} {number}: {error}") from error
        return tuple(found)


class Line(Plain):
    """What is kept as one line of JSON.

    Attributes:
        kind: what it is, for whoever reads one that is none.
    """

    kind: ClassVar[str]

    @classmethod
    def parse(cls, data: bytes | str) -> Self:
        """Read one that is kept.

        Raises:
            ValueError: it is malformed.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise ValueError(f"not {cls.kind}: {error.error_count()} problems") from None

    def to_bytes(self) -> bytes:
        """The line, without its end."""
        return self.model_dump_json(exclude_defaults=True).encode()


class LinkRecord(Line):
    """A link as it travels and is kept."""

    kind = "a link of rounds"

    state: Digest
    ballot: Count
    choice: _Chosen
    after: Digest
    leaves: Annotated[list[Signed], Field(max_length=ROWS_MAX)] = []
    acceptances: Annotated[list[Signed], Field(max_length=ROWS_MAX)]
    average: Digest | Literal[""] = ""

    @classmethod
    def of(cls, link: Link) -> LinkRecord:
        """The record of ``link``."""
        return cls(
            state=link.state,
            ballot=link.ballot,
            choice=_Chosen.model_validate(link.choice, from_attributes=True),
            after=link.after,
            leaves=[as_text(each.signed) for each in link.leaves],
            acceptances=[as_text(each.signed) for each in link.acceptances],
            average=link.average,
        )

    def link(self, words: Words) -> Link:
        """The link, with all signatures verified; whether it leaves a state, `Link.check` says.

        Raises:
            ValueError: one of its words cannot be read.
        """
        return Link(
            self.state,
            self.ballot,
            self.choice.choice,
            self.after,
            words.read_all(self.leaves, Promise),
            words.read_all(self.acceptances, Acceptance),
            self.average,
        )


class BeginningRecord(Line):
    """Where a chain begins, as it travels and is kept: nothing in it is signed."""

    kind = "the first line of a chain"

    round: Count
    first: Digest
    electorate: Annotated[list[list[str | int]], Field(max_length=ROWS_MAX)]

    @classmethod
    def of(cls, chain: Chain) -> BeginningRecord:
        """Where ``chain`` begins."""
        electorate = chain.electorate_of(chain.first)
        return cls(round=chain.begins, first=chain.first, electorate=electorate.to_json())

    @property
    def chain(self) -> Chain:
        """A chain that begins there, without a link.

        Raises:
            ValueError: the electorate is none.
        """
        return Chain(self.first, Electorate.parse(self.round, self.electorate))
