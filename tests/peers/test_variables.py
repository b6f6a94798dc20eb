"""Options that are set by environment variables."""

import click
import pytest

from peers.cli import main as peer
from peers.model.cli import main as model

PROGRAMS = {"DUPT_PEER": peer, "DUPT_MODEL": model}


@pytest.mark.parametrize("prefix", PROGRAMS)
def test_each_option_is_set_by_the_variable_of_its_name(prefix: str, monkeypatch) -> None:
    """``--log-size`` of ``join`` by ``DUPT_PEER_JOIN_LOG_SIZE``, whatever the code calls it."""
    program = PROGRAMS[prefix]
    above = click.Context(program, auto_envvar_prefix=prefix)
    for name in program.list_commands(above):
        command = program.get_command(above, name)
        assert command is not None
        context = click.Context(command, above, info_name=name)
        for option in command.params:
            if isinstance(option, click.Option):
                [flag] = [each for each in option.opts if each.startswith("--")]
                variable = f"{prefix}_{name}_{flag[2:]}".replace("-", "_").upper()
                monkeypatch.setenv(variable, "this")
                assert option.resolve_envvar_value(context) == "this", variable
