"""What is taken out of messages of the DHT before hivemind reads them."""

from collections import Counter

import msgpack
import pytest
from hivemind.dht.routing import DHTID
from hivemind.p2p import PeerID
from hivemind.proto import dht_pb2

from dupt_swarm.network.p2p.dht_messages import (
    FOUND_MAX,
    NEIGHBOURS_MAX,
    check_dht_message,
    place_of,
)
from dupt_swarm.replica.plain import BYTES_MAX, unpack
from dupt_swarm.replica.signed import ID_BEGINNING

KEY = bytes(20)


def peer_id(number: int) -> bytes:
    return ID_BEGINNING + number.to_bytes(32, "big")


def test_places_are_where_hivemind_hashes_to() -> None:
    """A peer stands where hivemind would put a key that is its id."""
    found = PeerID(peer_id(1))
    assert place_of(found.to_bytes()) == DHTID.generate(source=found.to_bytes()).to_bytes()


def test_a_peer_that_stands_elsewhere_is_no_neighbour() -> None:
    """Its message is read as that of a client, which comes into no routing table."""
    refused: Counter[str] = Counter()
    honest = dht_pb2.NodeInfo(node_id=place_of(peer_id(1)))
    for message in (
        dht_pb2.PingRequest(peer=honest),
        dht_pb2.PingResponse(peer=honest),
        dht_pb2.FindRequest(peer=honest),
        dht_pb2.FindResponse(peer=honest),
        dht_pb2.StoreResponse(peer=honest),
    ):
        check_dht_message(message, peer_id(1), refused)
        assert message.peer == honest
        check_dht_message(message, peer_id(2), refused)
        assert not message.peer.node_id
    assert refused == {"place": 5}


def test_neighbours_that_others_tell() -> None:
    """No more than there are in a bucket, and none that stands elsewhere than its id says."""
    ids = [peer_id(number) for number in range(NEIGHBOURS_MAX + 5)]
    places = [place_of(each) for each in ids]
    places[3] = bytes(20)
    answer = dht_pb2.FindResponse(results=[dht_pb2.FindResult(nearest_node_ids=places, nearest_peer_ids=ids)])
    refused: Counter[str] = Counter()
    check_dht_message(answer, peer_id(99), refused)
    kept = [number for number in range(NEIGHBOURS_MAX) if number != 3]
    assert answer.results[0].nearest_peer_ids == [ids[number] for number in kept]
    assert answer.results[0].nearest_node_ids == [places[number] for number in kept]
    assert refused == {"place": 1}


@pytest.mark.parametrize(
    "message",
    [
        dht_pb2.FindRequest(keys=[KEY] * (FOUND_MAX + 1)),
        dht_pb2.FindRequest(keys=[bytes(21)]),
        dht_pb2.FindResponse(results=[dht_pb2.FindResult()] * (FOUND_MAX + 1)),
        dht_pb2.StoreRequest(),
        dht_pb2.StoreRequest(keys=[KEY], subkeys=[b"x"], values=[b"x"], expiration_time=[9e9]),
    ],
    ids=["many keys", "a long key", "many results", "an empty store", "a store"],
)
def test_messages_of_no_use(message) -> None:
    """A message that is malformed as a whole is refused as a whole."""
    with pytest.raises(ValueError, match=r"DHT|results"):
        check_dht_message(message, peer_id(1), Counter())


@pytest.mark.parametrize("kind", [dht_pb2.FOUND_REGULAR, dht_pb2.FOUND_DICTIONARY, 7])
def test_what_others_say_that_they_have_found(kind: int) -> None:
    """It is taken out, whatever it is: neighbours alone are believed."""
    honest = peer_id(1)
    told = dht_pb2.FindResult(
        type=kind,
        value=b"\xdd" + bytes(1000),
        expiration_time=float("inf"),
        nearest_node_ids=[place_of(honest)],
        nearest_peer_ids=[honest],
    )
    answer, refused = dht_pb2.FindResponse(results=[told]), Counter[str]()
    check_dht_message(answer, peer_id(2), refused)
    assert answer.results[0] == dht_pb2.FindResult(
        type=dht_pb2.NOT_FOUND, nearest_node_ids=[place_of(honest)], nearest_peer_ids=[honest]
    )
    assert refused == {"form": 1}


def test_msgpack_that_is_too_long_is_not_built() -> None:
    """A list within lists takes many times the memory of what was sent; whatever is read so is short."""
    assert unpack(msgpack.packb(bytes(BYTES_MAX - 10))) == bytes(BYTES_MAX - 10)
    with pytest.raises(ValueError, match="msgpack of"):
        unpack(bytes(BYTES_MAX + 1))
