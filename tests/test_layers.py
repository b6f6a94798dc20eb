"""Holds the table of DESIGN: who may import whom."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.imports import FILES, OURS, imports_of, module_of

LAYERS = {
    "plain": {
        *("manifest", "settings", "errors", "version", "presets", "metrics"),
        *("schema", "disk", "timing", "schedule", "command_line", "organiser"),
    },
    "composition": {"discovery", "swarm", "optimizer", "oracle", "evaluator", "models"},
    **{folder: {folder} for folder in ("learning", "privacy", "replica", "node", "network")},
}
BELOW_PROGRAMS = {"plain", "learning", "privacy", "replica", "node", "composition"}
MAY_IMPORT = {
    "plain": {"plain"},
    "learning": {"plain", "learning"},
    "privacy": {"plain", "privacy"},
    "replica": {"plain", "replica"},
    "node": {"plain", "replica", "node"},
    "network": {"plain", "replica", "node", "network"},
    "composition": BELOW_PROGRAMS,
    "peers": BELOW_PROGRAMS | {"peers"},
    "monitor": BELOW_PROGRAMS | {"monitor"},
    "package": {"learning", "composition"},  # the public face, which imports when it is asked to
}


def layer_of(module: str) -> str:
    """The row of the table that a dotted module name belongs to."""
    top, *rest = module.split(".")
    if top != "dupt_swarm":
        return top
    if not rest:
        return "package"
    return next((layer for layer, rooms in LAYERS.items() if rest[0] in rooms), "unlisted")


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
    assert outside <= {"dupt_swarm", "pydantic", "click", "platformdirs", "prometheus_client", "cryptography"}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_hivemind_is_only_under_network(path: Path) -> None:
    """The folder boundary is the process boundary: hivemind appears under `network/` only."""
    if layer_of(module_of(path)) != "network":
        assert "hivemind" not in {name.split(".")[0] for name in imports_of(path)}


def test_trainer_does_not_load_hivemind() -> None:
    """What an oracle imports loads hivemind neither itself nor through others."""
    assert "hivemind" not in loaded_by("dupt_swarm.oracle.oracle")


def test_importing_the_package_is_cheap() -> None:
    """`import dupt_swarm` loads neither torch nor hivemind, so that `--help` answers at once."""
    assert loaded_by("dupt_swarm") & {"torch", "hivemind", "numpy", "pydantic"} == set()


def test_the_test_sees_imports() -> None:
    """The reader of imports finds those at the top, in functions, and of names that are modules."""
    package, node = Path("dupt_swarm/__init__.py"), Path("dupt_swarm/node/node.py")
    assert {"dupt_swarm.learning.decoder.gpt", "importlib"} <= imports_of(package)
    assert imports_of(package, when_imported=True) == {"__future__", "typing"}
    assert "dupt_swarm.node.memory" in imports_of(node, when_imported=True)
    assert any("hivemind" in name for name in imports_of(Path("dupt_swarm/network/members/records.py")))
