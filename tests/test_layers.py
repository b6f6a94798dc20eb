"""Holds the table of docs/architecture.md: which layer may import which, and when."""

import re
import sys
import tomllib
from pathlib import Path

import peers.cli
import peers.model.cli
from tests.support.imports import FILES, OURS, ROOT, Import, imports_in, imports_of, loaded_with, module_of

LAYERS = {
    "plain": {
        *("manifest", "tasks", "presets", "settings", "organiser", "disk"),
        *("command_line", "fields", "speed", "errors", "version"),
    },
    "composition": {
        "checkpoint",
        "discovery",
        "swarm",
        "offer",
        "optimizer",
        "oracle",
        "evaluator",
        "models",
    },
    **{folder: {folder} for folder in ("learning", "replica", "node", "network", "metrics")},
}
# What programs import in the functions that need it, so that `--help` answers at once.
HEAVY = {"torch", "numpy", "hivemind", "tokenizers", "prometheus_client", "rich"}
PROGRAMS = [
    *("peers.cli", "peers.model.cli", "monitor.cli"),
    *(f"peers.{peers.cli.TOGETHER.get(name, name)}" for name in peers.cli.COMMANDS),
    *(f"peers.model.{name}" for name in peers.model.cli.COMMANDS),
]
BELOW_PROGRAMS = {"plain", "learning", "replica", "node", "metrics", "composition"}
MAY_IMPORT = {
    "plain": {"plain"},
    "learning": {"plain", "learning"},
    "replica": {"plain", "replica"},
    "node": {"plain", "replica", "node"},
    "network": {"plain", "replica", "node", "network"},
    "metrics": {"plain", "node", "metrics"},
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


def test_every_file_has_a_place() -> None:
    """Else add it to docs/architecture.md and to the table above."""
    assert [path for path in FILES if layer_of(module_of(path)) not in MAY_IMPORT] == []


def test_imports_run_downward() -> None:
    """Each file imports only from the layers that the table allows it."""
    upward = [
        (str(path), name)
        for path in FILES
        for name in sorted(imports_of(path))
        if name.split(".")[0] in OURS and layer_of(name) not in MAY_IMPORT[layer_of(module_of(path))]
    ]
    assert upward == []


def test_plain_data_stays_plain() -> None:
    """The lowest layer needs few packages, and none that is large."""
    allowed = {"dupt_swarm", "pydantic", "click", "platformdirs", "cryptography", *sys.stdlib_module_names}
    plain = [path for path in FILES if layer_of(module_of(path)) == "plain"]
    outside = {str(path): {name.split(".")[0] for name in imports_of(path)} - allowed for path in plain}
    assert {path: names for path, names in outside.items() if names} == {}


def optional_packages() -> set[str]:
    """Those that not everybody has installed, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = (re.split(r"[^\w-]", name)[0] for extra in extras if extra != "dev" for name in extras[extra])
    return {name.replace("-", "_") for name in names}


def has_reason(one: Import, importer: str) -> bool:
    """Whether an import has a reason not to happen at once."""
    if one.reason or one.name.partition(".")[0] in optional_packages() or layer_of(importer) == "package":
        return True
    loaded = loaded_with(one.name) if one.name.partition(".")[0] in OURS else {one.name.partition(".")[0]}
    return layer_of(importer) in ("peers", "monitor") and not HEAVY.isdisjoint(loaded)


def test_late_imports_have_a_reason() -> None:
    """Late are heavy imports of programs, optional packages, and what has its reason in a comment."""
    late = [(path, one) for path in FILES for one in imports_in(path) if one.when != "at once"]
    assert [(str(path), one) for path, one in late if not has_reason(one, module_of(path))] == []


def test_help_answers_at_once() -> None:
    """No command loads anything heavy before it runs."""
    loaded = {program: HEAVY & loaded_with(program) for program in PROGRAMS}
    assert {program: heavy for program, heavy in loaded.items() if heavy} == {}


def test_reasons_are_told_apart() -> None:
    """A light import in a function, and a heavy one in the library, have no reason without a comment."""

    def waits(name: str, reason: str = "") -> Import:
        return Import(name, 1, "in a function", reason)

    assert has_reason(waits("dupt_swarm.node.node"), "peers.join")
    assert has_reason(waits("rich.table"), "monitor.cli")
    assert not has_reason(waits("dupt_swarm.settings"), "peers.join")
    assert not has_reason(waits("torch"), "dupt_swarm.swarm")
    assert has_reason(waits("torch", "it takes seconds"), "dupt_swarm.swarm")
    assert has_reason(waits("pyarrow.parquet"), "dupt_swarm.learning.reading")


def test_hivemind_is_only_under_network() -> None:
    """The folder boundary is the process boundary: hivemind appears under `network/` only."""
    elsewhere = [path for path in FILES if layer_of(module_of(path)) != "network"]
    tops = {str(path): {name.split(".")[0] for name in imports_of(path)} for path in elsewhere}
    assert [path for path, names in tops.items() if "hivemind" in names] == []


def test_no_node_uses_the_organisers_key() -> None:
    """The process that reads what strangers send knows no code that loads it: whoever signs is its parent."""
    network = [path for path in FILES if path.parts[:2] == ("dupt_swarm", "network")]
    assert network
    assert [path for path in network if "dupt_swarm.organiser.key" in imports_of(path)] == []


def test_the_test_sees_imports() -> None:
    """The reader of imports finds those at the top, in functions, and of names that are modules."""
    package, node = Path("dupt_swarm/__init__.py"), Path("dupt_swarm/node/node.py")
    assert {"dupt_swarm.learning.transformer.gpt", "importlib"} <= imports_of(package)
    assert imports_of(package, when_imported=True) == {"__future__", "importlib", "typing"}
    assert "dupt_swarm.node.memory" in imports_of(node, when_imported=True)
    assert any("hivemind" in name for name in imports_of(Path("dupt_swarm/network/members/records.py")))
