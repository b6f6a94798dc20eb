"""The nodes that are attacked are those of the tests of the network."""

from tests.network.conftest import identities, quick_daemons, stations

__all__ = ["identities", "quick_daemons", "stations"]
