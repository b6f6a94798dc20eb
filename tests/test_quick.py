"""`make check` runs the tests that start no process."""

from pathlib import Path

import pytest

from tests.support.quick import starts_processes


@pytest.mark.parametrize(
    ("file", "starts"),
    [
        ("manifest/test_manifest.py", False),
        ("learning/transformer/test_gpt.py", False),
        ("replica/test_electorate.py", False),
        ("chaos/test_split.py", True),
        ("peers/test_programs.py", True),
        ("network/p2p/test_daemon.py", True),
    ],
)
def test_imports_tell_which_files_start_processes(file: str, starts: bool) -> None:
    """A file starts processes if it, or what it shares with other tests, imports what does."""
    assert starts_processes(Path("tests", file)) is starts
