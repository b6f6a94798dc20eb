"""What benchmarks measure is kept as lines of JSON, of which their tables are made."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.programs import run_python

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(path.name for path in (ROOT / "benchmarks").glob("[!_]*.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_takes_a_file(script: str) -> None:
    """By the option that they share, or by one of a command of its own."""
    text = (ROOT / "benchmarks" / script).read_text("utf-8")
    assert "@file_option" in text or '@click.option("--file"' in text
    assert "--file" in text.split('"""')[1]


def test_a_row_is_appended_for_each_codec(tmp_path: Path) -> None:
    """With the seconds of each turn, what was asked for, and the machine; what was there before stays."""
    file = tmp_path / "rows.jsonl"
    file.write_text("{}\n")
    options = ["--values", "4096", "--turns", "2", "--kept", "8", "--file", str(file)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    script = "benchmarks/contribution_codecs.py"
    done = run_python(script, *options, seconds=60, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    first, *rows = map(json.loads, file.read_text("utf-8").splitlines())
    assert first == {}
    assert [f"`{row['codec']}`" for row in rows] == [line.split()[1] for line in done.stdout.splitlines()[3:]]
    for row in rows:
        assert (row["values"], row["kept"], len(row["encode_seconds"])) == (4096, 8, 2)
        assert row["torch"]
        assert row["cores"] >= 1
