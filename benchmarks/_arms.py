"""The arms of `convergence.py`, as data: each is a manifest's tables and who trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Written out, so that the arms stay what they are when the presets change.
SHAPE = {"vocabulary_size": 4096, "context_length": 128, "layers": 4, "heads": 4, "width": 256}
GPT2 = SHAPE | {"hidden_width": 1024, "placement": "pre"}
LLAMA = SHAPE | {
    "hidden_width": 704,
    "positions": "rotary",
    "norm": "rms",
    "placement": "pre",
    "feed_forward": "swiglu",
    "biases": False,
}
PALM = LLAMA | {"hidden_width": 832, "kv_heads": 1, "norm": "layer", "placement": "parallel"}
ADAMW = {
    "model": GPT2,
    "inner": {
        "optimizer": "adamw",
        "learning_rate": 1e-3,
        "beta2": 0.99,
        "weight_decay": 0.1,
        "clip_norm": 1.0,
    },
    "outer": {"optimizer": "nesterov", "learning_rate": 0.9, "momentum": 0.5},
    "schedule": {"warmup_updates": 40, "total_updates": 20000, "final_ratio": 0.1},
    "rounds": {
        "strategy": "diloco",
        "tokens_per_step": 1024,
        "tokens_per_round": 20480,
        "exchange": "reduce",
    },
    "encoding": {"contribution": "scaled_fp16", "average": "scaled_fp16", "feedback": 0.0},
    "aggregation": {"rule": "mean"},
}
AVERAGING = {"outer.learning_rate": 1.0, "outer.momentum": 0.0}
MUON = {"inner.optimizer": "muon", "inner.learning_rate": 2e-3, **AVERAGING}
# 1.125^25 > 19: in 29 rounds, 25 of which grow, each oracle makes 200 steps.
GROWING = MUON | {"rounds.growth": 1.125}
OWN = {"inner.embedding_scale": "own"}
OF_MODEL = {"inner.embedding_scale": "model"}
TINY = MUON | OF_MODEL | {"inner.learning_rate": 4e-3, "schedule.warmup_updates": 10, "rounds.growth": 1.2}
FIVE = MUON | {"rounds.tokens_per_round": 5120}
TWO_BITS = {"encoding.contribution": "two_bit", "encoding.feedback": 1.0}
TOP_K = {"encoding.contribution": "top_k", "encoding.feedback": 0.95, "encoding.kept": 128}
ONE_GRADIENT = {
    "rounds.strategy": "gradient",
    "rounds.tokens_per_step": 256,
    "rounds.tokens_per_round": 256,
    "inner": {"optimizer": "none", "clip_norm": 1.0},
    "outer": {"optimizer": "adamw", "learning_rate": 1e-3, "beta2": 0.99, "weight_decay": 0.1},
}


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        changes: of `ADAMW`, by dotted keys, or whole tables.
        corpora: 4, 8 or 16, one for each oracle.
        alone: whether one process trains instead that has them all, in batches of equal shares.
        late: how much of the next round is trained before a round's average arrives.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)
    corpora: int = 4
    alone: bool = False
    late: float = 0.0

    def tables(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """The manifest's tables; ``more`` changes come on top."""
        tables: dict[str, Any] = dict(ADAMW)
        for key, value in {**self.changes, **more}.items():
            table, _, name = key.partition(".")
            tables[table] = tables.get(table, {}) | {name: value} if name else value
        return tables


ARMS = {
    "alone": Arm(alone=True),
    "alone-muon": Arm({"inner.optimizer": "muon", "inner.learning_rate": 2e-3}, alone=True),
    "alone-8": Arm(corpora=8, alone=True),
    "alone-4x": Arm({"rounds.tokens_per_step": 4096, "rounds.tokens_per_round": 81920}, alone=True),
    "adamw": Arm(),
    "gradient": Arm(ONE_GRADIENT),
    "muon": Arm(MUON),
    "tiny": Arm(TINY),
    "tiny-own": Arm(TINY | OWN),
    "tiny-palm": Arm(TINY | {"model": PALM}),
    "tiny-8": Arm(TINY, corpora=8),
    "tiny-2bit": Arm(TINY | TWO_BITS),
    "tiny-2bit-own": Arm(TINY | TWO_BITS | OWN),
    "tiny-2bit-int4": Arm(TINY | TWO_BITS | {"encoding.average": "int4"}),
    "tiny-topk": Arm(TINY | TOP_K),
    "muon-growing": Arm(GROWING),
    "muon-5": Arm(FIVE),
    "muon-5-model": Arm(FIVE | OF_MODEL),
    "muon-5-model-8": Arm(FIVE | OF_MODEL, corpora=8),
    "muon-5-model-16": Arm(FIVE | OF_MODEL, corpora=16),
    "muon-growing-late": Arm(GROWING, late=1.0),
    "muon-growing-momentum": Arm(GROWING | {"outer.learning_rate": 0.9, "outer.momentum": 0.5}),
}
