"""The errors of dupt_swarm, and the exit code of each.

DuptError                      1   something failed; the message names the remedy
├── UsageError                 2   an option or argument is unusable
├── CorpusError                1   the corpus cannot be read, or there is too little of it
├── CheckpointError            1   a checkpoint cannot be read or written
├── FileError                  1   a file cannot be written
├── VerificationError          1   a model is not what the chain of its swarm's rounds leads to
├── NodeError                  1   the network node of this peer failed or did not answer in time
├── ManifestError             10   the manifest is wrong, or differs from the swarm's
├── UnreachableError          11   none of the given addresses leads to the swarm
├── AdmissionError            12   the swarm admits by invitation, and does not admit this peer
└── DeviceError               13   the device or its memory does not suit the model
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def install(extra: str) -> str:
    """The remedy where packages of ``extra`` are missing, after an installation by pip or by pipx."""
    from importlib.metadata import requires  # takes as long as all of `--help`

    mark = f'extra == "{extra}"'
    named = [each.partition(";")[0].strip() for each in requires("dupt_swarm") or () if each.endswith(mark)]
    packages = shlex.join(named)
    return f"`pip install {packages}`, after pipx `pipx inject dupt_swarm {packages}`"


class DuptError(Exception):
    """Base of all errors meant for users: one clear sentence that names the remedy.

    Attributes:
        settings: names of the settings that the remedy is about, as in `settings` and in the commands'
            options; what they are called on a command line is for the program to say.
    """

    exit_code = 1

    def __init__(self, message: str, *, setting: str | Sequence[str] = ()) -> None:
        """``setting``: one name, or several."""
        super().__init__(message)
        self.settings = (setting,) if isinstance(setting, str) else tuple(setting)


class UsageError(DuptError):
    """An option, an argument or a call is unusable as given."""

    exit_code = 2


class CorpusError(DuptError):
    """The corpus cannot be read, is not text, or is too short."""


class CheckpointError(DuptError):
    """A checkpoint cannot be read or written."""


class FileError(DuptError):
    """A file cannot be written; the one that was there before still is."""


class VerificationError(DuptError):
    """A model is not the one to which the chain of its swarm's rounds leads, or the chain is none."""


class NodeError(DuptError):
    """The node process of this peer failed, or did not answer in time."""


class ManifestError(DuptError):
    """A manifest is invalid, or is not the one that the swarm uses."""

    exit_code = 10


class UnreachableError(DuptError):
    """No initial peer could be reached."""

    exit_code = 11

    def __init__(self, reasons: dict[str, str]) -> None:
        """``reasons`` maps each address to why it failed."""
        self.reasons = reasons
        lines = [f"  {address}: {reason}" for address, reason in reasons.items()]
        super().__init__(
            "the swarm is unreachable; check the addresses, and that one of these peers is running:\n"
            + "\n".join(lines),
            setting="initial_peers",
        )

    def __reduce__(self) -> tuple[type[UnreachableError], tuple[dict[str, str]]]:
        return type(self), (self.reasons,)  # it crosses the pipe from the node


class AdmissionError(DuptError):
    """The swarm does not admit this peer: it has no invitation, or none that counts."""

    exit_code = 12


class DeviceError(DuptError):
    """The chosen device does not exist or is too small."""

    exit_code = 13
