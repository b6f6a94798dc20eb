"""What is exported, and what a format does with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors.torch import save_file
from torch import Tensor, nn

from dupt_swarm.learning.export.origin import Origin
from dupt_swarm.learning.objectives import backbone_of
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest, Model


@dataclass(frozen=True)
class Learned:
    """A model with all that belongs to it.

    Attributes:
        model: of the manifest's shape: the decoder, or with a task the task's model.
        manifest: what it was trained by.
        tokenizer: of its texts.
        origin: where it comes from.
        fine_tuned_digest: what the state that it comes from has become; empty: it is as it was.
    """

    model: nn.Module
    manifest: Manifest
    tokenizer: Tokenizer
    origin: Origin
    fine_tuned_digest: str = ""

    @property
    def backbone(self) -> nn.Module:
        """The model without the head of a task."""
        return backbone_of(self.model)

    @property
    def head(self) -> nn.Linear | None:
        """W_y, if there is a task."""
        return self.model.head if isinstance(self.model, TaskModel) else None


class Format(Protocol):
    """A way to write a model as a folder.

    Attributes:
        name: what users call it.
        library: what loads it, as Hugging Face's hub calls it.
    """

    @property
    def name(self) -> str: ...

    @property
    def library(self) -> str: ...

    def problem(self, model: Model) -> str:
        """Why the format cannot hold a model of this shape, or an empty string."""

    def write(self, folder: Path, learned: Learned) -> None:
        """Write everything but the card into ``folder``, which is there and empty."""

    def load_line(self, folder: str, manifest: Manifest) -> str:
        """Python in one line that loads the folder at this path."""

    def example(self, manifest: Manifest) -> str:
        """Python code that uses the folder, run inside it."""


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write ``content`` to ``path``, for people too."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file; each tensor needs memory of its own."""
    save_file(dict(tensors), path, {"format": "pt"})  # without that word, transformers reads none
