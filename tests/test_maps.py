"""Holds the maps of the house: each folder's docstring lists its files, and imports run in no circle."""

import ast
import re
from collections.abc import Collection
from pathlib import Path

from tests.support.imports import FILES, OURS, ROOT, imports_of, module_of

FOLDERS = sorted(path.parent for path in FILES if path.name == "__init__.py")
SHARED_BY_TESTS = Path("tests/support")
MAPS = [*FOLDERS, SHARED_BY_TESTS]
# In documents: what a user's programs write or read, not ours.
MADE_BY_PROGRAMS = {"model/", "out/", "tokens/"}
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLACES = (*OURS, "tests", "benchmarks", "docs", ".docker")
ENTRY = re.compile(r"^(\w+/?) {2,}\S", re.MULTILINE)  # such as `store           our own state`


def map_of(folder: Path) -> list[str]:
    """The entries of a folder's map: modules, and sub-folders with a slash."""
    tree = ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8"))
    return ENTRY.findall(ast.get_docstring(tree) or "")


def code_in(folder: Path) -> set[str]:
    """The modules and packages directly in a folder, as a map names them."""
    files = [*FILES, *(path.relative_to(ROOT) for path in (ROOT / SHARED_BY_TESTS).rglob("*.py"))]
    inside = [path.relative_to(folder) for path in files if path.is_relative_to(folder)]
    names = {path.stem if len(path.parts) == 1 else f"{path.parts[0]}/" for path in inside}
    return names - {"__init__", "__main__"}


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Chains of modules that lead back to where they begin, one for each arrow that closes a circle."""
    found: list[list[str]] = []
    finished: set[str] = set()

    def visit(module: str, chain: list[str]) -> None:
        if module in chain:
            found.append([*chain[chain.index(module) :], module])
        elif module not in finished:
            for imported in sorted(imports.get(module, ())):
                visit(imported, [*chain, module])
            finished.add(module)

    for module in sorted(imports):
        visit(module, [])
    return found


def test_map_names_every_file() -> None:
    """The docstring of each folder's `__init__` has one line for every module and sub-folder in it."""
    missing = {str(folder): sorted(code_in(folder) - set(map_of(folder))) for folder in MAPS}
    assert {folder: names for folder, names in missing.items() if names} == {}


def test_map_names_nothing_else() -> None:
    """No map keeps a line for a file that was renamed or removed, and none names a file twice."""
    for folder in MAPS:
        entries = map_of(folder)
        assert len(entries) == len(set(entries)), folder
        paths = [ROOT / folder / (entry if entry.endswith("/") else f"{entry}.py") for entry in entries]
        assert [path for path in paths if not path.exists()] == []


def test_every_folder_with_code_has_a_map() -> None:
    """A folder without an `__init__` would escape the tests above."""
    assert sorted({path.parent for path in FILES} - set(FOLDERS)) == []


def test_documents_name_files_that_exist() -> None:
    """Python files that a document names exist; tests/test_docs.py has what it links to."""
    known = [f"/{path.relative_to(ROOT).as_posix()}" for top in PLACES for path in (ROOT / top).rglob("*.py")]
    assert unknown(r"[\w./]*\w\.py\b", known) == []


def test_documents_name_folders_that_exist() -> None:
    """So do folders, such as `network/states/`: what is no path from the top is the end of one."""
    files = [path for top in PLACES for path in (ROOT / top).rglob("*") if "__pycache__" not in path.parts]
    inside = {path.relative_to(ROOT).parent for path in files if path.is_file()}
    known = {f"/{folder.as_posix()}/" for each in inside for folder in (each, *each.parents)}
    assert unknown(r"`([\w.-][\w./-]*/)`", known, but=MADE_BY_PROGRAMS) == []


def unknown(pattern: str, known: Collection[str], but: Collection[str] = ()) -> list[tuple[str, str]]:
    """What documents name by a pattern and no known path ends with: document, name."""
    named = {
        (document.relative_to(ROOT).as_posix(), name)
        for document in DOCUMENTS
        for name in re.findall(pattern, document.read_text(encoding="utf-8"))
        if name not in but
    }
    assert named
    ends = {path[at:] for path in known for at, mark in enumerate(path) if mark == "/"}
    return sorted((document, name) for document, name in named if f"/{name}" not in ends)


def test_every_decision_is_in_the_index() -> None:
    """`docs/decisions/README.md` links to each of its files, once."""
    folder = ROOT / "docs" / "decisions"
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(path.name for path in folder.glob("*.md") if path.name != "README.md")


def our_imports() -> dict[str, set[str]]:
    """What each module of ours imports of ours: at once, in functions, and for types."""
    imports = {module_of(path): imports_of(path) for path in FILES}
    del imports["dupt_swarm"]  # the public face, which imports what it is asked for
    return {module: {name for name in names if name in imports} for module, names in imports.items()}


def between_rooms(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same arrows between files and sub-folders of one folder, in which each stands for all within."""
    found: dict[str, set[str]] = {}
    for module, names in imports.items():
        for name in names:
            mine, theirs = module.split("."), name.split(".")
            for depth, (one, other) in enumerate(zip(mine, theirs, strict=False), start=1):
                if one != other:
                    found.setdefault(".".join(mine[:depth]), set()).add(".".join(theirs[:depth]))
                    break
    return found


def test_no_import_circle() -> None:
    """Modules can be understood in some order: what one imports, and be it late, never leads back to it."""
    assert circles(our_imports()) == []


def test_no_circle_of_folders() -> None:
    """In each folder, files and sub-folders can be understood in some order, each sub-folder as a whole."""
    assert circles(between_rooms(our_imports())) == []


def test_circles_are_found() -> None:
    """The search reports a circle wherever it begins, and no two ways to one module as a circle."""
    assert circles({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c", "b"]]
    assert circles({"a": {"a"}}) == [["a", "a"]]
    rooms = between_rooms({"a.b.x": {"a.c.x"}, "a.c.y": {"a.b.y", "a.c"}, "a.d": {"a.b.x"}})
    assert circles(rooms) == [["a.b", "a.c", "a.b"]]
