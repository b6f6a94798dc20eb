"""Reads which module of this repository imports which, from the sources alone."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = ("dupt_swarm", "peers", "monitor")
FILES = sorted(path.relative_to(ROOT) for folder in OURS for path in (ROOT / folder).rglob("*.py"))


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_own_module(name: str) -> bool:
    """Whether a dotted name is a file or a folder of this repository."""
    place = ROOT.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def imports_of(path: Path, *, when_imported: bool = False) -> set[str]:
    """What a file imports, in functions too unless ``when_imported``; ours by module, others by package."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in _executed(tree) if when_imported else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if is_own_module(full) else str(node.module))
    return found


def _executed(tree: ast.Module) -> list[ast.AST]:
    """All nodes but those in functions and under ``if TYPE_CHECKING``."""
    nodes: list[ast.AST] = list(tree.body)
    found: list[ast.AST] = []
    while nodes:
        node = nodes.pop()
        found.append(node)
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not typing_only:
            nodes += ast.iter_child_nodes(node)
    return found
