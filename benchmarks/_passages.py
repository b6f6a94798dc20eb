"""Short passages of English with case and punctuation, from texts that every Python installation has."""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

PLAIN = re.compile(r"[A-Za-z ,.;:?!'-]+")
WORDS_MIN = 3
NOT_READ = {"site-packages", "test", "tests", "idlelib", "lib2to3"}


def passages(words: int) -> list[dict[str, str]]:
    """Passages of docstrings as targets, all different; as sources without case and punctuation.

    Args:
        words: the most of a passage; longer sentences are cut into several.
    """
    found = {}
    for sentence in _sentences():
        every = sentence.split()
        for start in range(0, len(every), words):
            target = " ".join(every[start : start + words])
            source = " ".join(re.sub(r"[^a-z ]", "", target.lower()).split())
            if PLAIN.fullmatch(target) and len(source.split()) >= WORDS_MIN:
                found[target] = source
    return [{"source": source, "target": target} for target, source in found.items()]


def _sentences() -> Iterator[str]:
    """Those of the standard library's docstrings, module by module."""
    for docstring in _docstrings(Path(sysconfig.get_paths()["stdlib"])):
        for paragraph in re.split(r"\n\s*\n", docstring):
            for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z])", " ".join(paragraph.split())):
                if re.match(r"[A-Z].*[.?!]$", sentence):
                    yield sentence


def _docstrings(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        if NOT_READ.isdisjoint(path.relative_to(folder).parts):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    yield ast.get_docstring(node) or ""
