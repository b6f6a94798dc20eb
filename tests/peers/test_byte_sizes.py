"""Amounts of bytes on the command line."""

import click
import pytest
from click.testing import CliRunner

from peers.options import BYTES, parse_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("7B", 7),
        ("500kB", 500_000),
        ("20GB", 20 * 10**9),
        ("20 gb", 20 * 10**9),
        ("20G", 20 * 10**9),
        ("1.5GiB", 3 << 29),
        ("2KiB", 2048),
        ("0.25MB", 250_000),
        ("1TiB", 1 << 40),
    ],
)
def test_decimal_and_binary_units(text: str, expected: int) -> None:
    """Decimal units count in thousands, binary ones in 1024s, in any case, with or without the B."""
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "GB", "-1GB", "20 apples", "1e9", "nan", "0", "0.0001kB", "1,5GB", "٣"),
        *("9" * 400, "9" * 400 + "TB", "1e30TB", "10000000TB", "9" * 30),
    ],
)
def test_what_is_no_amount_is_refused_with_an_example(text: str) -> None:
    """The message names what was given and how to write it."""
    with pytest.raises(ValueError, match="20GB") as caught:
        parse_bytes(text)
    assert f"`{text}`" in str(caught.value)


def test_as_an_option() -> None:
    """An option of this type gives an int, and a usage error (2) for what is no amount."""

    @click.command()
    @click.option("--most", type=BYTES, default=5)
    def command(most: int) -> None:
        click.echo(repr(most))

    run = CliRunner().invoke
    assert run(command, ["--most", "2kB"]).output == "2000\n"
    assert run(command, []).output == "5\n"
    refused = run(command, ["--most", "much"])
    assert refused.exit_code == 2
    assert "write it like" in refused.output
