"""``dupt-model export``: a model as a folder that other programs read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dupt_swarm.command_line.exit_codes import command_errors
from peers.interruption import Interruption

if TYPE_CHECKING:
    from dupt_swarm.learning.export.learned import Format
    from dupt_swarm.learning.export.origin import Origin
    from dupt_swarm.manifest import Manifest
    from dupt_swarm.saved_model import SavedModel

FORMATS = ("openai-gpt", "gpt2", "safetensors")  # as `learning.export.export.FORMATS`, which imports torch


@click.command("export")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    default=None,
    help="openai-gpt for post-norm models, gpt2 for pre-norm ones, both for `transformers`; safetensors: "
    "dupt_swarm's own names. [default: the one that fits]",
)
@command_errors
def command(model: Path, folder: Path, format: str | None) -> None:
    """Write MODEL into DIR, a new folder: parameters, tokenizer, and a card that tells its origin."""
    with Interruption():
        import torch

        from dupt_swarm.learning.export.export import choose_format, export
        from dupt_swarm.learning.export.learned import Learned
        from dupt_swarm.saved_model import SavedModel, check_vacant, new_model_folder

        check_vacant(folder)
        saved = SavedModel.load(model)
        form = choose_format(format, saved.manifest.model)
        built = saved.build(torch.device("cpu"))
        with new_model_folder(folder) as unfinished:
            export(unfinished, Learned(built, saved.manifest, saved.tokenizer, _origin(saved)), form)
    _say(folder, form, saved.manifest)


def _say(folder: Path, form: Format, manifest: Manifest) -> None:
    files = sorted(folder.iterdir())
    size = sum(file.stat().st_size for file in files) / 1e6
    click.echo(
        f"wrote {folder} ({form.name}, {size:,.1f} MB): {', '.join(file.name for file in files)}", err=True
    )
    click.echo(f"load it: {form.load_line(str(folder), manifest)}", err=True)


def _origin(saved: SavedModel) -> Origin:
    """What the folder tells, or of a checkpoint what it is."""
    from dupt_swarm.learning.export.origin import Measured, Origin

    state, told = saved.state, saved.origin
    known = Origin(saved.manifest.swarm_id, state.round, state.swarm_tokens, state.digest)
    if told is None:
        return known
    return replace(
        known,
        swarm_id=told.swarm_id,
        peers=told.peers,
        evaluations=tuple(
            Measured(
                dataset=found.dataset,
                bits_per_byte=found.bits_per_byte,
                loss_nats=found.loss_nats,
                accuracy=found.accuracy,
                round=found.round,
                evaluator=found.evaluator,
            )
            for found in told.evaluations
            if found.bits_per_byte is not None
        ),
        pulled_at=told.pulled_at,
        version=told.version,
    )
