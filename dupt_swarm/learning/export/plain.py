"""Format `safetensors`: our own parameters under our own names; it holds every model."""

from __future__ import annotations

from pathlib import Path

from dupt_swarm.learning.export import examples
from dupt_swarm.learning.export.learned import Learned, write_json, write_tensors
from dupt_swarm.manifest import Manifest, Model


class Plain:
    """model.safetensors, the model's and the objective's tables as config.json, and tokenizer.json."""

    name = "safetensors"
    library = "dupt_swarm"

    def problem(self, _model: Model) -> str:
        """See `Format.problem`: none."""
        return ""

    def write(self, folder: Path, learned: Learned) -> None:
        """See `Format.write`."""
        tensors = {name: tensor.cpu().clone() for name, tensor in learned.model.state_dict().items()}
        write_tensors(folder / "model.safetensors", tensors)
        tables = learned.manifest.model_dump(mode="json", include={"model", "objective"})
        write_json(folder / "config.json", tables)
        (folder / "tokenizer.json").write_bytes(learned.tokenizer.to_bytes())

    def has_head(self, manifest: Manifest) -> bool:
        """See `Format.has_head`."""
        return manifest.objective.supervised

    def load_line(self, folder: str, _manifest: Manifest) -> str:
        """See `Format.load_line`."""
        path = f"{folder}/model.safetensors"
        return f"from safetensors.torch import load_file; parameters = load_file({path!r})"

    def example(self, manifest: Manifest) -> str:
        """See `Format.example`."""
        return examples.plain(manifest.objective, manifest.tokenizer.end_of_text)
