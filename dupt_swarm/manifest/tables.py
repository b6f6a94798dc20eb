"""The tables of the manifest: each field is described where it is declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from dupt_swarm.fields import DIGEST
from dupt_swarm.manifest.model import ModelKind
from dupt_swarm.manifest.schedule import LEAST_GROWTH
from dupt_swarm.manifest.table import Table
from dupt_swarm.tasks import TASKS, Task
from dupt_swarm.tasks.task import AnswerKind

TITLE_LENGTH_MAX = 200
TOKENIZER_BYTES_MAX = 1 << 26  # of a tokenizer.json; that of Gemma, among the largest, has 34 MB


def _digest_or_none(value: str) -> str:
    if value and not DIGEST.fullmatch(value):
        raise ValueError("must be 64 lower-case hexadecimal digits, or empty; `dupt-peer new` fills it in")
    return value


DigestOrNone = Annotated[str, AfterValidator(_digest_or_none)]
"""A SHA-256, or a key, which has as many digits; empty: none."""


class Tokenizer(Table):
    """Which tokenizer the swarm uses."""

    sha256: str = Field(description="SHA-256 of tokenizer.json, hexadecimal")
    vocabulary_size: int = Field(ge=257, le=1 << 24, description="ids of tokenizer.json, special ones too")
    end_of_text: int = Field(default=0, ge=0, description="the id after each document; ours has 0")

    @field_validator("sha256")
    @classmethod
    def _hexadecimal(cls, value: str) -> str:
        if not DIGEST.fullmatch(value):
            raise ValueError("must be 64 lower-case hexadecimal digits; `dupt-peer new` fills it in")
        return value

    @model_validator(mode="after")
    def _end_is_a_token(self) -> Self:
        if self.end_of_text >= self.vocabulary_size:
            raise ValueError(
                f"end_of_text = {self.end_of_text} is none of the vocabulary_size = {self.vocabulary_size} "
                "ids; give the tokenizer's own"
            )
        return self


LANGUAGE, MASKED, SEQ2SEQ = "lm", "mlm", "seq2seq"
MODEL_OF: dict[str, ModelKind] = {LANGUAGE: "decoder", MASKED: "encoder", SEQ2SEQ: "encoder-decoder"}
"""The objectives beside tasks, and what model learns each; `dupt_swarm.learning.objectives` has their
classes."""
LM_WEIGHTS: dict[ModelKind, float] = {"decoder": 0.5, "encoder": 0.0, "encoder-decoder": 0.0}
"""λ of a task where nobody has chosen one: Radford et al. 2018, section 4.1; elsewhere there is no L1."""


class Objective(Table):
    """What is learned: language (L1), masked language, a text for a text, or a task: L3 = L2 + λ·L1.

    L2 = Σ log P(y | x¹…x^m), with P(y | x¹…x^m) = softmax(h_l^m·W_y); Radford et al. 2018, section 3.2.
    """

    kind: str = Field(
        default=LANGUAGE, description="`lm`, `mlm` (an encoder), `seq2seq`, or the task of fine-tuning"
    )
    labels: list[str] = Field(
        default=[], max_length=1000, description="the task's, in the order of W_y; none: a score, a choice"
    )
    lm_weight: float = Field(default=0.5, ge=0, le=100, description="λ, the weight of L1 beside a task's L2")
    head_dropout: float = Field(default=0.1, ge=0, lt=1, description="on h_l^m, before W_y")
    masked_share: float = Field(default=0.15, gt=0, le=0.9, description="mlm: of the tokens, to be predicted")
    whole_words: bool = Field(default=False, description="mlm: a word is masked as a whole, or not at all")
    nsp: bool = Field(default=False, description="mlm: also predict whether a text follows on another")
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="seq2seq: ε, of the probability for all tokens alike"
    )

    @field_validator("kind")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in (known := (*MODEL_OF, *TASKS)):
            raise ValueError(f'there is no objective "{value}"; use one of {", ".join(known)}')
        return value

    @field_validator("labels")
    @classmethod
    def _plain_labels(cls, value: list[str]) -> list[str]:
        if len(set(value)) != len(value) or not all(value):
            raise ValueError("each label needs a name of its own")
        return value

    @model_validator(mode="after")
    def _labels_fit(self) -> Self:
        task = self.task
        if self.labels and not (task and "label" in task.answers):
            raise ValueError(f'kind = "{self.kind}" takes no labels; leave them out')
        if task and (task.needs_labels or self.labels) and len(self.labels) < 2:
            or_none = "" if task.needs_labels else ", or none for scores"
            raise ValueError(f'kind = "{self.kind}" needs at least two labels{or_none}')
        return self

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        for kind, names in (
            (MASKED, ("masked_share", "whole_words", "nsp")),
            (SEQ2SEQ, ("label_smoothing",)),
        ):
            for name in names:
                if self.kind != kind and getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f'{name} is for kind = "{kind}", not "{self.kind}"; leave it out')
        return self

    @property
    def task(self) -> Task | None:
        """What is learned from labelled examples; None: nothing."""
        return TASKS.get(self.kind)

    @property
    def answer(self) -> AnswerKind | None:
        """What an answer is; None: there is no task."""
        if self.task is None:
            return None
        return "label" if self.labels else "choice" if "choice" in self.task.answers else "score"

    @property
    def supervised(self) -> bool:
        """Whether there is a task."""
        return self.kind in TASKS

    def tokens_of_task(self, model: ModelKind) -> int:
        """Embeddings beyond the tokenizer's: of a decoder's task start, delimiter, extract (section 3.3)."""
        return 3 if self.supervised and model == "decoder" else 0

    @property
    def corpus(self) -> str:
        """What an oracle brings, for people."""
        if self.reads_text:
            return "text"
        return "labelled examples" if self.supervised else "pairs of texts"

    @property
    def unit(self) -> str:
        """The unit of its loss, for people."""
        return "nats per example" if self.supervised else "nats per token"

    @property
    def reads_text(self) -> bool:
        """Whether it is learnt from text alone, not from tables of examples."""
        return self.kind in (LANGUAGE, MASKED)


class Inner(Table):
    """The optimizer of the inner steps, on each oracle by itself (strategy `diloco` only)."""

    optimizer: Literal["adamw", "sgd", "muon", "none"] = Field(
        description="`muon`: AdamW beside the blocks' matrices; `none` exactly with strategy `gradient`"
    )
    learning_rate: float = Field(default=0.0, ge=0, le=100, description="peak, before the schedule")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="AdamW: decay of the mean")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="AdamW: decay of the variance")
    epsilon: float = Field(default=1e-8, gt=0, le=1, description="AdamW: added to the denominator")
    embedding_scale: Literal["own", "model"] = Field(
        default="own",
        description="AdamW: variances of embeddings, `own`, or by how common a decoder finds each (`model`)",
    )
    momentum: float = Field(default=0.95, ge=0, lt=1, description="Muon: decay of the mean")
    weight_decay: float = Field(default=0.0, ge=0, le=1, description="decoupled; not on biases and gains")
    clip_norm: float = Field(default=0.0, ge=0, description="gradient norm is clipped to this; 0: never")

    @model_validator(mode="after")
    def _learns(self) -> Self:
        if self.optimizer != "none" and not self.learning_rate:
            raise ValueError(
                f'learning_rate = 0 with optimizer = "{self.optimizer}" trains nothing; give a positive one'
            )
        return self


class Outer(Table):
    """The optimizer of the outer step, which every peer computes bit for bit alike."""

    optimizer: Literal["nesterov", "adamw"] = Field(
        description="`nesterov` (momentum 0: plain SGD) or `adamw`"
    )
    learning_rate: float = Field(ge=0, le=100, description="peak, before the schedule if that applies")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="nesterov: decay of the velocity")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="adamw: decay of the mean")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="adamw: decay of the variance")
    epsilon: float = Field(default=1e-8, gt=0, le=1, description="adamw: added to the denominator")
    weight_decay: float = Field(default=0.0, ge=0, le=1, description="adamw: decoupled, on matrices")


ExchangeName = Literal["reduce", "share"]


class Rounds(Table):
    """When a round ends, and how long each part of its end may take."""

    strategy: Literal["diloco", "gradient"] = Field(
        description="what an oracle contributes: anchor − parameters, or the mean gradient"
    )
    tokens_per_step: int = Field(ge=1, description="tokens of one inner step of one oracle")
    tokens_per_round: int = Field(
        ge=1, description="the round ends at this × live oracles, tokens of all together"
    )
    growth: float = Field(
        default=1.0,
        ge=1,
        le=100,
        description="round r, from 0, has this^r inner steps until that is a whole round; 1: all are whole",
    )
    exchange: ExchangeName = Field(
        default="share",
        description="members reduce a part of the average each, or everybody gets all contributions",
    )
    overlap: bool = Field(default=False, description="go on with inner steps while peers average")
    max_round_seconds: float = Field(
        default=600, gt=0, le=86400, description="a round ends then at the latest"
    )
    matchmaking_seconds: float = Field(
        default=5, ge=1, le=300, description="how long a group waits for its last members"
    )
    chunk_seconds: float = Field(
        default=5, ge=0.5, le=300, description="a sender silent for so long is left out of the average"
    )
    allreduce_seconds: float = Field(
        default=60, ge=1, le=3600, description="an exchange that takes longer has failed"
    )

    @field_validator("growth")
    @classmethod
    def _grows_or_not(cls, value: float) -> float:
        if 1 < value < LEAST_GROWTH:
            raise ValueError(f"must be 1 (rounds do not grow) or at least {LEAST_GROWTH}")
        return value

    @model_validator(mode="after")
    def _silent_senders_are_left_out_in_time(self) -> Self:
        if self.allreduce_seconds <= 2 * self.chunk_seconds:
            raise ValueError(
                f"allreduce_seconds = {self.allreduce_seconds:g} leaves no time to go on without a silent "
                f"sender; choose more than 2 × chunk_seconds = {2 * self.chunk_seconds:g}"
            )
        return self

    @property
    def searching_seconds(self) -> float:
        """How long a roll may take, whoever of those that coordinate fails."""
        return 2.5 * self.matchmaking_seconds

    @property
    def ending_seconds(self) -> float:
        """How long the end of a round may take: the roll, averaging, deciding."""
        return self.searching_seconds + self.allreduce_seconds + self.voting_seconds

    @property
    def voting_seconds(self) -> float:
        """How long deciding may take once all is averaged: by then it is seen who has left."""
        return min(self.allreduce_seconds, 90.0)

    @property
    def limit_seconds(self) -> float:
        """How long a round may take, from one state to the next."""
        return self.max_round_seconds + self.ending_seconds


class Encoding(Table):
    """How contributions and averages travel, and what becomes of what that loses."""

    contribution: Literal["fp32", "scaled_fp16", "int8", "int4", "two_bit", "top_k"] = Field(
        default="two_bit", description="what an oracle sends; docs/architecture.md has the codecs"
    )
    average: Literal["fp32", "scaled_fp16", "int8", "int4"] = Field(
        default="scaled_fp16", description="what a reducer returns"
    )
    feedback: float = Field(
        default=1.0, ge=0, le=1, description="what encoding lost is added to the next contribution × this"
    )
    kept: int = Field(default=64, ge=1, le=1024, description="top_k: values kept of each 4,096")


class Aggregation(Table):
    """What is made of a round's contributions; docs/decisions/robustness.md has figures.

    With `rounds.exchange = "share"` no contribution counts with more than the median norm and twice the
    median weight, whatever the rule. With `reduce` members see parts of contributions only, and trust
    one another.
    """

    rule: Literal["mean", "agreeing_mean"] = Field(
        default="agreeing_mean",
        description='agreeing_mean needs whole contributions: rounds.exchange = "share"',
    )


class Limits(Table):
    """What peers accept from one another."""

    max_weight_ratio: float = Field(
        default=4.0, ge=1, le=1000, description="a contribution weighs at most this × tokens_per_round"
    )
    max_norm_ratio: float = Field(
        default=10.0, gt=1, description="a part whose norm exceeds this × the median norm is left out"
    )
    record_seconds: float = Field(
        default=30.0, ge=5, le=3600, description="a silent peer counts as gone after this"
    )


class Admission(Table):
    """Which peers the swarm admits, and its organiser's key; docs/decisions/security.md says why."""

    kind: Literal["open", "invite"] = Field(
        default="open", description="`open`: everybody; `invite`: those with an invitation"
    )
    organiser: DigestOrNone = Field(
        default="", description="the organiser's public key, 64 hexadecimal digits; empty: nobody organises"
    )

    @model_validator(mode="after")
    def _somebody_invites(self) -> Self:
        if self.kind == "invite" and not self.organiser:
            raise ValueError(
                'kind = "invite" needs an organiser, whose public key `dupt-peer new` fills in; or admit '
                'everybody with kind = "open"'
            )
        return self


