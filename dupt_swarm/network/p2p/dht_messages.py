"""Messages of hivemind's DHT, mended before hivemind reads them: what is bad is taken out, the rest stays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack
from hivemind.dht.protocol import DHTProtocol
from hivemind.proto import dht_pb2

from dupt_swarm.network.p2p.ids import is_rsa_id, place_of
from dupt_swarm.network.p2p.limits import STORED_MAX
from dupt_swarm.network.p2p.plain_msgpack import split_list, unpack_extension, unpack_flat, unpack_row

KEY_BYTES = 20
SUBKEY_BYTES_MAX = 1024  # an owner tag has 390
VALUE_BYTES_MAX = 2304  # a record with its signature has at most 2292
ITEM_BYTES_MAX = SUBKEY_BYTES_MAX + VALUE_BYTES_MAX + 32  # of a dictionary
FOUND_MAX = 16  # keys to look up at once: hivemind asks for no more
ENTRIES_MAX = (
    1024  # of one dictionary that is kept: with 2.7 KB each, two thirds of what fits into one message
)
TOLD_ENTRIES_MAX = 4096  # under one key of an answer
NEIGHBOURS_MAX = 20  # hivemind's `bucket_size`: so many are told
DICTIONARY_CODE = 0x50  # of `DictionaryDHTValue`, the only extension type that has a place
ROW_FIELDS = 3  # of a dictionary, and of each `Row` in it
ENTRY_TYPES = [bytes, bytes, float]  # not a whole number: it would be signed differently


class Entry(NamedTuple):
    """What is to be stored, under a subkey as it travels."""

    key: bytes
    subkey: bytes
    value: bytes
    expires: float


class Row(NamedTuple):
    """What a dictionary of hivemind's has under one subkey; bytes as they are."""

    subkey: bytes
    value: bytes
    expires: float


Groups = list[list[Entry | None]]


def check_dht_message(message: Any, sender: bytes, refused: Counter[str]) -> None:
    """Take out of a message of the DHT what hivemind would trip over; ``refused`` counts that.

    Args:
        message: changed in place; those of other services are left alone.
        sender: peer id of who sent it.
        refused: by reason, see `REFUSED_MESSAGES`.

    Raises:
        ValueError: the whole message is of no use.
    """
    if hasattr(message, "peer") and message.peer.node_id:
        _check_place(message, sender, refused)
    if isinstance(message, dht_pb2.FindRequest):
        if len(message.keys) > FOUND_MAX or any(len(key) != KEY_BYTES for key in message.keys):
            raise ValueError("too many DHT keys, or one of another length")
    elif isinstance(message, dht_pb2.FindResponse):
        if len(message.results) > FOUND_MAX:
            raise ValueError(f"an answer of {len(message.results):,} results")
        for result in message.results:
            _mend_result(result, refused)


def split_store(request: dht_pb2.StoreRequest, refused: Counter[str]) -> Groups:
    """Make each entry of a dictionary that is to be stored one to be stored by itself.

    hivemind leaves out a whole dictionary for one entry that is not valid, and all entries after one that
    is older than what it has.

    Args:
        request: changed in place.
        refused: counts what is left out, by reason.

    Returns:
        for `join_stored`: of each thing that was to be stored the entries, None for one that is left out.

    Raises:
        ValueError: the whole request is of no use.
    """
    groups = _groups_of(request, refused)
    entries = [entry for group in groups for entry in group if entry is not None]
    request.keys[:] = [entry.key for entry in entries]
    request.subkeys[:] = [entry.subkey for entry in entries]
    request.values[:] = [entry.value for entry in entries]
    request.expiration_time[:] = [entry.expires for entry in entries]
    # Who asks is answered from the cache when that expires later: one value would hide all others.
    request.in_cache[:] = [False] * len(entries)
    return groups


def join_stored(response: dht_pb2.StoreResponse, groups: Groups) -> None:
    """Make of what was said of each entry what is to be said of each thing that was to be stored."""
    stored = iter(list(response.store_ok))
    verdicts = [[each is not None and next(stored) for each in group] for group in groups]
    response.store_ok[:] = map(all, verdicts)


def _check_place(message: Any, sender: bytes, refused: Counter[str]) -> None:
    """Who stands elsewhere than its peer id says comes into no routing table."""
    if not is_rsa_id(sender) or message.peer.node_id != place_of(sender):
        refused["place"] += 1
        message.ClearField("peer")


