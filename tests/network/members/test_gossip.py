"""What is read of records that others pass on, and whom one asks for them."""

import pytest

from dupt_swarm.network.members.gossip import read_rows
from dupt_swarm.network.members.identity import owner_tag
from tests.support.signed_records import fresh_key

TAG = owner_tag(fresh_key())


def test_a_malformed_record_spoils_no_others() -> None:
    """It is left out and counted; what is no list, or too long a one, is refused."""
    good = [TAG, b"signed", 5.0]
    bad = [[TAG, b"signed", 5], [b"nobody", b"signed", 5.0], [TAG, bytes(3000), 5.0], [TAG, b"signed"], 1]
    assert read_rows([bad[0], good, *bad[1:]], most=6) == ([tuple(good)], 5)
    for tree in ([good, good], 5, b"", None):
        with pytest.raises(ValueError, match="not a list of records"):
            read_rows(tree, most=1)
