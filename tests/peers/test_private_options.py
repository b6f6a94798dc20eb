"""`--private` and its numbers."""

import json
import sys
from dataclasses import asdict

import click
import pytest
from click.testing import CliRunner

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.errors import install
from dupt_swarm.settings import PrivacySettings
from peers.private_options import private_options, take_private


@click.command()
@private_options
@command_errors
def program(**chosen: object) -> None:
    """Prints the settings that it makes of them."""
    privacy = take_private(chosen)["privacy"]
    click.echo(json.dumps(privacy and asdict(privacy)))


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ([], None),
        (["--private"], PrivacySettings()),
        (
            ["--private", "--private-noise", "3", "--private-clip", "0.5", "--private-epsilon", "8"],
            PrivacySettings(noise=3.0, clip=0.5, epsilon=8.0),
        ),
        (["--private", "--private-delta", "1e-7"], PrivacySettings(delta=1e-7)),
    ],
)
def test_options_become_settings(arguments: list[str], settings: PrivacySettings | None) -> None:
    """What is not said is as the settings have it."""
    result = CliRunner().invoke(program, arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(result.output) == (settings and asdict(settings))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--private-noise", "3"], "add --private (--private-noise)"),
        (["--private", "--private-noise", "nan"], "(--private-noise)"),
        (["--private", "--private-epsilon", "0"], "(--private-epsilon)"),
        (["--private", "--private-clip", "-1"], "(--private-clip)"),
        (["--private", "--private-delta", "1"], "(--private-delta)"),
    ],
)
def test_what_means_nothing_is_refused(arguments: list[str], named: str) -> None:
    """Exit code 2, and the option that the remedy is about: nobody is private by mistake, or not."""
    result = CliRunner().invoke(program, arguments)
    assert result.exit_code == 2
    assert named in result.output


def test_without_the_accountant_nobody_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is said before the swarm is joined, with what to install."""
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    result = CliRunner().invoke(program, ["--private"])
    assert result.exit_code == 2
    assert install("private") in result.output
