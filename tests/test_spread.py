"""The order of test files."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.imports import ROOT
from tests.support.spread import LONGEST, spread


def test_files_that_wait_stand_among_the_others() -> None:
    """The longest first, none twice, each file's tests together, and the last tests are none that wait."""
    files = [f"learning/test_{n}.py" for n in range(20)]
    files += [f"hostile/{name}" for name in ("test_a.py", *LONGEST)] + ["chaos/test_b.py"]
    tests: list[Any] = [SimpleNamespace(path=Path(file), n=n) for file in files for n in range(3)]
    ordered: list[Any] = spread(tests)
    order = [str(test.path) for test in ordered[::3]]
    assert sorted((str(test.path), test.n) for test in ordered) == sorted((str(t.path), t.n) for t in tests)
    assert all(len({test.path for test in ordered[at : at + 3]}) == 1 for at in range(0, len(tests), 3))
    assert order[0] == f"hostile/{LONGEST[0]}"
    assert [file for file in order if file.startswith("learning")] == files[:20]
    assert all(file.startswith("learning") for file in order[-5:])


def test_the_longest_are_there() -> None:
    """A file that was renamed would no longer start first."""
    assert all(any((ROOT / "tests").rglob(name)) for name in LONGEST)
