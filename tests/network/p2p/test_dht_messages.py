"""What is taken out of messages of the DHT before hivemind reads them."""

import time
from collections import Counter

import msgpack
import psutil
import pytest
from hivemind.dht.routing import DHTID
from hivemind.p2p import PeerID
from hivemind.proto import dht_pb2

from dupt_swarm.network.p2p.dht_messages import (
    FOUND_MAX,
    NEIGHBOURS_MAX,
    TOLD_ENTRIES_MAX,
    check_dht_message,
    join_stored,
    split_store,
)
from dupt_swarm.network.p2p.ids import place_of
from dupt_swarm.network.p2p.limits import STORED_MAX
from dupt_swarm.network.p2p.plain_msgpack import BYTES_MAX, unpack
from dupt_swarm.network.p2p.rpc import UNARY_BYTES_MAX

KEY = bytes(20)
TRUE = msgpack.packb(True)


def peer_id(number: int) -> bytes:
    return b"\x12\x20" + number.to_bytes(32, "big")


def dictionary_of(*entries: object) -> bytes:
    return msgpack.packb(msgpack.ExtType(0x50, msgpack.packb([1, 9e9, entries])))


def store_request(*things: tuple[bytes, bytes]) -> dht_pb2.StoreRequest:
    """To store values under serialized subkeys of one key."""
    count = len(things)
    return dht_pb2.StoreRequest(
        keys=[KEY] * count,
        subkeys=[subkey for subkey, _ in things],
        values=[value for _, value in things],
        expiration_time=[9.0] * count,
        in_cache=[True] * count,
    )


def test_places_are_where_hivemind_hashes_to() -> None:
    """A peer stands where hivemind would put a key that is its id."""
    found = PeerID(peer_id(1))
    assert place_of(found.to_bytes()) == DHTID.generate(source=found.to_bytes()).to_bytes()


def test_who_stands_elsewhere_is_no_neighbour() -> None:
    """Its message is read as that of a client, which comes into no routing table."""
    refused: Counter[str] = Counter()
    honest = dht_pb2.NodeInfo(node_id=place_of(peer_id(1)))
    for message in (
        dht_pb2.PingRequest(peer=honest),
        dht_pb2.PingResponse(peer=honest),
        dht_pb2.FindRequest(peer=honest),
        dht_pb2.FindResponse(peer=honest),
        dht_pb2.StoreRequest(peer=honest),
        dht_pb2.StoreResponse(peer=honest),
    ):
        check_dht_message(message, peer_id(1), refused)
        assert message.peer == honest
        check_dht_message(message, peer_id(2), refused)
        assert not message.peer.node_id
    assert refused == {"place": 6}


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
        dht_pb2.FindResponse(results=[dht_pb2.FindResult(expiration_time=float("inf"))]),
        dht_pb2.FindResponse(results=[dht_pb2.FindResult(type=dht_pb2.FOUND_DICTIONARY, value=b"x")]),
        dht_pb2.FindResponse(
            results=[
                dht_pb2.FindResult(
                    type=dht_pb2.FOUND_DICTIONARY,
                    value=dictionary_of(*[[b"", b"", 1]] * (TOLD_ENTRIES_MAX + 1)),
                )
            ]
        ),
    ],
    ids=["many keys", "a long key", "many results", "never expires", "no dictionary", "many entries"],
)
def test_messages_of_no_use(message) -> None:
    """A message that is malformed as a whole is refused as a whole."""
    with pytest.raises(ValueError, match=r"DHT|results|extension|a list of"):
        check_dht_message(message, peer_id(1), Counter())


