"""What of a stranger's text reaches a terminal."""

import pytest

from dupt_swarm.command_line.printable import one_line, printable


@pytest.mark.parametrize(
    "text",
    [
        "plain, 中文, עברית",
        "two\nlines\tand a tab",
        "10\N{NO-BREAK SPACE}000\N{NARROW NO-BREAK SPACE}€\N{EM SPACE}!",
        "می\N{ZERO WIDTH NON-JOINER}خواهم, क्\N{ZERO WIDTH JOINER}ष",
        "👩\N{ZERO WIDTH JOINER}🚀",
    ],
)
def test_writing_stays_as_it_is(text: str) -> None:
    """In any language, with its spaces and joiners."""
    assert printable(text) == text


@pytest.mark.parametrize(
    "character",
    ["\x00", "\x07", "\x08", "\r", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028", "\ue000", "\ud800"],
)
def test_what_a_terminal_obeys_is_replaced(character: str) -> None:
    """Escapes, other controls, changes of direction, what is no character."""
    assert printable(f"a{character}b") == "a�b"


def test_a_line_stays_one() -> None:
    """Breaks and tabs become spaces."""
    assert one_line("a\nb\tc\r\nd\x1be") == "a b c d�e"
