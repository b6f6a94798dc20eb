"""The docs as a site: built strictly, complete as to commands, and served by one server alone."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.support.commands import PROGRAMS, commands_of
from tests.support.imports import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the site, in which mkdocs found nothing to warn about."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("program", PROGRAMS)
def test_site_has_every_command_and_option(site: Path, program: str) -> None:
    """The reference has a section for each command, with all its options and what stands below them."""
    page = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    sections = dict(re.findall(r'<h\d id="([\w-]+)".*?</h\d>(.*?)(?=<h\d|</article>)', page, re.DOTALL))
    for context in commands_of(program):
        path, command = context.command_path, context.command
        shown = html.unescape(re.sub(r"<[^>]+>", "", sections[path.replace(" ", "-")]))
        options = [option for option in command.params if isinstance(option, click.Option)]
        names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
        assert {name for name in names if not re.search(rf"{re.escape(name)}(?![\w-])", shown)} == set(), path
        below = (command.epilog or "").split()
        assert [word for word in below if word not in shown.split()] == [], path


def test_site_loads_nothing_from_other_servers(site: Path) -> None:
    """No page has a script, a style or a picture of another server."""
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert len(pages) > 30
    foreign = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*")
    found = {path.name: foreign.findall(text) for path, text in pages.items()}
    assert {name: tags for name, tags in found.items() if tags} == {}
