"""What we rely on in hivemind without being promised it."""

import ast
from importlib.metadata import version
from pathlib import Path

import pytest

import dupt_swarm.network
from dupt_swarm.network.p2p import hivemind_internals
from dupt_swarm.network.p2p.hivemind_table import HIVEMIND_VERSION, TABLE, Internal, internals

NETWORK = Path(dupt_swarm.network.__file__).parent
HOME = Path(hivemind_internals.__file__)
FILES = [path for path in sorted(NETWORK.rglob("*.py")) if path != HOME]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


@pytest.mark.parametrize("internal", internals(), ids=lambda internal: internal.name)
def test_upstream_is_what_it_was(internal: Internal) -> None:
    """The text of each source is the one that our code was written against."""
    assert internal.found == (internal.place, internal.sha256), (
        f"hivemind {version('hivemind')} has another {internal.source} than {HIVEMIND_VERSION} had "
        f"at {internal.place}. We rely on it for {internal.name}: {internal.use}. Compare the two, mend "
        f"{HOME.name} and those who use it, and then its table."
    )


def test_the_version_is_pinned() -> None:
    """The table is of the version that is installed."""
    assert version("hivemind") == HIVEMIND_VERSION


def test_the_table_is_complete() -> None:
    """Every private name of others that the file uses or overrides is in its table."""
    tree = ast.parse(HOME.read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_private(node.attr)}
    used |= {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)}
    assert sorted(name for name in used if is_private(name) and name not in TABLE) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(NETWORK)))
def test_private_names_of_hivemind_are_in_one_file(path: Path) -> None:
    """Elsewhere under `network/` a private attribute is one that the same file defines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_private(node.attr)}
    defined = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
    }
    defined |= {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    defined |= {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert sorted(used - defined) == []
