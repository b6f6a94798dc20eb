"""Very small swarms on loopback, for tests."""

from typing import Any

from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import load_preset
from dupt_swarm.settings import NodeSettings
from tests.support.loopback import LOOPBACK


def tiny_tables() -> dict[str, Any]:
    """The tables of the preset `tiny`, its exchange, encoding and rule as they ship."""
    return load_preset("tiny")


def reduced_tables(**changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The plain mean of an all-reduce, which no preset has: changes for `tiny_manifest` and `make_manifest`.

    Args:
        changes: further ones, merged table by table.
    """
    tables: dict[str, dict[str, Any]] = {
        "rounds": {"exchange": "reduce"},
        "encoding": {"contribution": "scaled_fp16", "average": "scaled_fp16", "feedback": 0.0},
        "aggregation": {"rule": "mean"},
    }
    return tables | {name: tables.get(name, {}) | keys for name, keys in changes.items()}


def tiny_manifest(tokenizer_sha256: str = "0" * 64, vocabulary_size: int = 300, **changes: Any) -> Manifest:
    """A manifest of a very small model of GPT-2's block; ``changes`` are tables merged into the preset's."""
    tables = tiny_tables()
    tables["model"] = load_preset("gpt2", "tiny")["model"] | {
        "vocabulary_size": vocabulary_size,
        "context_length": 16,
        "layers": 1,
        "heads": 2,
        "width": 32,
        "hidden_width": 64,
    }
    # A group is complete as soon as all are there, so patience with a busy machine costs nothing.
    tables["rounds"] |= {
        "tokens_per_step": 64,
        "tokens_per_round": 640,
        "growth": 1.0,
        "max_round_seconds": 60,
        "matchmaking_seconds": 20,
        "chunk_seconds": 10,
    }
    for table, keys in changes.items():
        tables[table] = tables.get(table, {}) | keys
    if tables["model"].get("bidirectional") or tables["model"].get("encoder_layers"):
        tables["inner"]["embedding_scale"] = "own"  # the other is for decoders
    tokenizer = {"sha256": tokenizer_sha256, "vocabulary_size": vocabulary_size}
    tokenizer |= tables.pop("tokenizer", {})
    return Manifest.model_validate({"name": "test", "seed": 1, "tokenizer": tokenizer, **tables})


def settings(role: Any = "oracle", **more: Any) -> NodeSettings:
    """Settings of a peer that listens on loopback only."""
    return NodeSettings(role, host_maddrs=LOOPBACK, **more)
