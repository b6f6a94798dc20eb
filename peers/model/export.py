"""``dupt-model export``: a model as a folder that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.manifest import Manifest
from peers.interruption import Interruption

if TYPE_CHECKING:
    from dupt_swarm.learning.export.learned import Format

# As `learning.export.export.FORMATS`, which imports torch.
FORMATS = ("openai-gpt", "gpt2", "llama", "cohere", "bert", "safetensors", "gguf")
TYPES = ("f32", "f16", "q8_0")  # as `learning.export.gguf.TYPES`


@click.command("export")
@click.argument("model", type=UserPath(path_type=Path))
@click.argument("folder", metavar="DIR", type=UserPath(path_type=Path))
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    default=None,
    help="openai-gpt, gpt2, llama, cohere or bert for `transformers`, by the model's parts; safetensors: "
    "dupt_swarm's own names; gguf: for llama.cpp. [default: the one that fits, of the others]",
)
@click.option(
    "--type", type=click.Choice(TYPES), default=None, help="Of the weights in a gguf. [default: f16]"
)
@command_errors
def command(model: Path, folder: Path, format: str | None, type: str | None) -> None:
    """Write MODEL into DIR, a new folder: parameters, tokenizer, and a card that tells its origin."""
    with Interruption():
        from dupt_swarm.models.exporting import export
        from dupt_swarm.models.saved_model import SavedModel, check_vacant

        check_vacant(folder)
        saved = SavedModel.load(model)
        form = export(saved, folder, format, type)
    _say(folder, form, saved.manifest)


def _say(folder: Path, form: Format, manifest: Manifest) -> None:
    files = sorted(folder.iterdir())
    size = sum(file.stat().st_size for file in files) / 1e6
    click.echo(
        f"wrote {folder} ({form.name}, {size:,.1f} MB): {', '.join(file.name for file in files)}", err=True
    )
    click.echo(f"load it: {form.load_line(str(folder), manifest)}", err=True)
