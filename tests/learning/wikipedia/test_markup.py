"""What is left of an article without its markup."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from dupt_swarm.learning.wikipedia import markup
from dupt_swarm.learning.wikipedia.markup import plain_text


def body(wikitext: str) -> str:
    """The text below the title."""
    text = plain_text("Bear", wikitext, ["Datei", "Kategorie"])
    return text.removeprefix("Bear\n\n")


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("A '''bear''' and ''its'' '''''bridge'''''", "A bear and its bridge"),
        ("l''''ours''' isn't", "l'ours isn't"),
        ("a [[bear]], [[bear|bears]], [[:Kategorie:Bear|all]]", "a bear, bears, all"),
        ("see [http://example.org the site] [http://example.org]", "see the site"),
        ("one<ref>a book</ref> two<ref name=a /> three", "one two three"),
        ("A bear ({{lang|la|ursus}}; {{IPA|x}}) walks", "A bear walks"),
        ("&Sigma;&nbsp;&amp; <!-- hidden -->co", "Σ\u00a0& co"),
        ("one<br />two<br>three", "one two three"),
        ("* one\n# two\n:three", "one\ntwo\nthree"),
        ("__NOTOC__ __KEIN_INDEX__ but __init__", "but __init__"),
        ("before\n{| class=wikitable\n! a\n|-\n| [[b]]\n|}\nafter", "before\n\nafter"),
        ("before\n{| class=wikitable\n| never closed", "before"),
        ("<gallery>Datei:a.jpg|A bear</gallery>text<math>x^2</math>", "text"),
        ("[[Datei:a.jpg|mini|A [[bear]]]]text[[Category:X]][[kategorie:Y]]", "text"),
        ("[[Fichier:un ours.JPG|vignette|Un ours]]text", "text"),
        ("text [[bear", "text [[bear"),
        ("one\n== A ==\ntwo {{x|\n== B ==\nthree }} four\n== C ==\nfive", "one\n\nA\ntwo four\n\nC\nfive"),
        ("one\n{|\n| two\n== A ==\n|}\nthree", "one\n\nthree"),
        ("{|\n| two\n== A ==\n|}\nthree", "three"),
        ("one\n:{|\n| two\n== A ==\n|}\nthree", "one\n\nthree"),
        ("one\n{{Table}}\n| two\n|-\n| three\n|}\nfour", "one\n\nfour"),
        ("one {{x\n|two\nthree", "one {{x\nthree"),
        ("one <!--\n== A ==\ntwo --> three <!-- four", "one three"),
    ],
)
def test_markup_is_removed(wikitext: str, text: str) -> None:
    """Running text stays; templates, tables, references and pictures go, whatever the wiki calls them."""
    assert body(wikitext) == text


@pytest.mark.parametrize(
    "text",
    [
        "f() and g( ) or (,) and 関数（）",
        "|x| = 3 is a norm\n|-1| = 1",
        "5\u00a0km\u3000東京\u2028north",
    ],
)
def test_text_stays(text: str) -> None:
    """Also what resembles the remains of markup, and every kind of space within a line but runs of blanks."""
    assert body(text) == text


def test_blanks_take_no_time() -> None:
    """However many there are: an article may be one line of them."""
    blanks = 20_000 * " "
    before = time.process_time()
    assert body(f"a{blanks}({blanks}b") == "a ( b"
    assert body(f"a{20_000 * chr(10)}b") == "a\n\nb"
    assert time.process_time() - before < 5


def test_an_article_begins_with_its_title() -> None:
    """Then comes its text, with a heading in a line of its own."""
    assert plain_text("Bear", "A bear.\n\n\n\n== Life ==\nIt walks.") == "Bear\n\nA bear.\n\nLife\nIt walks."


def test_headings_with_nothing_below_are_left_out() -> None:
    """Also where only such headings, or what is left out itself, lie below."""
    article = (
        "text\n== Full ==\n=== Below ===\nmore\n== Hollow ==\n=== Hollow too ===\n{{x}}\n== References ==\n"
    )
    assert body(article + "<references />\n[[Kategorie:Bear]]") == "text\n\nFull\n\nBelow\nmore"


@pytest.mark.parametrize(
    "wikitext", ["{{Infobox|name=Bear}}", "", "== Title ==", "[[Datei:a.jpg|mini|text]]"]
)
def test_an_article_without_text_is_none(wikitext: str) -> None:
    """Its title alone is no document."""
    assert plain_text("Bear", wikitext, ["Datei"]) == ""


def test_the_program_answers_line_by_line() -> None:
    """One line of JSON for each, null where that is impossible; it ends when its input does."""
    asked: list[dict[str, Any]] = [
        {"title": "A", "wikitext": "'''a'''", "namespaces": []},
        {"title": "no text"},
        {"title": "B", "wikitext": "[[Datei:x|mini]]b\nc", "namespaces": ["Datei"]},
    ]
    lines = "".join(json.dumps(one) + "\n" for one in asked)
    program = [sys.executable, "-P", str(markup.__file__)]
    done = subprocess.run(program, input=lines, capture_output=True, text=True, check=True, timeout=60)
    assert [json.loads(line) for line in done.stdout.splitlines()] == ["A\n\na", None, "B\n\nb\nc"]
