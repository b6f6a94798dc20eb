"""What several system tests need."""

import os
from collections.abc import Iterator

import pytest

from tests.support.namespaces import Net, missing


@pytest.fixture
def net() -> Iterator[Net]:
    """An empty network."""
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with Net() as net:
        yield net
