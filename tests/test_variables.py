"""Options that are set by environment variables."""

import click
import pytest

from monitor.cli import main as monitor
from peers.cli import main as peer
from peers.model.cli import main as model

PROGRAMS = {"DUPT_PEER": peer, "DUPT_MODEL": model}


def assert_variables(command: click.Command, context: click.Context, prefix: str, monkeypatch) -> None:
    """Each of the command's options is set by a variable with this beginning and the option's own name."""
    for name, sub in command.commands.items() if isinstance(command, click.Group) else ():
        assert_variables(sub, click.Context(sub, context, info_name=name), f"{prefix}_{name}", monkeypatch)
    for option in command.params:
        if isinstance(option, click.Option):
            [flag] = [each for each in option.opts if each.startswith("--")]
            variable = f"{prefix}_{flag[2:]}".replace("-", "_").upper()
            monkeypatch.setenv(variable, "this")
            assert option.resolve_envvar_value(context) == "this", variable


@pytest.mark.parametrize("prefix", PROGRAMS)
def test_each_option_is_set_by_the_variable_of_its_name(prefix: str, monkeypatch) -> None:
    """``--log-size`` of ``join`` by ``DUPT_PEER_JOIN_LOG_SIZE``, whatever the code calls it."""
    program = PROGRAMS[prefix]
    above = click.Context(program, auto_envvar_prefix=prefix)
    for name in program.list_commands(above):
        command = program.get_command(above, name)
        assert command is not None
        context = click.Context(command, above, info_name=name)
        assert_variables(command, context, f"{prefix}_{name}", monkeypatch)


def test_so_is_each_of_the_monitors(monkeypatch) -> None:
    """``--allow-host`` by ``DUPT_MONITOR_ALLOW_HOST``, which compose.yaml sets."""
    assert_variables(
        monitor, click.Context(monitor, auto_envvar_prefix="DUPT_MONITOR"), "DUPT_MONITOR", monkeypatch
    )
