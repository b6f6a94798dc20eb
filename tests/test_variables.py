"""Options that are set by environment variables."""

import click
import pytest

from tests.support.commands import PROGRAMS, commands_of

SHORT = {"--initial-peers", "--host-maddrs", "--announce-maddrs", "--allow-host", "--hours"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_option_is_set_by_the_variable_of_its_name(program: str, monkeypatch) -> None:
    """``--log-size`` of ``join`` by ``DUPT_PEER_JOIN_LOG_SIZE``, whatever the code calls it.

    And ``--allow-host`` of the monitor by ``DUPT_MONITOR_ALLOW_HOST``, which compose.yaml sets.
    """
    for context in commands_of(program):
        for option in context.command.params:
            if isinstance(option, click.Option):
                [flag] = [each for each in option.opts if each.startswith("--")]
                words = (*context.command_path.split(), flag[2:])
                variable = "_".join(words).replace("-", "_").upper()
                monkeypatch.setenv(variable, "this")
                assert option.resolve_envvar_value(context) == "this", variable


@pytest.mark.parametrize("program", PROGRAMS)
def test_several_in_one_variable(program: str) -> None:
    """Addresses, hosts and hours are separated by spaces; paths and words, which may have some, are not."""
    for context in commands_of(program):
        for option in context.command.params:
            if isinstance(option, click.Option) and option.multiple:
                short = option.opts[0] in SHORT
                expected = ["a", "b;c", "d"] if short else ["a b", "c d"]
                assert list(option.type.split_envvar_value("a b;c d")) == expected, option.opts
