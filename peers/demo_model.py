"""What the demo leaves behind: its model, and the line that lets it write."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dupt_swarm.errors import CheckpointError, UsageError
from dupt_swarm.learning.export.origin import ORIGIN_FILE, Origin
from dupt_swarm.node.view import View

SWARM_NAME = "demo"
PROMPT = "Python is"


def check_place(folder: Path) -> None:
    """See beforehand whether the model can be kept in ``folder``; that of an earlier demo gives way.

    Raises:
        UsageError: something else is there, or nothing can be written there.
    """
    from dupt_swarm.models.saved_model import check_vacant

    if not _of_earlier_demo(folder):
        check_vacant(folder)
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not os.access(above, os.W_OK):
        raise UsageError(
            f"{above}: nothing can be written there; choose another place for the demo's model",
            setting="model",
        )


def keep_model(peers: Sequence[Path], names: Sequence[str], folder: Path) -> None:
    """Write to ``folder`` the newest state that one of the ``peers`` has saved in its folder.

    Args:
        peers: folders with checkpoints.
        names: of those who made it.
        folder: see `check_place`.
    """
    from dupt_swarm.models.pulling import origin_of
    from dupt_swarm.models.saved_model import SavedModel
    from dupt_swarm.node.messages import StateName

    model = max(map(SavedModel.load, peers), key=lambda model: model.state.swarm_tokens)
    state = StateName(model.state.round, model.state.swarm_tokens, model.state.digest)
    origin = origin_of(model.manifest, state, View(0.0, ())).model_copy(update={"peers": tuple(names)})
    if _of_earlier_demo(folder):
        shutil.rmtree(folder)
    replace(model, origin=origin).save(folder)


def generate_line(folder: Path) -> str:
    """What to paste into the shell that started this program, so that the model continues a text."""
    return shlex.join([_as_typed("dupt-model"), "generate", str(folder), "--prompt", PROMPT])


def _as_typed(program: str) -> str:
    """How to call a program that lies beside this Python: by its name where that finds it."""
    path = Path(sys.executable).with_name(program)
    found = shutil.which(program)
    if found and Path(found).exists() and Path(found).samefile(path):
        return program
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _of_earlier_demo(folder: Path) -> bool:
    try:
        return Origin.load(folder / ORIGIN_FILE).swarm_id.startswith(f"{SWARM_NAME}-")
    except CheckpointError:
        return False