def _groups_of(request: dht_pb2.StoreRequest, refused: Counter[str]) -> Groups:
    lists = (request.keys, request.subkeys, request.values, request.expiration_time, request.in_cache)
    count, *others = map(len, lists)
    if count > STORED_MAX or any(other != count for other in others):
        raise ValueError("too many things to store, or unequal lists of them")
    groups: Groups = []
    room = STORED_MAX
    for each in zip(*lists[:4], strict=True):
        entries, malformed = _entries_of(Entry(*each))
        room -= len(entries) + malformed
        if room < 0:
            raise ValueError("too many entries to store")
        reasons = [_objection(entry) for entry in entries]
        refused.update(+Counter(form=malformed) + Counter(filter(None, reasons)))
        kept = [None if reason else entry for entry, reason in zip(entries, reasons, strict=True)]
        groups.append(kept + [None] * malformed)
    return groups


def _entries_of(given: Entry) -> tuple[list[Entry], int]:
    """What ``given`` is, or what there is in the dictionary that it is; and how much of that is malformed."""
    if given.subkey != DHTProtocol.IS_DICTIONARY:
        return [given], 0
    try:
        rows, malformed = _entries_in(given.value, STORED_MAX)
    except ValueError:
        return [], 1
    entries = [Entry(given.key, msgpack.packb(row.subkey), row.value, row.expires) for row in rows]
    return entries, malformed


def _objection(entry: Entry) -> str:
    """Why an entry is not even looked at, or an empty string."""
    if (
        len(entry.key) != KEY_BYTES
        or len(entry.subkey) > SUBKEY_BYTES_MAX
        or len(entry.value) > VALUE_BYTES_MAX
    ):
        return "size"
    try:
        subkey = unpack_flat(entry.subkey)
    except ValueError:
        return "form"
    if not isinstance(subkey, bytes) or not math.isfinite(entry.expires):
        return "form"
    return ""


def _mend_result(result: dht_pb2.FindResult, refused: Counter[str]) -> None:
    told = zip(result.nearest_node_ids[:NEIGHBOURS_MAX], result.nearest_peer_ids, strict=False)
    neighbours = list(told)
    believed = [each for each in neighbours if is_rsa_id(each[1]) and each[0] == place_of(each[1])]
    refused.update(+Counter(place=len(neighbours) - len(believed)))
    result.nearest_node_ids[:] = [place for place, _ in believed]
    result.nearest_peer_ids[:] = [peer for _, peer in believed]
    if result.type == dht_pb2.FOUND_DICTIONARY:
        entries, malformed = _entries_in(result.value, TOLD_ENTRIES_MAX)
        refused.update(+Counter(form=malformed))
        # When it expires follows from its entries: what never expires would be kept, and nobody asked again.
        latest = max((expires for _, _, expires in entries), default=0)
        result.value, result.expiration_time = _dictionary(entries, latest), float(latest)
    elif not math.isfinite(result.expiration_time):
        raise ValueError("a DHT value that never expires")


def _entries_in(data: bytes, most: int) -> tuple[list[Row], int]:
    """What there is in hivemind's `DictionaryDHTValue`, and how many more that are malformed.

    They are counted before one is read: millions of empty lists would take seconds to build.

    Raises:
        ValueError: it is no such thing.
    """
    items = split_list(unpack_extension(data, DICTIONARY_CODE), ROW_FIELDS, most)
    entries = [entry for entry in map(_entry_of, items) if entry is not None]
    return entries, len(items) - len(entries)


def _dictionary(entries: Sequence[Row], latest: float) -> bytes:
    """hivemind's `DictionaryDHTValue` with these ``entries``."""
    fields = msgpack.packb([math.inf, latest, entries])
    return bytes(msgpack.packb(msgpack.ExtType(DICTIONARY_CODE, fields)))


def _entry_of(item: bytes) -> Row | None:
    """What an item of a dictionary says, if that is subkey, value and the time when it expires."""
    try:
        row = unpack_row(item, ROW_FIELDS) if len(item) <= ITEM_BYTES_MAX else []
    except ValueError:
        return None
    if [type(each) for each in row] != ENTRY_TYPES:
        return None
    entry = Row(*row)  # type: ignore[arg-type]
    short = len(entry.subkey) <= SUBKEY_BYTES_MAX and len(entry.value) <= VALUE_BYTES_MAX
    return entry if short and math.isfinite(entry.expires) else None
