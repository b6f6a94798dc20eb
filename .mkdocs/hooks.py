"""What `mkdocs build` does besides: diagrams without another server, and all that `--help` says."""

from __future__ import annotations

import logging
import re
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url
from pymdownx.superfences import fence_code_format

import monitor.cli
import peers.cli
import peers.model.cli

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# `make docs` fetches this package without installing it, for the script that draws diagrams. Material by
# itself has readers load that script from another server.
WHEELS = sorted(Path(sys.prefix, "wheels").glob("sphinx_immaterial-*.whl"))
IN_WHEEL = "sphinx_immaterial/bundles/mermaid"
SCRIPT, LICENSE = "assets/mermaid/mermaid.min.js", "assets/mermaid/LICENSE"


def on_config(config: MkDocsConfig) -> None:
    """Have blocks of `mermaid` drawn if the script is there, and complete the descriptions of commands."""
    if WHEELS:
        fence = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
        config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]
    else:
        logging.getLogger("mkdocs").info("Diagrams stay text; `make docs` fetches what draws them")
    _complete(peers.cli.main, peers.cli.COMMANDS)
    _complete(peers.model.cli.main, peers.model.cli.COMMANDS)
    _complete(monitor.cli.main)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Serve the script, and its licence, from the site itself."""
    if WHEELS:
        with zipfile.ZipFile(WHEELS[-1]) as wheel:
            for path in (SCRIPT, LICENSE):
                content = wheel.read(f"{IN_WHEEL}/{Path(path).name}")
                files.append(File.generated(config, path, content=content))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load the script, which has some megabytes, only where a page has a diagram."""
    del config
    if 'class="mermaid"' not in output:
        return output
    script = f'<script src="{get_relative_url(SCRIPT, page.url)}"></script>'
    return output.replace("</body>", f"{script}</body>")


def _complete(command: click.Command, first_lines: Mapping[str, str] | None = None) -> None:
    """Change what mkdocs-click would leave out or spoil.

    It shows no epilog, takes ``<NAME>`` for HTML, and a docstring's first line for a command's summary.
    """
    said = "\n\n".join(part for part in (command.help, command.epilog) if part)
    command.help, command.epilog = re.sub(r"<(?=[A-Z])", "&lt;", said), None
    if isinstance(command, click.Group):
        context = click.Context(command, **command.context_settings)
        for name in command.list_commands(context):
            if (sub := command.get_command(context, name)) is not None:
                sub.short_help = (first_lines or {}).get(name) or sub.get_short_help_str(limit=200)
                _complete(sub)
