"""What a machine lacks that a test needs."""

import os
from typing import NoReturn

import pytest


def skip(reason: str) -> NoReturn:
    """Skip the test for want of a tool, or of a right; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
