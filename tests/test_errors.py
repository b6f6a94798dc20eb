"""The errors that are meant for users."""

import ast
import pickle
import re
from pathlib import Path

import pytest

from dupt_swarm import errors
from dupt_swarm.errors import DuptError, UnreachableError, install

EXIT_CODES = {
    "UsageError": 2,
    "CorpusError": 1,
    "CheckpointError": 1,
    "FileError": 1,
    "VerificationError": 1,
    "NodeError": 1,
    "ManifestError": 10,
    "UnreachableError": 11,
    "AdmissionError": 12,
    "DeviceError": 13,
}


def test_exit_codes() -> None:
    """Each error has the exit code that the documentation promises, and no other error exists."""
    actual = {
        kind.__name__: kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, DuptError) and kind is not DuptError
    }
    assert actual == EXIT_CODES
    assert DuptError.exit_code == 1


def test_the_drawing_is_complete() -> None:
    """The tree drawn in the module's docstring shows every error with its exit code."""
    drawn = {
        words[1]: int(words[2])
        for line in (errors.__doc__ or "").splitlines()
        if (words := line.split()) and words[0] in ("├──", "└──")
    }
    assert drawn == EXIT_CODES


@pytest.mark.parametrize("name", [name for name in EXIT_CODES if name != "UnreachableError"])
def test_errors_cross_the_pipe(name: str) -> None:
    """An error that the node raises arrives in the trainer with its type and its message."""
    copy = pickle.loads(pickle.dumps(getattr(errors, name)("what; remedy")))
    assert (type(copy).__name__, str(copy)) == (name, "what; remedy")


def test_errors_name_settings_and_no_options() -> None:
    """The library does not know what a setting is called on a command line: no message has a ``--flag``."""
    found = {
        f"{path.name}: {text}"
        for path in Path(errors.__file__).parent.rglob("*.py")
        if path.parent.name != "command_line"
        for text in _messages(ast.parse(path.read_text(encoding="utf-8")))
        if re.search(r"(^|[\s`(])--[a-z]", text)
    }
    assert not found


def test_settings_cross_the_pipe() -> None:
    """What the remedy is about arrives with the error."""
    copy = pickle.loads(pickle.dumps(errors.UsageError("what", setting=("swarm_id", "state_dir"))))
    assert copy.settings == ("swarm_id", "state_dir")


def test_what_to_install() -> None:
    """The packages of the extra, quoted for a shell; the volunteer's guide says it too."""
    assert install("parquet") == "`pip install pyarrow`, after pipx `pipx inject dupt_swarm pyarrow`"
    assert "pip install transformers 'lm-eval[hf]' scikit-learn" in install("model")
    guide = (Path(__file__).parents[1] / "docs/guide/volunteer.md").read_text(encoding="utf-8")
    assert all(command in guide for command in ("`pip install pyarrow`", "`pipx inject dupt_swarm pyarrow`"))


def _messages(tree: ast.AST) -> set[str]:
    """All texts in a file, without the docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = list(ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts - {ast.get_docstring(node, clean=False) for node in nodes if isinstance(node, documented)}


def test_unreachable_names_each_address() -> None:
    """The message has a line for each address with its reason, also after the pipe."""
    error = UnreachableError({"/ip4/10.0.0.1/tcp/1/p2p/Qm": "connection refused", "x": "not a multiaddr"})
    expected = (
        "the swarm is unreachable; check the addresses, and that one of these peers is running:\n"
        "  /ip4/10.0.0.1/tcp/1/p2p/Qm: connection refused\n"
        "  x: not a multiaddr"
    )
    copy = pickle.loads(pickle.dumps(error))
    assert str(error) == expected
    assert (str(copy), copy.reasons) == (expected, error.reasons)