class Offer(Table):
    """Text that the swarm offers to oracles without a corpus; `dupt-peer new --offer` fills it in."""

    digest: DigestOrNone = Field(
        default="", description="of the list of its shards; empty: nothing is offered, all bring their own"
    )
    tokens: int = Field(default=0, ge=0, description="how many there are to train on")
    title: str = Field(default="", max_length=TITLE_LENGTH_MAX, description="what the text is called")
    source: str = Field(default="", max_length=TITLE_LENGTH_MAX, description="where it is from")
    licence: str = Field(
        default="", max_length=TITLE_LENGTH_MAX, description="under which everybody may pass it on"
    )

    @property
    def described(self) -> str:
        """Its title, and in parentheses its licence."""
        return f"{self.title} ({self.licence})" if self.licence else self.title

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.digest)


@dataclass(frozen=True)
class StrategyTraits:
    """What follows from the choice of a strategy.

    Attributes:
        scheduled: which learning rate follows the schedule, that of the inner steps or of the outer
            one: the updates that follow gradients. The other one is constant.
        inner_optimizers: what `inner.optimizer` may be.
    """

    scheduled: Literal["inner", "outer"]
    inner_optimizers: tuple[str, ...]

    @property
    def inner_choice(self) -> str:
        """The inner optimizers for a message."""
        return " or ".join(f'"{name}"' for name in self.inner_optimizers)


STRATEGIES = {
    "diloco": StrategyTraits(scheduled="inner", inner_optimizers=("adamw", "sgd", "muon")),
    "gradient": StrategyTraits(scheduled="outer", inner_optimizers=("none",)),
}
