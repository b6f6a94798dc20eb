"""The nodes that are attacked are those of the tests of the network."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
from hivemind.p2p import P2P

from tests.network.conftest import identities, quick_daemons, stations
from tests.support.stranger import stranger_beside

__all__ = ["identities", "quick_daemons", "stations"]


@pytest.fixture
def keyed_stranger(identities: list[Path]) -> Callable[..., AbstractAsyncContextManager[P2P]]:
    """A stranger with an RSA key: only such come into routing tables."""
    return partial(stranger_beside, identity=identities[3])
