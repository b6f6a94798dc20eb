"""Options that several programs have."""

import click
import pytest
from click.testing import CliRunner

from dupt_swarm.settings import NodeSettings
from peers import options
from peers.cli import main


@click.command()
@options.max_upload
@options.max_download
def program(**chosen: int | None) -> None:
    """Prints what it was given."""
    click.echo(f"{chosen['max_upload']} {chosen['max_download']}")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10MB", 10_000_000),
        ("500kB", 500_000),
        ("1.25 MB", 1_250_000),
        ("2GB", 2_000_000_000),
        ("2MB/s", 2_000_000),
        ("123456", 123456),
        ("100000B", 100_000),
    ],
)
def test_rates_are_bytes_per_second(text: str, rate: int) -> None:
    """With the usual prefixes, or none."""
    result = CliRunner().invoke(program, ["--max-upload", text])
    assert (result.output, result.exit_code) == (f"{rate} None\n", 0)


@click.command()
@options.log_rounds
@options.log_size
def logging(**chosen: int) -> None:
    """Prints the settings that it makes of them."""
    settings = options.pick(NodeSettings, chosen, role="oracle")
    click.echo(f"{settings.log_rounds} {settings.log_bytes}")


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [([], "10 1073741824"), (["--log-rounds", "30", "--log-size", "500MB"], "30 500000000")],
)
def test_how_much_of_the_log_is_kept(arguments: list[str], kept: str) -> None:
    """Without them the settings' own defaults."""
    assert CliRunner().invoke(logging, arguments).output == f"{kept}\n"


@pytest.mark.parametrize("text", ["10Mb", "10Mbit", "10mb", "fast", "-1MB", "1e6", "", "nan"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    """Bits above all: the message says how to write it, and what a link in bits means."""
    result = CliRunner().invoke(program, ["--max-download", text])
    assert result.exit_code == 2
    assert "--max-download" in result.output
    words = " ".join(result.output.split())
    assert "is no rate in bytes per second; write it like 10MB or 500kB" in words
    assert "a link of 100 Mbit/s moves 12.5MB" in words


def test_too_little_is_refused() -> None:
    """A rate at which no chunk would arrive in time is refused at once."""
    result = CliRunner().invoke(program, ["--max-upload", "99kB"])
    assert result.exit_code == 2
    assert "less than 100kB per second" in result.output


def test_help_says_bytes() -> None:
    """Nobody should have to guess the unit."""
    assert CliRunner().invoke(program, ["--help"]).output.count("bytes (not bits)") == 2


@pytest.mark.parametrize("text", ["nan", "-nan"])
def test_what_is_no_number_is_refused(text: str) -> None:
    """A range does not exclude it by itself: neither is it below the least, nor above the most."""
    join = ("join", "--initial-peers", "nobody", "--corpus", "none")
    asked = [("invite", "run.toml", "--days"), ("new", "run.toml", "--lm-weight"), ("check", "--gpu-memory")]
    asked += [(*join, option) for option in ("--max-power", "--max-temperature", "--checkpoint-seconds")]
    for *command, option in asked:
        result = CliRunner().invoke(main, [*command, option, text])
        assert result.exit_code == 2
        assert f"Invalid value for '{option}'" in result.output
