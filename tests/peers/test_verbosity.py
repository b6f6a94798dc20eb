import logging
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from peers.lazy_group import OURS, with_verbosity


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Takes back what ``-v`` does to the loggers of this process."""
    handlers = set(logging.getLogger().handlers)
    yield
    for handler in set(logging.getLogger().handlers) - handlers:
        logging.getLogger().removeHandler(handler)
    for name in OURS:
        logging.getLogger(name).setLevel(logging.NOTSET)


@click.command()
def speak() -> None:
    """Logs two lines of its own, and one of another library."""
    logging.getLogger("dupt_swarm.node.heard").info("round 3 averaged")
    logging.getLogger("dupt_swarm.node.heard").debug("too much")
    logging.getLogger("somebody.else").info("chatter")
    click.echo("data")


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_the_story_is_told_on_request(option: str) -> None:
    """With ``-v`` our lines from INFO on appear on stderr; stdout stays for data."""
    result = CliRunner().invoke(with_verbosity(speak), [option])
    assert result.stdout == "data\n"
    assert [line.split(" ", 1)[1] for line in result.stderr.splitlines()] == ["round 3 averaged"]


def test_silence_is_the_default() -> None:
    """Without ``-v`` nothing but warnings is said."""
    result = CliRunner().invoke(with_verbosity(speak), [])
    assert (result.stdout, result.stderr) == ("data\n", "")


def test_the_option_is_added_once() -> None:
    """A command that is looked up twice has one ``-v``."""
    assert str(CliRunner().invoke(with_verbosity(with_verbosity(speak)), ["--help"]).output).count("-v,") == 1
