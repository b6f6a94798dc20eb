"""Swarms in containers of our images."""

import os
import re
from functools import partial
from pathlib import Path

from tests.support.docker import Engine
from tests.support.smaller import make_smaller
from tests.support.texts import library
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
USER = 10001  # of our images
# As compose.yaml has it: nothing to write to but /tmp and the volumes, no capability and no way to one.
CAREFUL = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true")
soon = partial(wait_until, seconds=300, pause=0.5)


def readable(folder: Path) -> Path:
    """``folder``, to which others get through pytest's own."""
    for each in (folder.parent.parent, folder.parent, folder):
        each.chmod(0o755)
    return folder


def new_swarm(engine: Engine, folder: Path, *options: str) -> Path:
    """Have the image write a manifest to the new ``folder``, and make that smaller; its corpus.

    That is so much that a few minutes of training do not repeat it: a swarm that learns its text by heart
    refuses what comes of that, and stands still.
    """
    corpus = folder.with_name(f"{folder.name}-corpus")
    library(corpus, *(path.stem for path in Path(os.__file__).parent.glob("*.py")))
    folder.mkdir()
    os.chown(folder, USER, USER)
    places = ("-v", f"{folder}:/swarm", "-v", f"{corpus}:/corpus:ro")
    command = ("new", "/swarm/run.toml", "--preset", "tiny", "--corpus", "/corpus", *options)
    engine("run", "--rm", "--network", "none", *CAREFUL, *places, "dupt-peer:cpu", *command)
    make_smaller(folder / "run.toml")
    return corpus


def address_in(engine: Engine, container: str) -> str:
    """That of the first peer in it, once it is up."""
    found = soon(lambda: re.search(r"--initial-peers (\S+)", engine.logs(container)), "the first peer is up")
    assert found is not None
    return found[1]
