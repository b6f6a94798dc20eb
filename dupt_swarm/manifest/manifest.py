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
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from dupt_swarm.errors import ManifestError
from dupt_swarm.manifest.explain import explain_difference, explain_invalid
from dupt_swarm.manifest.model import Model
from dupt_swarm.manifest.schedule import Schedule, growing_rounds, steps_before
from dupt_swarm.manifest.table import Table
from dupt_swarm.manifest.tables import (
    MODEL_OF,
    STRATEGIES,
    Admission,
    Aggregation,
    DigestOrNone,
    Encoding,
    Inner,
    Limits,
    Objective,
    Offer,
    Outer,
    Rounds,
    StrategyTraits,
    Tokenizer,
)

NAME_LENGTH_MAX = 40
NAME = re.compile(f"[A-Za-z0-9][A-Za-z0-9-]{{,{NAME_LENGTH_MAX - 1}}}")
NAME_REMEDY = f"use 1 to {NAME_LENGTH_MAX} letters, digits and hyphens, beginning with a letter or digit"


class Manifest(Table):
    """Everything that all peers of one swarm must share."""

    name: str = Field(description="letters, digits and hyphens, at most 40")
    seed: int = Field(ge=0, lt=1 << 63, description="of the initial weights and the shuffling")
    initial_digest: DigestOrNone = Field(
        default="", description="of the state of round 0; empty: its weights are drawn from the seed"
    )
    tokenizer: Tokenizer
    model: Model
    objective: Objective = Objective()
    inner: Inner
    outer: Outer
    schedule: Schedule
    rounds: Rounds
    encoding: Encoding = Encoding()
    aggregation: Aggregation = Aggregation()
    limits: Limits = Limits()
    admission: Admission = Admission()
    offer: Offer = Offer()

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError(NAME_REMEDY)
        return value

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        rows = self.tokenizer.vocabulary_size + self.task_tokens
        if self.model.vocabulary_size < rows:  # some models have more, so that matrices have handy shapes
            special = f" + {self.task_tokens}" if self.task_tokens else ""
            raise ValueError(
                f"model.vocabulary_size = {self.model.vocabulary_size} is less than "
                f"tokenizer.vocabulary_size{special} = {rows}; use at least that"
            )
        if self.inner.optimizer not in self.strategy.inner_optimizers:
            takes = ", ".join(f"`{name}` takes {traits.inner_choice}" for name, traits in STRATEGIES.items())
            raise ValueError(
                f'inner.optimizer = "{self.inner.optimizer}" does not go with rounds.strategy = '
                f'"{self.rounds.strategy}"; {takes}'
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

    @model_validator(mode="after")
    def _rule_fits(self) -> Self:
        if self.aggregation.rule == "agreeing_mean" and self.rounds.exchange == "reduce":
            raise ValueError(
                'aggregation.rule = "agreeing_mean" needs whole contributions, and with rounds.exchange = '
                '"reduce" members see parts of them; choose exchange = "share", or rule = "mean" where '
                "members trust one another"
            )
        return self

    @model_validator(mode="after")
    def _objective_fits(self) -> Self:
        objective, model = self.objective, self.model.kind
        if objective.supervised and model == "encoder-decoder":
            raise ValueError(
                f'objective.kind = "{objective.kind}" is a task for a decoder or an encoder, and with '
                "model.encoder_layers the model is both; choose encoder_layers = 0"
            )
        if objective.supervised and model == "encoder" and objective.lm_weight:
            raise ValueError(
                f"objective.lm_weight = {objective.lm_weight:g} has no meaning with model.bidirectional = "
                "true: an encoder does not continue texts; choose 0"
            )
        if not objective.supervised and model != MODEL_OF[objective.kind]:
            wanted = MODEL_OF[objective.kind]
            raise ValueError(
                f'objective.kind = "{objective.kind}" is learnt by a model of kind {wanted}, and this one is '
                f"of kind {model}; change model.bidirectional or model.encoder_layers, or the objective"
            )
        least = 5 if objective.nsp else 3  # [CLS] text [SEP], and with pairs another text and [SEP]
        if model == "encoder" and self.model.context_length < least:
            raise ValueError(
                f"model.context_length = {self.model.context_length} has no room for text beside an "
                f"encoder's [CLS] and [SEP]; use at least {least}"
            )
        if self.inner.embedding_scale == "model" and model != "decoder":
            raise ValueError(
                'inner.embedding_scale = "model" asks how common a decoder finds a token when it writes of '
                f'itself, and this model is of kind {model}; choose "own"'
            )
        if self.offer and not objective.reads_text:
            raise ValueError(
                f'offer.digest names text, and objective.kind = "{objective.kind}" is learnt from tables of '
                "examples; leave the offer out"
            )
        return self

    @property
    def task_tokens(self) -> int:
        """See `Objective.tokens_of_task`."""
        return self.objective.tokens_of_task(self.model.kind)

    def canonical_bytes(self) -> bytes:
        """The canonical encoding: JSON, sorted keys, no white space."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the canonical bytes, hexadecimal."""
        return hashlib.sha256(self.canonical_bytes()).hexdigest()

    @property
    def swarm_id(self) -> str:
        """``<name>-<first 12 hexadecimal digits of the SHA-256>``, in every record."""
        return f"{self.name}-{self.sha256[:12]}"

    @property
    def strategy(self) -> StrategyTraits:
        """What the strategy that `rounds.strategy` names implies elsewhere."""
        return STRATEGIES[self.rounds.strategy]

    def tokens_per_round(self, round: int) -> int:
        """The tokens of one oracle that make ``round`` (from 0) complete; see `Rounds.growth`."""
        growing = growing_rounds(*self._growth)
        if round < len(growing):
            return growing[round] * self.rounds.tokens_per_step
        return self.rounds.tokens_per_round

    def updates_in_round(self, round: int) -> int:
        """Updates of the scheduled learning rate in ``round``; see `Schedule`."""
        if self.strategy.scheduled == "outer":
            return 1
        return self.tokens_per_round(round) // self.rounds.tokens_per_step

    def first_update(self, round: int) -> int:
        """Updates of the scheduled learning rate before ``round``."""
        if self.strategy.scheduled == "outer":
            return round
        before = steps_before(*self._growth)
        growing = min(round, len(before) - 1)
        return before[growing] + (round - growing) * self.updates_in_round(round)

    def weight_limit(self, round: int) -> float:
        """The most tokens that one contribution to ``round`` may stand for."""
        return self.limits.max_weight_ratio * self.tokens_per_round(round)

    @property
    def _growth(self) -> tuple[float, float]:
        return self.rounds.growth, self.rounds.tokens_per_round / self.rounds.tokens_per_step

    def to_toml(self) -> str:
        """The manifest as a TOML file with a comment on every key."""
        first = "# The manifest of a dupt_swarm. Every peer shares it; any change makes it a different swarm."
        return first + "\n\n" + _render_toml(self)

    def difference(self, other: Manifest) -> str:
        """The first key in which ``other`` differs, with both values, or an empty string."""
        return explain_difference(self, other)

    def changed(self, tables: dict[str, object]) -> Manifest:
        """Another swarm's, with these tables or keys in place of its own.

        Raises:
            ManifestError: they are not valid.
        """
        tree = self.model_dump() | tables
        return Manifest.from_bytes(json.dumps(tree).encode(), "the new swarm's manifest")

    @classmethod
    def parse(cls, text: str, source: str = "run.toml") -> Manifest:
        """Read a manifest from TOML.

        Raises:
            ManifestError: every problem found, a line each, with its remedy.
        """
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ManifestError(f"{source}: not valid TOML: {error}; fix that line") from error
        return cls.of(tables, source)

    @classmethod
    def of(cls, tables: dict[str, Any], source: str) -> Manifest:
        """The manifest that has these tables; for errors see `parse`."""
        try:
            return cls.model_validate(tables)
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


def _render_toml(model: BaseModel) -> str:
    """``model`` as TOML, which the standard library only reads: its fields, then a table per nested model.

    Descriptions become comments.
    """
    fields = type(model).model_fields
    tables = {key: table for key in fields if isinstance(table := getattr(model, key), BaseModel)}
    lines = [_toml_line(model, key) for key in fields if key not in tables]
    for key, table in tables.items():
        lines += ["", f"[{key}]", *(_toml_line(table, field) for field in type(table).model_fields)]
    return "\n".join(lines) + "\n"


def _toml_line(table: BaseModel, key: str) -> str:
    # Strings, booleans and numbers look the same in JSON and TOML, which has no surrogates, though.
    text = json.dumps(getattr(table, key), ensure_ascii=False)
    value = "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in text)
    return f"{key} = {value}".ljust(32) + f"  # {type(table).model_fields[key].description}"
