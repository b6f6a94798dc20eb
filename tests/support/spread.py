"""The order of test files: those that mostly wait run beside those that compute, so that no core idles."""

from itertools import groupby
from pathlib import Path

import pytest

# Tests in these folders wait for swarms most of their time.
WAITING = ("chaos", "hostile")
# These take long: they start first of their kind, so that the run does not end with one of them.
LONGEST = ("test_sharing_turncoats.py", "test_turncoats.py", "test_site.py", "test_maps.py")
# For the same reason those that wait are spread over this share of the others.
SHARE = 0.6


def spread(tests: list[pytest.Item]) -> list[pytest.Item]:
    """The same tests, file by file as before, with the files that wait spread evenly among the others."""
    files = [list(of_one) for _, of_one in groupby(tests, key=lambda test: test.path)]
    files.sort(key=lambda file: file[0].path.name not in LONGEST)
    waiting = [file for file in files if waits(file[0].path)]
    others = [file for file in files if not waits(file[0].path)]
    gap = SHARE * len(others) / max(1, len(waiting))
    places = [(index * gap, file) for index, file in enumerate(waiting)]
    places += [(float(index), file) for index, file in enumerate(others)]
    return [test for _, file in sorted(places, key=lambda placed: placed[0]) for test in file]


def waits(path: Path) -> bool:
    """Whether a file of tests lies in one of the folders whose tests wait."""
    return path.parent.name in WAITING
