"""``dupt-peer demo``: a first peer, three oracles and the monitor on this machine, on local text."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.disk.folders import folder_of
from dupt_swarm.errors import CheckpointError, DuptError, UsageError
from dupt_swarm.learning.export.origin import ORIGIN_FILE, Origin
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.node.messages import StateName
from dupt_swarm.node.view import View
from peers import new
from peers.interruption import Interruption
from peers.processes import LocalProcesses

if TYPE_CHECKING:
    from peers.screen.demo import DemoScreen


SWARM_NAME = "demo"
ORACLES = ("library", "manual", "packages")  # by their corpora
PROMPT = "Python is"
LOOPBACK = "/ip4/127.0.0.1/tcp/0"
LIBRARY_BYTES = 3_000_000


@click.command("demo")
@click.option(
    "--rounds", type=click.IntRange(1), default=16, show_default=True, help="Rounds of each oracle."
)
@click.option(
    "--model",
    type=UserPath(path_type=Path),
    default=Path("demo-model"),
    show_default=True,
    metavar="DIR",
    help="Where the model stays; that of an earlier demo is replaced.",
)
@command_errors
def command(rounds: int, model: Path) -> None:
    """Watch a small swarm learn on this machine; it ends by itself and leaves nothing but its model."""
    from peers.screen.demo import DemoScreen

    check_place(model)
    with Interruption() as interruption:
        folder = Path(tempfile.mkdtemp(prefix="dupt-demo-"))
        try:
            screen = DemoScreen()
            run(folder, rounds, model, screen)
            screen.say(f"\nThe model is in {model}. Let it continue a text:\n\n{generate_line(model)}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    interruption.exit_if_received()


def run(folder: Path, rounds: int, model: Path, screen: DemoScreen) -> None:
    """Start everything, show it, wait for the end, keep the model, and summarise.

    Raises:
        DuptError: an oracle failed, or did not learn.
    """
    corpora = write_corpora(folder / "corpora")
    screen.say(f"three private corpora: {', '.join(path.name for path in corpora)}")
    text = TextFiles(folder / "corpora")
    manifest = new.write(folder / "run.toml", "tiny", new.read_all([text]), name=SWARM_NAME, seed=0)
    screen.say(f"one manifest: swarm {manifest.swarm_id}")
    with LocalProcesses(folder / "logs") as processes:
        processes.start(
            "bootstrap",
            *("dupt-peer", "bootstrap", str(folder / "run.toml"), "--json"),
            *("--host-maddrs", LOOPBACK, "--state-dir", str(folder / "bootstrap")),
        )
        address = json.loads(processes.first_line("bootstrap"))["addresses"][0]
        screen.say(f"the first peer listens on {address}")
        processes.start(
            "monitor",
            *("dupt-monitor", "--initial-peers", address, "--port", "0"),
            *("--state-dir", str(folder / "monitor")),
        )
        oracles = {
            path.name: processes.start(
                path.name,
                *("dupt-peer", "join", "--initial-peers", address, "--corpus", str(path)),
                *("--host-maddrs", LOOPBACK, "--state-dir", str(folder / path.name)),
                *("--name", path.name, "--rounds", str(rounds), "--json"),
                # Each oracle gets its share of the cores, as it would on a machine of its own.
                OMP_NUM_THREADS=str(max(1, (os.cpu_count() or 1) // len(corpora))),
            )
            for path in corpora
        }
        page = processes.first_line("monitor").removesuffix("metrics")
        screen.say(f"the swarm's page: {page}")
        screen.follow(address, rounds, lambda: any(oracle.poll() is None for oracle in oracles.values()))
        results = {name: _result(name, processes) for name in oracles}
    saved = [folder_of(folder / name, manifest.swarm_id, "oracle") for name in oracles]
    first = folder_of(folder / "bootstrap", manifest.swarm_id, "bootstrap")
    keep_model([first, *saved], model)
    screen.sum_up(results)
    worse = [name for name, result in results.items() if not _learnt(result)]
    if worse:
        raise DuptError(f"the held-out loss of {', '.join(worse)} did not fall; run it with more --rounds")


def write_corpora(folder: Path) -> list[Path]:
    """Three texts of different kinds that every Python installation has: a folder of files each."""
    import pydoc_data.topics  # 700 kB of text

    manual = dict(pydoc_data.topics.topics)
    library: dict[str, str] = {}
    for source in sorted(Path(os.__file__).parent.glob("*.py")):
        if sum(map(len, library.values())) < LIBRARY_BYTES:
            library[source.stem] = source.read_text(encoding="utf-8", errors="replace")
    packages = {
        distribution.metadata["Name"]: str(distribution.metadata.json.get("description", ""))
        for distribution in importlib.metadata.distributions()
    }
    written = []
    for name, documents in (("manual", manual), ("library", library), ("packages", packages)):
        (folder / name).mkdir(parents=True)
        for title, text in documents.items():
            if len(text) > 100:
                (folder / name / f"{title}.txt").write_text(text, encoding="utf-8")
        written.append(folder / name)
    return written


def _result(name: str, processes: LocalProcesses) -> dict[str, Any]:
    output, code = processes.finish(name)
    if code != 0:
        raise DuptError(f"oracle {name} ended with exit code {code}:\n{processes.log_tail(name)}")
    result: dict[str, Any] = json.loads(output)
    if None in (result["heldout_loss_before"], result["heldout_loss_after"]):
        raise DuptError(f"oracle {name} has no held-out loss that is a number; run the demo again")
    return result


def _learnt(result: dict[str, Any]) -> bool:
    return bool(result["heldout_loss_after"] < result["heldout_loss_before"])


def check_place(folder: Path) -> None:
    """See beforehand whether the model can be kept in ``folder``; that of an earlier demo gives way.

    Raises:
        UsageError: something else is there, or nothing can be written there.
    """
    from dupt_swarm.models.saved_model import check_vacant

    if not _of_earlier_demo(folder):
        check_vacant(folder)
    place = folder.resolve()
    above = next(parent for parent in place.parents if parent.exists())
    for written in (above, place):
        if written.exists() and not os.access(written, os.W_OK):
            raise UsageError(
                f"{written}: nothing can be written there; choose another place for the demo's model",
                setting="model",
            )


def keep_model(peers: Sequence[Path], folder: Path) -> None:
    """Write to ``folder`` the newest state that one of the ``peers`` has saved in its folder.

    Args:
        peers: folders with checkpoints.
        folder: see `check_place`.
    """
    from dupt_swarm.models.pulling import origin_of
    from dupt_swarm.models.saved_model import SavedModel

    model = max(map(SavedModel.load, peers), key=lambda model: model.state.swarm_tokens)
    state = StateName(model.state.round, model.state.swarm_tokens, model.state.digest)
    origin = origin_of(model.manifest, state, View(0.0, ())).model_copy(update={"peers": ORACLES})
    if _of_earlier_demo(folder):
        for file in folder.iterdir():  # the folder stays: it may be a link
            file.unlink()
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
    """Whether an earlier demo's model is in ``folder``, and nothing else that would go with it."""
    from dupt_swarm.models.saved_model import FILES

    try:
        origin = Origin.load(folder / ORIGIN_FILE)
    except CheckpointError:
        return False
    # Anybody may call a swarm `demo`.
    made_here = re.fullmatch(f"{SWARM_NAME}-[0-9a-f]+", origin.swarm_id) and origin.peers == ORACLES
    return bool(made_here) and all(path.name in FILES and path.is_file() for path in folder.iterdir())
