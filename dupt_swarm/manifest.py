"""The manifest: what every peer of a swarm must share, one TOML file, validated, frozen and hashed.

Two peers are in the same swarm exactly when their manifests have the same SHA-256, so each field
below changes what is trained or how peers average. What concerns one machine only is in `settings`.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dupt_swarm.errors import ManifestError
from dupt_swarm.schedule.reproducible import cosine_of_pi_times
from dupt_swarm.schema.explain import explain_difference, explain_invalid
from dupt_swarm.schema.toml import render_toml

HASH = re.compile(r"[0-9a-f]{64}")


class _Table(BaseModel):
    """A table of the manifest: no unknown keys, no type conversions, no changes afterwards."""

    # Defaults are validated too: 5 must become 5.0, or equal manifests would hash differently.
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True
    )

    @field_validator("*")
    @classmethod
    def _one_zero(cls, value: Any) -> Any:
        # -0.0 equals 0.0, but would hash differently.
        return 0.0 if isinstance(value, float) and value == 0 else value


class Tokenizer(_Table):
    """Which tokenizer the swarm uses."""

    sha256: str = Field(description="SHA-256 of tokenizer.json, hexadecimal")
    vocabulary_size: int = Field(ge=257, le=1 << 24, description="bytes, merges and <|endoftext|>")

    @field_validator("sha256")
    @classmethod
    def _hexadecimal(cls, value: str) -> str:
        if not HASH.fullmatch(value):
            raise ValueError("must be 64 lower-case hexadecimal digits; `dupt-peer new` fills it in")
        return value


class Model(_Table):
    """The shape of the decoder: h_0 = U·W_e + W_p, transformer blocks, P(u) = softmax(h_n·W_eᵀ)."""

    vocabulary_size: int = Field(ge=257, le=1 << 24, description="rows of W_e; the tokenizer's")
    context_length: int = Field(ge=2, le=1 << 16, description="k, tokens that a prediction may see")
    layers: int = Field(ge=1, le=1024, description="transformer blocks")
    heads: int = Field(ge=1, le=1024, description="attention heads of each block; divides width")
    width: int = Field(ge=1, le=1 << 16, description="d_model")
    hidden_width: int = Field(ge=1, le=1 << 18, description="width of the feed-forward layer")
    norm: Literal["post", "pre"] = Field(
        default="pre", description="layer norm after each residual sum (GPT-1) or before (GPT-2)"
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="on embeddings, attention and residuals")
    init_std: float = Field(default=0.02, gt=0, le=1, description="standard deviation of initial weights")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(
                f"heads = {self.heads} does not divide width = {self.width}; "
                f"choose a width that is a multiple of {self.heads}"
            )
        return self


class Inner(_Table):
    """The optimizer of the inner steps, on each oracle by itself (strategy `diloco` only)."""

    optimizer: Literal["adamw", "sgd", "none"] = Field(description="`none` exactly with strategy `gradient`")
    learning_rate: float = Field(default=0.0, ge=0, le=100, description="peak, before the schedule")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="AdamW: decay of the mean")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="AdamW: decay of the variance")
    epsilon: float = Field(default=1e-8, gt=0, le=1, description="AdamW: added to the denominator")
    weight_decay: float = Field(default=0.0, ge=0, le=1, description="decoupled; not on biases and gains")
    clip_norm: float = Field(default=0.0, ge=0, description="gradient norm is clipped to this; 0: never")

    @model_validator(mode="after")
    def _learns(self) -> Self:
        if self.optimizer != "none" and not self.learning_rate:
            raise ValueError(
                f'learning_rate = 0 with optimizer = "{self.optimizer}" trains nothing; give a positive one'
            )
        return self


class Outer(_Table):
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


class Schedule(_Table):
    """The learning rate over updates: linear warm-up from 0, then cosine decay.

    An update is an inner step with `diloco` (inner learning rate) and a round with `gradient`
    (outer learning rate). Its number follows from the swarm's round, so late joiners agree on it.
    """

    warmup_updates: int = Field(ge=0, description="updates from 0 to the peak")
    total_updates: int = Field(ge=1, description="updates until the end of the decay")
    final_ratio: float = Field(default=0.0, ge=0, le=1, description="last learning rate ÷ peak; 1: constant")

    @model_validator(mode="after")
    def _warmup_ends(self) -> Self:
        if self.warmup_updates >= self.total_updates:
            raise ValueError(
                f"warmup_updates = {self.warmup_updates} must be less than "
                f"total_updates = {self.total_updates}"
            )
        return self

    def factor(self, update: float) -> float:
        """The learning rate at ``update`` (from 0, may be fractional) ÷ its peak, from 0 to 1.

        Only operations that IEEE 754 rounds exactly: with `gradient` every peer must get the same bits.
        """
        if update < self.warmup_updates:
            return (update + 1) / (self.warmup_updates + 1)
        done = min(1.0, (update - self.warmup_updates) / (self.total_updates - self.warmup_updates))
        return self.final_ratio + (1 - self.final_ratio) * 0.5 * (1 + cosine_of_pi_times(done))


class Rounds(_Table):
    """When a round ends, and how long each part of its end may take."""

    strategy: Literal["diloco", "gradient"] = Field(
        description="what an oracle contributes: anchor − parameters, or the mean gradient"
    )
    tokens_per_step: int = Field(ge=1, description="tokens of one inner step of one oracle")
    tokens_per_round: int = Field(
        ge=1, description="the round ends at this × live oracles, tokens of all together"
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
        default=60, ge=1, le=3600, description="an all-reduce that takes longer has failed"
    )

    @model_validator(mode="after")
    def _silent_senders_are_left_out_in_time(self) -> Self:
        if self.allreduce_seconds <= 2 * self.chunk_seconds:
            raise ValueError(
                f"allreduce_seconds = {self.allreduce_seconds:g} leaves no time to go on without a silent "
                f"sender; choose more than 2 × chunk_seconds = {2 * self.chunk_seconds:g}"
            )
        return self


class Limits(_Table):
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


class Manifest(_Table):
    """Everything that all peers of one swarm must share."""

    name: str = Field(description="letters, digits and hyphens, at most 40")
    seed: int = Field(ge=0, lt=1 << 63, description="of the initial weights and the shuffling")
    codec: Literal["scaled_fp16", "fp32"] = Field(
        default="scaled_fp16", description="how contributions and averages travel"
    )
    tokenizer: Tokenizer
    model: Model
    inner: Inner
    outer: Outer
    schedule: Schedule
    rounds: Rounds
    limits: Limits = Limits()

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,39}", value):
            raise ValueError("use 1 to 40 letters, digits and hyphens, beginning with a letter or digit")
        return value

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.model.vocabulary_size != self.tokenizer.vocabulary_size:
            raise ValueError(
                f"model.vocabulary_size = {self.model.vocabulary_size} differs from "
                f"tokenizer.vocabulary_size = {self.tokenizer.vocabulary_size}; give both the latter"
            )
        if (self.rounds.strategy == "gradient") != (self.inner.optimizer == "none"):
            raise ValueError(
                f'inner.optimizer = "{self.inner.optimizer}" does not go with rounds.strategy = '
                f'"{self.rounds.strategy}"; `gradient` takes "none", `diloco` takes "adamw" or "sgd"'
            )
        if self.rounds.tokens_per_step > self.rounds.tokens_per_round:
            raise ValueError(
                f"rounds.tokens_per_step = {self.rounds.tokens_per_step} exceeds "
                f"rounds.tokens_per_round = {self.rounds.tokens_per_round}; raise the latter"
            )
        if self.rounds.tokens_per_step < self.model.context_length:
            raise ValueError(
                f"rounds.tokens_per_step = {self.rounds.tokens_per_step} is less than one sequence; "
                f"use at least model.context_length = {self.model.context_length}"
            )
        return self

    def canonical_bytes(self) -> bytes:
        """The one byte string that stands for this manifest: JSON, sorted keys, no white space."""
        tree = self.model_dump(mode="json")
        return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the canonical bytes, hexadecimal."""
        return hashlib.sha256(self.canonical_bytes()).hexdigest()

    @property
    def swarm_id(self) -> str:
        """``<name>-<first 12 hexadecimal digits of the SHA-256>``, the prefix of every DHT key."""
        return f"{self.name}-{self.sha256[:12]}"

    @property
    def updates_per_round(self) -> int:
        """Updates of the scheduled learning rate in one round: inner steps, or 1 with `gradient`."""
        if self.rounds.strategy == "gradient":
            return 1
        return max(1, self.rounds.tokens_per_round // self.rounds.tokens_per_step)

    def to_toml(self) -> str:
        """The manifest as a TOML file with a comment on every key."""
        first = "# The manifest of a dupt_swarm. Every peer shares it; any change makes another swarm."
        return first + "\n\n" + render_toml(self)

    def difference(self, other: Manifest) -> str:
        """The first key in which ``other`` differs, with both values, or an empty string."""
        return explain_difference(self, other)

    @classmethod
    def parse(cls, text: str, source: str = "run.toml") -> Manifest:
        """Read a manifest from TOML.

        Raises:
            ManifestError: every problem found, a line each, with its remedy.
        """
        try:
            return cls.model_validate(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ManifestError(f"{source}: not valid TOML: {error}; mend that line") from error
        except ValidationError as error:
            raise ManifestError(explain_invalid(error, cls, source)) from error

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "the swarm's manifest") -> Manifest:
        """Read a manifest back from its canonical bytes."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise ManifestError(explain_invalid(error, cls, source)) from error

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read the manifest file at ``path``."""
        try:
            return cls.parse(path.read_text(encoding="utf-8"), path.name)
        except (OSError, UnicodeDecodeError) as error:
            raise ManifestError(f"{path}: cannot be read: {error}; `dupt-peer new` writes one") from error
