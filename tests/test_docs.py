"""The docs as a whole: every page has its place, every public name its entry, and all of it stays short."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml

import dupt_swarm
from tests.support.imports import ROOT

DOCS = ROOT / "docs"
AT_THE_TOP = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES = sorted(DOCS.rglob("*.md"))
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
MOST_WORDS = 20_000
MOST_LINES_OF_README = 150
MOST_LINES_OF_A_DECISION = 10
COLUMNS = 116
FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)


def words_of(text: str) -> int:
    """How many words there are outside fenced code: those that have a letter."""
    return sum(1 for word in FENCED.sub("", text).split() if re.search(r"[A-Za-z]", word))


def anchors_of(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = sum(1 for other in found if re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other))
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def bodies_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each decision's heading and the lines under it that are not empty; no tables at the end of the file.

    A line that is too long counts as the lines that it would take.
    """
    lines = text.rstrip().splitlines()
    while lines and (lines[-1].startswith("|") or not lines[-1].strip()):
        del lines[-1]
    for section in re.split(r"^(?=#)", "\n".join(lines), flags=re.MULTILINE):
        heading, _, body = section.partition("\n")
        if heading.startswith("### "):
            wrapped = (wrap(line, COLUMNS) for line in body.splitlines())
            yield heading[4:], [line for lines in wrapped for line in lines]


def in_nav(entries: list[Any]) -> Iterator[str]:
    """The pages that a part of mkdocs.yml's navigation lists."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for inside in entry.values():
                yield from in_nav(inside if isinstance(inside, list) else [inside])


def by_name(path: Path) -> str:
    """What a document is called."""
    return path.relative_to(ROOT).as_posix()


def test_every_page_is_in_the_navigation() -> None:
    """mkdocs.yml lists each page in docs/ once, and no other."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(in_nav(settings["nav"])) == sorted(path.relative_to(DOCS).as_posix() for path in PAGES)


def test_public_names_have_a_docstring() -> None:
    """One that somebody wrote: dataclasses without any get their signature for it."""
    said = {name: getattr(dupt_swarm, name).__doc__ or f"{name}(" for name in dupt_swarm.__all__}
    assert [name for name, words in said.items() if words.startswith(f"{name}(")] == []


def test_reference_has_every_public_name() -> None:
    """docs/reference/python.md has each name of `dupt_swarm.__all__` once, and no other."""
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: dupt_swarm\.(\w+)$", text, re.MULTILINE)
    assert sorted(shown) == sorted([*dupt_swarm.__all__, "errors"])


def test_reference_has_every_program() -> None:
    """docs/reference/commands.md has each program that is installed, by the function that it calls."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^ +:module: (\S+)\n +:command: (\S+)\n +:prog_name: (\S+)$", text, re.MULTILINE)
    assert {name: f"{module}:{call}" for module, call, name in blocks} == project["scripts"]


def test_docs_are_short() -> None:
    """README, CHANGELOG, CONTRIBUTING and docs/ together can be read in two hours."""
    words = {by_name(path): words_of(path.read_text(encoding="utf-8")) for path in [*AT_THE_TOP, *PAGES]}
    assert sum(words.values()) <= MOST_WORDS, words


def test_readme_is_short() -> None:
    """It says what this is and where to go on; the rest stands in docs/."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES_OF_README


def missing_in_walk(steps: str) -> Iterator[str]:
    """The files, classes and functions in backticks that the package does not have.

    A method is looked for in the files that define its class.
    """
    package = ROOT / "dupt_swarm"
    sources = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    for name in re.findall(r"`([\w./]+)`", steps):
        if name.endswith(".py"):
            if re.sub("^rounds/", "network/rounds/", name) not in sources:
                yield name
            continue
        *owner, last = name.split(".")
        texts = [text for text in sources.values() if not owner or f"class {owner[0]}" in text]
        if not any(re.search(rf"(?:def|class) {last}\b", text) for text in texts):
            yield name


def broken_links_in(document: Path) -> Iterator[str]:
    """Its relative links that lead to no file, or to no heading in one."""
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", document.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = document.parent / file if file else document
        if not target.exists() or (anchor and anchor not in anchors_of(target.read_text(encoding="utf-8"))):
            yield link


def test_links_lead_somewhere() -> None:
    """Relative links name files that exist, and headings in them."""
    broken = {by_name(document): list(broken_links_in(document)) for document in [*AT_THE_TOP, *PAGES]}
    assert {name: links for name, links in broken.items() if links} == {}


def test_the_way_of_a_round_in_code_is_there() -> None:
    """What docs/architecture.md names of a round's way through the code exists under that name."""
    text = (DOCS / "architecture.md").read_text()
    steps = re.search(r"^1\. `optimizer/.*?(?=^## )", text, re.DOTALL | re.MULTILINE)
    assert steps is not None
    assert list(missing_in_walk(steps[0])) == []
    assert list(missing_in_walk("`rounds/nowhere.py`: `Participant.joined`, `Participant.nothing`")) == [
        "rounds/nowhere.py",
        "Participant.nothing",
    ]


def test_decisions_are_short() -> None:
    """A decision has at most ten lines under its heading; tables at the end of a file are not counted."""
    lines = {
        (by_name(document), heading): len(body)
        for document in DECISIONS
        for heading, body in bodies_of(document.read_text(encoding="utf-8"))
    }
    assert {heading: long for heading, long in lines.items() if long > MOST_LINES_OF_A_DECISION} == {}


def test_words_anchors_and_decisions_are_read() -> None:
    """What the tests above read of a document, of a small one."""
    code = "```sh\nnot words\n# no heading\n```\n"
    text = f"# One `x`\n\n### Two\na b 3 – c\n\n{code}\n### Two\nd\n\n| t |\n| --- |\n"
    assert words_of(text) == 9
    assert anchors_of(text) == {"one-x", "two", "two-1"}
    [first, second] = bodies_of(text.replace("# no heading\n", ""))
    assert first == ("Two", ["a b 3 – c", "```sh", "not words", "```"])
    assert second == ("Two", ["d"])
    assert list(in_nav(["a.md", {"B": ["b.md", {"C": "c.md"}]}])) == ["a.md", "b.md", "c.md"]


def test_diagrams_have_no_semicolons() -> None:
    """A semicolon ends a statement of mermaid: with one in a sentence, a diagram is not drawn."""
    fenced = re.compile(r"^```mermaid\n(.*?)^```", re.DOTALL | re.MULTILINE)
    diagrams = [
        (by_name(page), each) for page in PAGES for each in fenced.findall(page.read_text(encoding="utf-8"))
    ]
    assert diagrams
    assert [(page, line) for page, each in diagrams for line in each.splitlines() if ";" in line] == []
