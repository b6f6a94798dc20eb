"""How errors become messages and exit codes."""

import click
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
