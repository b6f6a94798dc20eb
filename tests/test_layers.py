"""Holds the table of DESIGN: who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("dupt_swarm", "peers", "monitor")
FILES = sorted(path.relative_to(ROOT) for folder in OURS for path in (ROOT / folder).rglob("*.py"))
PLAIN = {
    *("manifest", "presets", "settings", "errors", "files", "folders", "speed", "version"),
    *("hours", "pausing", "disk"),
    *("reproducible", "command_line", "metrics", "_explain", "_toml"),
}
COMPOSITION = {"swarm", "optimizer", "oracle", "status", "evaluator", "footprint"}
BELOW_PROGRAMS = {"plain", "learning", "replica", "network", "composition", "package"}
MAY_IMPORT = {
    "plain": {"plain"},
    "learning": {"plain", "learning"},
    "replica": {"plain", "replica"},
    "network": {"plain", "replica", "network"},
    "composition": BELOW_PROGRAMS - {"package"},
    "peers": BELOW_PROGRAMS | {"peers"},
    "monitor": BELOW_PROGRAMS | {"monitor"},
    "package": {"learning", "composition"},  # the public face, which imports when it is asked to
}
WITHOUT_HIVEMIND = ("client", "link", "view", "memory", "messages", "address_book", "run_folder")


def layer_of(module: str) -> str:
    """The row of the table that a dotted module name belongs to."""
    top, *rest = module.split(".")
    if top != "dupt_swarm":
        return top
    if not rest:
        return "package"
    if rest[0] in ("learning", "replica", "network"):
        return rest[0]
    return "plain" if rest[0] in PLAIN else "composition" if rest[0] in COMPOSITION else "unlisted"


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
    found = set()
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
    nodes, found = list(tree.body), []
    while nodes:
        node = nodes.pop()
        found.append(node)
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not typing_only:
            nodes += ast.iter_child_nodes(node)
    return found


def loaded_by(module: str) -> set[str]:
    """The packages that a fresh Python has loaded after importing ``module``."""
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(result.stdout.split())


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_run_downward(path: Path) -> None:
    """Each file imports only from the layers that the table allows it."""
    mine = layer_of(module_of(path))
    assert mine in MAY_IMPORT, f"{path}: has no place in the table yet; add it to DESIGN and here"
    ours = {name for name in imports_of(path) if name.split(".")[0] in OURS}
    assert sorted(name for name in ours if layer_of(name) not in MAY_IMPORT[mine]) == []


@pytest.mark.parametrize("path", [path for path in FILES if layer_of(module_of(path)) == "plain"], ids=str)
def test_plain_data_stays_plain(path: Path) -> None:
    """The lowest layer needs few packages, and none that is large."""
    outside = {name.split(".")[0] for name in imports_of(path)} - set(sys.stdlib_module_names)
    assert outside <= {"dupt_swarm", "pydantic", "click", "platformdirs", "prometheus_client"}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_only_the_network_imports_hivemind(path: Path) -> None:
    """hivemind appears in dupt_swarm/network and nowhere else, and there not in what a trainer needs."""
    module = module_of(path)
    allowed = module.startswith("dupt_swarm.network.") and module.split(".")[2] not in WITHOUT_HIVEMIND
    uses = any(name.split(".")[0] == "hivemind" for name in imports_of(path, when_imported=True))
    assert not uses or allowed


def test_trainer_does_not_load_hivemind() -> None:
    """What the trainer imports of the network loads hivemind neither itself nor through others."""
    modules = [f"dupt_swarm.network.{name}" for name in WITHOUT_HIVEMIND]
    assert "hivemind" not in loaded_by(", ".join(modules))


def test_importing_the_package_is_cheap() -> None:
    """`import dupt_swarm` loads neither torch nor hivemind, so that `--help` answers at once."""
    assert loaded_by("dupt_swarm") & {"torch", "hivemind", "numpy", "pydantic"} == set()


def test_the_test_sees_imports() -> None:
    """The reader of imports finds those at the top, in functions, and of names that are modules."""
    package, client = Path("dupt_swarm/__init__.py"), Path("dupt_swarm/network/client.py")
    assert {"dupt_swarm.learning.model", "importlib"} <= imports_of(package)
    assert imports_of(package, when_imported=True) == {"__future__", "typing"}
    assert "dupt_swarm.network.memory" in imports_of(client, when_imported=True)
    assert any("hivemind" in name for name in imports_of(Path("dupt_swarm/network/records.py")))
