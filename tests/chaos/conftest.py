"""A swarm that is maltreated by all tests of a file."""

from collections.abc import Iterator

import pytest

from tests.support.chaos.life import chaos_swarm
from tests.support.chaos.swarm import ChaosSwarm


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosSwarm]:
    """One for all tests of a file: what one of them broke must not trouble the next."""
    with chaos_swarm(tmp_path_factory.mktemp("chaos")) as swarm:
        yield swarm
