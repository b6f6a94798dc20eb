"""Folders that `transformers` loads: which files they have, and what is in config.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dupt_swarm.learning.architectures.architecture import Architecture
from dupt_swarm.learning.export import examples
from dupt_swarm.learning.export.learned import Learned, write_json, write_tensors
from dupt_swarm.learning.export.tokenizer import write_tokenizer
from dupt_swarm.manifest import Manifest, Model


@dataclass(frozen=True)
class HuggingFace:
    """The format of one architecture; see `Format`."""

    architecture: Architecture
    library: str = "transformers"

    @property
    def name(self) -> str:
        """See `Format`."""
        return self.architecture.name

    def problem(self, model: Model) -> str:
        """See `Format`."""
        return self.architecture.problem(model)

    def write(self, folder: Path, learned: Learned) -> None:
        """See `Format.write`."""
        state = learned.decoder.state_dict()
        if learned.head is not None and self.has_head(learned.manifest):
            state |= {f"head.{name}": tensor for name, tensor in learned.head.state_dict().items()}
        elif learned.head is not None:
            write_tensors(folder / "head.safetensors", learned.head.state_dict())
        theirs = self.architecture.names.to_theirs(state, learned.manifest.model)
        write_tensors(folder / "model.safetensors", theirs)
        begin, end = learned.tokenizer.begin_of_text, learned.tokenizer.end_of_text
        edges = {"bos_token_id": begin, "eos_token_id": end}
        write_json(folder / "config.json", self.config(learned.manifest) | edges)
        write_json(folder / "generation_config.json", edges | {"pad_token_id": end})
        write_tokenizer(folder, learned.tokenizer, learned.manifest)

    def has_head(self, manifest: Manifest) -> bool:
        """See `Format.has_head`: other heads than of two have one output there, or no bias."""
        task = manifest.objective.task
        return bool(self.architecture.double_heads) and task is not None and "choice" in task.answers

    def load_line(self, folder: str, manifest: Manifest) -> str:
        """See `Format.load_line`."""
        loader = self.architecture.double_heads if self.has_head(manifest) else "AutoModelForCausalLM"
        return (
            f"from transformers import AutoTokenizer, {loader} as Model; "
            f"model, tokenizer = Model.from_pretrained({folder!r}), AutoTokenizer.from_pretrained({folder!r})"
        )

    def example(self, manifest: Manifest) -> str:
        """See `Format.example`."""
        if self.has_head(manifest):
            return examples.choice(self.architecture.double_heads)
        if manifest.objective.supervised:
            return examples.answer(manifest.objective)
        return examples.continuation(manifest.model)

    def config(self, manifest: Manifest) -> dict[str, Any]:
        """The content of config.json."""
        model, objective = manifest.model, manifest.objective
        return {
            "architectures": [
                self.architecture.double_heads if self.has_head(manifest) else self.architecture.causal
            ],
            "model_type": self.name,
            **self.architecture.settings(model),
            "summary_first_dropout": objective.head_dropout,
            "bos_token_id": manifest.tokenizer.end_of_text,  # unless the tokenizer has a template
            "eos_token_id": manifest.tokenizer.end_of_text,
            "dtype": "float32",
            **_labels(objective.labels),
        }


def _labels(labels: list[str]) -> dict[str, Any]:
    if not labels:
        return {}
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
