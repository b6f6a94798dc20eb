"""What the last `join` from a state folder was asked for, so that a service can do the same."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from dupt_swarm.disk.files import write_secret
from dupt_swarm.errors import DuptError

FILE = "last-join.json"
# What else than options decides where a peer keeps what, and what it computes on.
VARIABLES = ("XDG_STATE_HOME", "XDG_CACHE_HOME", "CUDA_VISIBLE_DEVICES")
OPTIONS = "DUPT_PEER_JOIN_"
# The swarm's folder keeps it; there only its owner can read it, and it need not be repeated.
SECRET = "--invitation"


class LastJoin(BaseModel, frozen=True):
    """One call of ``dupt-peer join`` that has led into a swarm.

    Attributes:
        swarm_id: of the swarm.
        directory: where it was typed, which paths may be relative to.
        arguments: the words after ``dupt-peer``, without an invitation.
        variables: those of the environment that count, likewise.
    """

    swarm_id: str
    directory: Path
    arguments: tuple[str, ...]
    variables: dict[str, str]

    @classmethod
    def of_this_process(cls, swarm_id: str) -> LastJoin:
        """What this program was called with."""
        return cls(
            swarm_id=swarm_id,
            directory=Path.cwd(),
            arguments=_without(sys.argv[1:], SECRET),
            variables={
                name: value
                for name, value in sorted(os.environ.items())
                if (name.startswith(OPTIONS) or name in VARIABLES) and not name.endswith("_INVITATION")
            },
        )

    @classmethod
    def load(cls, state_dir: Path) -> LastJoin:
        """The one that was saved there.

        Raises:
            DuptError: there is none, or it cannot be read.
        """
        path = state_dir / FILE
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise DuptError(
                f"nobody has joined a swarm from {state_dir}: choose the folder in which `dupt-peer join` "
                "keeps its state, or run `dupt-peer join` once as you want it, and end it with Ctrl-C when "
                "it trains",
                setting="state_dir",
            ) from None
        except (OSError, ValidationError) as error:
            raise DuptError(
                f"{path}: cannot be read ({type(error).__name__}); run `dupt-peer join` once more, and end "
                "it with Ctrl-C when it trains"
            ) from error

    def save(self, state_dir: Path) -> None:
        """Keep it there, for the owner only.

        Raises:
            FileError: see `write_secret`.
        """
        write_secret(state_dir / FILE, self.model_dump_json(indent=2) + "\n")

    @property
    def command(self) -> tuple[str, ...]:
        """The words to start it with; the program is the one that runs now."""
        return (str(Path(shutil.which(sys.argv[0]) or sys.argv[0]).absolute()), *self.arguments)


def _without(words: Sequence[str], option: str) -> tuple[str, ...]:
    """``words`` without ``option`` and its value."""
    kept = []
    rest = iter(words)
    for word in rest:
        if word == option:
            next(rest, None)
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return tuple(kept)
