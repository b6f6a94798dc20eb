"""How errors become messages and exit codes."""

import errno
import os

import click
import pytest
from click.testing import CliRunner

from dupt_swarm.command_line.exit_codes import command_errors, message
from dupt_swarm.errors import CorpusError


@click.command()
@click.option("--field")
@click.option("--swarm", "swarm_id")
@command_errors
def command(field: str, swarm_id: str) -> None:
    """Fails with a remedy about two of its settings, and one that it does not have."""
    del field, swarm_id
    raise CorpusError("no \x1b[31mfield; name it", setting=("field", "swarm_id", "state_dir"))


def test_an_error_names_the_options_of_its_remedy() -> None:
    """Those that the command has, as they are written; what a terminal would obey is replaced."""
    failed = CliRunner().invoke(command)
    assert failed.exit_code == 1
    assert failed.output == "error: no �[31mfield; name it (--field, --swarm)\n"


def test_outside_of_a_command_there_are_no_options() -> None:
    """A program of somebody's own calls its settings as it likes."""
    assert message(CorpusError("no field; name it", setting="field")) == "no field; name it"


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "check its permissions"),
        (errno.EROFS, "check its permissions"),
        (errno.ENOSPC, "free space there"),
        (errno.ENAMETOOLONG, "check the path and the disk"),
    ],
)
def test_what_the_system_refuses_is_an_error_with_a_remedy(number: int, remedy: str) -> None:
    """It names the path, as it can be shown, and what helps."""

    @click.command()
    @command_errors
    def refused() -> None:
        raise OSError(number, os.strerror(number), "a\x1bb")

    failed = CliRunner().invoke(refused)
    assert (failed.exit_code, failed.output) == (1, f"error: a�b: {os.strerror(number)}; {remedy}\n")


@pytest.mark.parametrize("error", [BrokenPipeError(errno.EPIPE, "x", "pipe"), OSError(errno.EBADF, "x")])
def test_what_concerns_no_path_is_not_for_users(error: OSError) -> None:
    """Nobody could do anything about it: it is a mistake in the program, or a reader that is gone."""

    @click.command()
    @command_errors
    def broken() -> None:
        raise error

    # click itself ends quietly with 1 where the reader is gone.
    assert "error:" not in CliRunner().invoke(broken).output
