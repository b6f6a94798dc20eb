"""`Origin`: where a model comes from, as its card tells it; a folder keeps it in origin.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dupt_swarm.errors import CheckpointError
from dupt_swarm.settings import DATASET_PATTERN

ORIGIN_FILE = "origin.json"


class Evaluated(BaseModel):
    """What an evaluator said of a state of the swarm, not necessarily of this one: see ``round``."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    dataset: str = Field(pattern=DATASET_PATTERN)
    bits_per_byte: float | None = Field(default=None, description="none of a task")
    loss_nats: float
    accuracy: float | None = Field(default=None, description="of a task's answers")
    round: int
    evaluator: str = Field(description="its name, or the end of its peer id")

    def __str__(self) -> str:
        accuracy = "" if self.accuracy is None else f"accuracy {self.accuracy:.1%}, "
        bits = "" if self.bits_per_byte is None else f"{self.bits_per_byte:.4f} bits/byte, "
        figures = f"{accuracy}{bits}loss {self.loss_nats:.4f}"
        return f"{figures} on {self.dataset} at round {self.round} by {self.evaluator}"


class TaskEvaluated(BaseModel):
    """A figure of lm-evaluation-harness that an evaluator found, not necessarily for this state either."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task: str = Field(pattern=DATASET_PATTERN)
    metric: str = Field(pattern=DATASET_PATTERN)
    value: float
    round: int
    evaluator: str = Field(description="its name, or the end of its peer id")

    def __str__(self) -> str:
        return f"{self.task} {self.metric} {self.value:.4f} at round {self.round} by {self.evaluator}"


class Origin(BaseModel):
    """The swarm and the state that a model was taken from. Names and figures are what other peers said."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    swarm_id: str
    round: int = Field(ge=0)
    swarm_tokens: int = Field(ge=0)
    state_digest: str
    peers: tuple[str, ...] = Field(default=(), description="oracles and first peers that gave a name")
    evaluations: tuple[Evaluated, ...] = ()
    tasks: tuple[TaskEvaluated, ...] = ()
    pulled_at: str = Field(default="", description="UTC, ISO 8601; empty: it is a checkpoint")
    version: str = Field(default="", description="of dupt_swarm, which took it")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read origin.json.

        Raises:
            CheckpointError: it is damaged.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.strerror
            raise CheckpointError(
                f"{path}: not a valid origin ({reason}); remove it, and the model has none"
            ) from error

    def to_json(self) -> dict[str, Any]:
        """What origin.json says; of an evaluation, what is not known is left out."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_bytes(self) -> bytes:
        """The content of origin.json, in ASCII: names are strangers'."""
        return json.dumps(self.to_json(), indent=2).encode() + b"\n"