def test_each_entry_is_stored_by_itself() -> None:
    """Of a dictionary too; what was said of its entries becomes one word again."""
    plain = msgpack.packb(b"plain")
    entries = [[b"a", b"1", 5.0], [b"b", b"2", 6.0]]
    request = store_request((plain, b"0"), (b"", dictionary_of(*entries)), (plain, bytes(3000)))
    refused: Counter[str] = Counter()
    groups = split_store(request, refused)
    assert list(request.subkeys) == [plain, msgpack.packb(b"a"), msgpack.packb(b"b")]
    assert list(request.values) == [b"0", b"1", b"2"]
    assert list(request.expiration_time) == [9.0, 5.0, 6.0]
    assert list(request.in_cache) == [False] * 3
    assert refused == {"size": 1}
    for said, meant in (
        ([True, True, True], [True, True, False]),
        ([True, True, False], [True, False, False]),
    ):
        response = dht_pb2.StoreResponse(store_ok=said)
        join_stored(response, groups)
        assert response.store_ok == meant


def test_when_an_entry_expires_is_no_whole_number() -> None:
    """An entry that says so is left out: what is passed on directly has none either."""
    told = dictionary_of([b"a", b"1", 5], [b"b", b"2", 6.0])
    request, refused = store_request((b"", told)), Counter[str]()
    split_store(request, refused)
    assert list(request.values) == [b"2"]
    answer = dht_pb2.FindResponse(results=[dht_pb2.FindResult(type=dht_pb2.FOUND_DICTIONARY, value=told)])
    check_dht_message(answer, peer_id(1), refused)
    assert b"\xa1b" not in answer.results[0].value and answer.results[0].expiration_time == 6.0
    assert refused == {"form": 2}


def test_unequal_lists_and_too_many_entries() -> None:
    """They are refused before anything is unpacked, or as soon as there are too many."""
    unequal = store_request((TRUE, TRUE))
    unequal.in_cache.append(True)
    half = dictionary_of(*[[b"", b"", 1]] * (STORED_MAX // 2 + 1))
    for request in (unequal, store_request((b"", half), (b"", half))):
        with pytest.raises(ValueError, match="store"):
            split_store(request, Counter())


MANY = UNARY_BYTES_MAX - 100  # as many empty lists as a message has room for
LONG_LIST = b"\xdd" + MANY.to_bytes(4, "big") + b"\x90" * MANY


def test_msgpack_that_is_too_long_is_not_built() -> None:
    """A list within lists takes many times the memory of what was sent; whatever is read so is short."""
    assert unpack(msgpack.packb(bytes(BYTES_MAX - 10))) == bytes(BYTES_MAX - 10)
    with pytest.raises(ValueError, match="msgpack of"):
        unpack(bytes(BYTES_MAX + 1))


FIELDS = msgpack.packb([1, 9e9])[1:]
MILLIONS = {
    "entries": b"\x93" + FIELDS + LONG_LIST,
    "a field": b"\x93" + LONG_LIST + FIELDS,
    "an entry": b"\x93" + FIELDS + b"\x91" + LONG_LIST,
    "a field of an entry": b"\x93" + FIELDS + b"\x91\x93" + LONG_LIST + FIELDS,
}


@pytest.mark.parametrize("extension", [True, False], ids=["a dictionary", "a list"])
@pytest.mark.parametrize("place", MILLIONS)
def test_a_dictionary_of_millions_of_lists(place: str, extension: bool) -> None:
    """None of them is built, wherever they are: neither an answer nor a request takes time or memory."""
    data = msgpack.packb(msgpack.ExtType(0x50, MILLIONS[place])) if extension else MILLIONS[place]
    answer = dht_pb2.FindResponse(results=[dht_pb2.FindResult(type=dht_pb2.FOUND_DICTIONARY, value=data)])
    request, refused = store_request((b"", data)), Counter[str]()
    process, started = psutil.Process(), time.process_time()
    before = process.memory_info().rss
    try:
        check_dht_message(answer, peer_id(1), refused)
    except ValueError:
        refused["whole"] += 1
    split_store(request, refused)
    assert time.process_time() - started < 0.5
    assert process.memory_info().rss - before < 32 << 20
    assert refused.total() == 2 and not request.values
