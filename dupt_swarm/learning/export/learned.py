"""What is exported, and what a format does with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from torch import nn

from dupt_swarm.learning.export.origin import Origin
from dupt_swarm.learning.model import GPT
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest, Model


class TaskModel(Protocol):
    """A decoder with a head for a task."""

    decoder: GPT
    head: nn.Linear


@dataclass(frozen=True)
class Learned:
    """A model with all that belongs to it.

    Attributes:
        model: of the manifest's shape: the decoder, or with a task the task's model.
        manifest: what it was trained by.
        tokenizer: of its texts.
        origin: where it comes from.
    """

    model: nn.Module
    manifest: Manifest
    tokenizer: Tokenizer
    origin: Origin

    @property
    def decoder(self) -> GPT:
        """The model without its head."""
        return self.model if isinstance(self.model, GPT) else cast("TaskModel", self.model).decoder

    @property
    def head(self) -> nn.Linear | None:
        """W_y, if there is a task."""
        return None if isinstance(self.model, GPT) else cast("TaskModel", self.model).head


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
