"""Reads which module of this repository imports which, from the sources alone."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).parents[2]
OURS = ("dupt_swarm", "peers", "monitor")
FILES = sorted(path.relative_to(ROOT) for folder in OURS for path in (ROOT / folder).rglob("*.py"))


class Import(NamedTuple):
    """One import.

    Attributes:
        name: ours by module, others as they are written.
        line: of the file.
        when: at once; when a function runs; or never, since only the type checker reads it.
        reason: the comment in that line or right above; empty: none.
    """

    name: str
    line: int
    when: Literal["at once", "in a function", "for types"]
    reason: str


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_own_module(name: str) -> bool:
    """Whether a dotted name is a file or a folder of this repository."""
    place = ROOT.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


@cache
def imports_in(path: Path) -> tuple[Import, ...]:
    """All imports of a file, in functions and for types too."""
    text = (ROOT / path).read_text(encoding="utf-8")
    lines = text.splitlines()

    def visit(node: ast.AST, when: Literal["at once", "in a function", "for types"]) -> Iterator[Import]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            reason = _comment(lines[node.lineno - 1]) or _comment(lines[node.lineno - 2], alone=True)
            for name in _names(node, path):
                yield Import(name, node.lineno, when, reason)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            when = "in a function"
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            when = "for types"
        for child in ast.iter_child_nodes(node):
            yield from visit(child, when)

    return tuple(visit(ast.parse(text), "at once"))


def imports_of(path: Path, *, when_imported: bool = False) -> set[str]:
    """What a file imports, of all kinds, or only what is imported along with it."""
    return {one.name for one in imports_in(path) if one.when == "at once" or not when_imported}


@cache
def loaded_with(module: str) -> frozenset[str]:
    """All packages of others and modules of ours that importing a module of ours loads, as sources say."""
    paths = {module_of(path): path for path in FILES}
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        # A module's folder is imported before it.
        parents = [name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)]
        for one in {name, *parents} & paths.keys() - found:
            found.add(one)
            waiting += imports_of(paths[one], when_imported=True)
        if name.partition(".")[0] not in OURS:
            found.add(name.partition(".")[0])
    return frozenset(found)


def _names(node: ast.Import | ast.ImportFrom, path: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, f"{path}: relative import"
    for alias in node.names:
        full = f"{node.module}.{alias.name}"
        yield full if is_own_module(full) else str(node.module)


def _comment(line: str, *, alone: bool = False) -> str:
    """The comment at the end of a line, or one that is ``alone`` on it; not what only tools read."""
    code, _, comment = line.partition("#")
    read_by_tools = comment.strip().startswith(("type:", "noqa"))
    return "" if read_by_tools or (alone and code.strip()) else comment.strip()
