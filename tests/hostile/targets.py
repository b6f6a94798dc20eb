"""What parses bytes from the network, each with inputs of its kind and the errors that its callers expect."""

from __future__ import annotations

import asyncio
import functools
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import msgpack
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.dht.routing import DHTID
from hivemind.p2p import P2P
from hivemind.proto import dht_pb2
from hivemind.utils import get_dht_time
from hypothesis import strategies as st

from dupt_swarm.errors import DuptError
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from dupt_swarm.manifest import Encoding, Manifest
from dupt_swarm.network.admission import Guests, Presented
from dupt_swarm.network.members import gossip
from dupt_swarm.network.members.records import Records
from dupt_swarm.network.p2p.dht_messages import check_dht_message, place_of
from dupt_swarm.network.p2p.limits import OPEN
from dupt_swarm.network.p2p.rpc import DETAIL_BYTES_MAX, CallError, Message, Refusal
from dupt_swarm.network.p2p.streams import FrameReader
from dupt_swarm.network.reach.dialback import DialAnswer, DialMessage
from dupt_swarm.network.reach.reachability import with_observed
from dupt_swarm.network.reach.relays import limit_of
from dupt_swarm.network.rounds.ballots import Ballots
from dupt_swarm.network.rounds.messages import AnswerMessage, ReportMessage
from dupt_swarm.network.rounds.offences import ProofsMessage
from dupt_swarm.network.rounds.reports import Answer as RoundAnswer
from dupt_swarm.network.rounds.reports import Pace, Report
from dupt_swarm.network.rounds.round import Round
from dupt_swarm.network.rounds.voice import Voice
from dupt_swarm.network.states.exchange import ChunksMessage, Exchange, KnownMessage, LinksMessage
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.record import PeerRecord
from dupt_swarm.organiser import revocations
from dupt_swarm.organiser.invitation import ID_BYTES, Token, id_in, read_credential
from dupt_swarm.organiser.signed import SIGNATURE_BYTES
from dupt_swarm.organiser.signed import sign as sign_content
from dupt_swarm.replica.blob import Blob, Index
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.codec import build_codec
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import (
    Acceptance,
    Accepted,
    Brought,
    Choice,
    Link,
    Promise,
    Proposal,
    Word,
    coordinator_of,
)
from dupt_swarm.replica.plain import load, unpack
from dupt_swarm.replica.proof import Proof
from dupt_swarm.replica.signed import read_signed, sign
from dupt_swarm.replica.signed_words import KINDS, BeginningRecord, LinkRecord, W, Words
from dupt_swarm.replica.state import check_header
from tests.hostile.inputs import JSON_VALUES, changed_bytes, changed_tree, json_of, msgpack_of
from tests.support.direct import Direct
from tests.support.hello import hello
from tests.support.lies import denied, keys_by_id, proposed_twice
from tests.support.tiny import tiny_manifest
from tests.support.words import said

SWARM, STATE, AFTER = "test-0", "a" * 64, "b" * 64
SENDER = b"\x12\x20" + bytes(range(32))
NUMEL = 5000
PACE = Pace(gather=10.0, exchange=20.0, silence=5.0)
CODECS = ("fp32", "scaled_fp16", "int8", "int4", "two_bit", "top_k")
RECORD = {
    **{"role": "evaluator", "state": "training", "time": 1.0e9, "round": 3, "state_digest": "ab" * 32},
    **{
        "swarm_tokens": 100,
        "loss": 2.5,
        "failures": [1, 2],
        "name": "Zoë",
        "addresses": ["/ip4/1.2.3.4/tcp/1"],
    },
    "evaluation": {
        **{"dataset": "wiki", "bits_per_byte": 1.5, "loss_nats": 2.5, "accuracy": 0.5, "round": 3},
        **{"time": 1.0e9, "sample": {"prompt": "a", "text": "b"}},
    },
}


@dataclass(frozen=True)
class Target:
    """One parser.

    Attributes:
        inputs: what it is given.
        parse: the parser, and checks of what it gives.
        expected: what it may raise.
    """

    inputs: st.SearchStrategy[Any]
    parse: Callable[[Any], object]
    expected: tuple[type[Exception], ...] = (ValueError,)


@functools.cache
def _keys() -> dict[str, Ed25519PrivateKey]:
    return keys_by_id(3)


def _key() -> Ed25519PrivateKey:
    return next(iter(_keys().values()))


# The DHT.


@st.composite
def _find_responses(draw: st.DrawFn) -> bytes:
    count = draw(st.integers(0, 3))
    places = [draw(st.sampled_from([place_of(SENDER), bytes(20), b"", bytes(30)])) for _ in range(count)]
    result = dht_pb2.FindResult(
        type=draw(st.integers(0, 3)),
        value=draw(st.binary(max_size=64)),
        expiration_time=draw(st.floats()),
        nearest_node_ids=places,
        nearest_peer_ids=[draw(st.sampled_from([SENDER, b"", bytes(34)])) for _ in places],
    )
    response = dht_pb2.FindResponse(
        results=[result], peer=dht_pb2.NodeInfo(node_id=draw(st.binary(max_size=30)))
    )
    return bytes(response.SerializeToString())


def _check_found(data: bytes) -> None:
    response = dht_pb2.FindResponse.FromString(data)
    check_dht_message(response, SENDER, Counter())
    for result in response.results:  # as hivemind goes on
        assert result.type == dht_pb2.NOT_FOUND
        for place, peer in zip(result.nearest_node_ids, result.nearest_peer_ids, strict=True):
            assert DHTID.from_bytes(place) == DHTID.generate(source=peer)


@functools.cache
def _manifest() -> Manifest:
    return tiny_manifest()


@st.composite
def _records(draw: st.DrawFn) -> bytes:
    """Signed, and changed before or after that."""
    now = float(int(get_dht_time()))  # of as many characters each time, or an example could not be repeated
    content = {
        "swarm": draw(st.sampled_from([_manifest().swarm_id, "another"])),
        "expires": draw(st.sampled_from([now + 5, 0.0, 1e300, float("nan"), None])),
        "record": draw(changed_tree(RECORD | {"time": now}, JSON_VALUES)),
    }
    signed = sign(_key(), "record", content)
    return draw(st.one_of(st.just(signed), changed_bytes([signed])))


def _take(data: bytes) -> None:
    """As a peer that knows nobody."""
    for found, _ in Records(_manifest(), OPEN).take([data]):
        PeerRecord.model_validate(found.record.model_dump())
        msgpack.packb(found.record.published())
        for address in found.record.addresses:
            _take_apart(address)


# Rounds.


@functools.cache
def _brought() -> tuple[Brought, ...]:
    return tuple(Brought(peer, f"{place}" * 64, 10 + place) for place, peer in enumerate(_keys()))


@functools.cache
def _electorate() -> Electorate:
    """Of the first two; the third brings something."""
    return Electorate().after(list(_keys())[:2], weak=True)


def _said(word: W) -> W:
    """With its signature."""
    return said(SWARM, _keys()[word.maker], word)


def _choice() -> Choice:
    return Choice(_brought())


@functools.cache
def _promises(ballot: int = 1) -> tuple[Promise, ...]:
    """Of all; those who decide have accepted what the ballot before proposed."""
    accepted = Accepted(ballot - 1, _choice().id, AFTER) if ballot else None
    return tuple(
        _said(Promise(each.maker, STATE, ballot, each, accepted if each.maker in _electorate() else None))
        for each in _brought()
    )


@functools.cache
def _leave() -> Promise:
    return _said(replace(_promises()[1], brought=None, refused=("c" * 64,), leaves=True))


@functools.cache
def _proposal(ballot: int = 1) -> Proposal:
    """One that is bound by another, but for the first."""
    basis = _proposal(ballot - 1) if ballot else None
    maker = coordinator_of(_electorate(), STATE, ballot)
    return _said(Proposal(maker, STATE, ballot, _choice(), _promises(ballot), basis))


@functools.cache
def _acceptance(place: int, after: str = AFTER) -> Acceptance:
    return _said(Acceptance(list(_keys())[place], STATE, 1, _choice().id, after, (_brought()[2].maker,)))


@functools.cache
def _links() -> tuple[Link, ...]:
    """Two that follow from one another: a strong one, and a weak one."""
    strong = Link(STATE, 1, _choice(), AFTER, (_leave(),), (_acceptance(0), _acceptance(2)), "e" * 64)
    choice = Choice(_brought()[:1], weak=True)
    word = Acceptance(next(iter(_keys())), AFTER, 0, choice.id, "c" * 64, weak=True)
    return strong, Link(AFTER, 0, choice, "c" * 64, (), (_said(word),))


@functools.cache
def _proofs_made() -> tuple[bytes, ...]:
    twice = Proof.of(_acceptance(0), _acceptance(0, "c" * 64))
    return tuple(each.data for each in (twice, proposed_twice(SWARM, _key()), denied(SWARM, _key())))


def _proofs() -> st.SearchStrategy[bytes]:
    """Also of words each of which is valid."""
    signed = [_acceptance(0).signed, _acceptance(1).signed, _acceptance(0, "c" * 64).signed]
    signed += [_proposal().signed, *(each.signed for each in (*_promises(), _leave()))]
    kinds = st.lists(st.sampled_from([*(kind for kind, _ in KINDS.values()), "", None]), max_size=3)
    mixed = st.tuples(kinds, st.lists(st.sampled_from(signed), max_size=3))
    return st.one_of(
        changed_bytes(_proofs_made()),
        *(msgpack_of(msgpack.unpackb(each)) for each in _proofs_made()),
        mixed.map(lambda some: bytes(msgpack.packb([*some[0], *some[1]]))),
    )


def _read_message(data: bytes) -> None:
    message = ProofsMessage.read(data)
    assert ProofsMessage.read(message.pack()) == message
    for each in message.proofs:
        Proof.read(each, SWARM)


def _resigned(word: Word) -> st.SearchStrategy[bytes]:
    """What its maker may sign instead of it, and what others may make of it."""
    kind, _ = KINDS[type(word)]
    _, content = read_signed(word.signed, kind)
    trees = changed_tree(content, JSON_VALUES).filter(lambda tree: isinstance(tree, dict))
    signed = trees.map(lambda tree: sign(_keys()[word.maker], kind, tree))
    return st.one_of(signed, changed_bytes([word.signed]), msgpack_of(msgpack.unpackb(word.signed)))


def _words() -> st.SearchStrategy[tuple[type[Word], bytes]]:
    """Each with the type as which it is read: its own, or another."""
    some: tuple[Word, ...] = (_promises()[0], _leave(), _proposal(), _acceptance(0))
    data = st.one_of(*(st.tuples(st.just(type(each)), _resigned(each)) for each in some))
    return st.one_of(data, st.tuples(st.sampled_from(list(KINDS)), data.map(lambda pair: pair[1])))


def _read_word(case: tuple[type[Word], bytes]) -> None:
    kind, data = case
    words = Words(SWARM)
    word = words.read(data, kind)
    assert type(word) is kind and word.signed == data
    assert words.read(words.sign(_key(), word), kind).ballot == word.ballot


@contextmanager
def _nothing_raised() -> Iterator[None]:
    """What has been read is harmless: no error in the block is one that is expected."""
    try:
        yield
    except Exception as error:
        raise AssertionError("what was read has done harm") from error


BALLOTS = st.sampled_from([0, 1, 2, 7, 1 << 31, (1 << 62) - 1])


def _some_promises(place: int) -> st.SearchStrategy[Promise]:
    """Whatever a peer may sign, be it true or not."""
    mine = _brought()[place]
    words = st.builds(
        Promise,
        *(st.just(mine.maker), st.just(STATE), BALLOTS),
        st.sampled_from([None, mine, replace(mine, tokens=(1 << 62) - 1), replace(mine, digest="c" * 64)]),
        st.sampled_from([None, Accepted(0, _choice().id, AFTER), Accepted((1 << 62) - 1, "c" * 64, AFTER)]),
        st.sampled_from([(), (_choice().id,)]),
        leaves=st.booleans(),
        callable=st.booleans(),
    )
    return words.map(_said)


def _some_proposals() -> st.SearchStrategy[Proposal | None]:
    """Of what there is to propose, with evidence or without."""
    late = replace(_proposal(), ballot=(1 << 62) - 1)
    alone = replace(_proposal(0), choice=Choice(_brought()[:1]))
    unproven = replace(_proposal(), promises=(), basis=None)
    return st.sampled_from([None, _proposal(0), _proposal(), *map(_said, (late, alone, unproven))])


def _some_leaves() -> st.SearchStrategy[tuple[Report, ...]]:
    reports = st.builds(Report, st.integers(0, 2).flatmap(_some_promises), _some_proposals())
    return st.lists(reports, max_size=2).map(tuple)


def _reports() -> st.SearchStrategy[bytes]:
    promise, basis = _said(Promise(next(iter(_keys())), STATE, 2, _brought()[0])), _proposal()
    held = frozenset(each.digest for each in _brought())
    report = Report(promise, basis, held, _acceptance(0), True, (Report(_leave(), basis),))
    some = st.builds(
        Report,
        _some_promises(0),
        _some_proposals(),
        st.frozensets(st.sampled_from([*held, "c" * 64])),
        st.sampled_from([None, _acceptance(0), _acceptance(0, "c" * 64)]),
        st.booleans(),
        _some_leaves(),
    )
    return st.one_of(
        json_of(_tree(ReportMessage.of(report))), some.map(lambda each: ReportMessage.of(each).pack())
    )


def _read_report(data: bytes) -> None:
    message = ReportMessage.read(data)
    report = message.report(Words(SWARM), next(iter(_keys())), inf)
    assert {each.state for each in report.words} == {message.state}
    again = ReportMessage.read(ReportMessage.of(report).pack())
    assert again.report(Words(SWARM), next(iter(_keys())), inf) == report
    with _nothing_raised():
        for peer in _keys():
            round = _round_of(peer)
            if message.state == STATE:
                round.note(report, 0.0)
            _go_on(round)


def _answers() -> st.SearchStrategy[bytes]:
    held = frozenset(each.digest for each in _brought())
    leaves = (Report(_leave(), _proposal()),)
    answer = RoundAnswer(1, True, _promises(), True, held, _proposal(), _links()[0], leaves)
    some = st.builds(
        RoundAnswer,
        *(BALLOTS, st.booleans()),
        st.lists(st.integers(0, 2).flatmap(_some_promises), max_size=3).map(tuple),
        st.booleans(),
        st.frozensets(st.sampled_from([*held, "c" * 64])),
        _some_proposals(),
        st.sampled_from([None, _links()[0]]),
        _some_leaves(),
    )
    return st.one_of(
        json_of(_tree(AnswerMessage.of(answer))), some.map(lambda each: AnswerMessage.of(each).pack())
    )


def _read_answer(data: bytes) -> None:
    answer = AnswerMessage.read(data).answer(Words(SWARM), STATE, inf)
    assert all(each.state == STATE for each in answer.words)
    again = AnswerMessage.read(AnswerMessage.of(answer).pack())
    assert again.answer(Words(SWARM), STATE, inf) == answer
    if answer.link is not None:
        answer.link.check(_electorate())
    with _nothing_raised():
        for peer in _keys():
            round = _round_of(peer)
            for other in set(_keys()) - {peer}:
                round.hear(other, answer, 0.0)
            _go_on(round)


def _round_of(peer: str) -> Round:
    """Its part in leaving the state, to which it brings something."""
    voice = Voice(peer, partial(Words(SWARM).sign, _keys()[peer]), lambda _: None)
    found = Round(Ballots(voice, STATE, _electorate(), PACE, 0.0))
    found.bring(next(each for each in _brought() if each.maker == peer), 0.0)
    return found


def _go_on(round: Round) -> None:
    """It does what is due, now and after a while; what it says can be told and read."""
    everybody = set(_keys())
    for now in (1.0, 100.0, 200.0):
        round.consider(now, everybody - {round.ballots.me})
        for each in round.stock.missing:
            round.stock.held.add(each.digest)
        if round.to_judge is not None:
            round.judge(round.to_judge, AFTER)
        round.consider(now, everybody - {round.ballots.me})
        ReportMessage.read(ReportMessage.of(round.report()).pack()).report(
            Words(SWARM), round.ballots.me, inf
        )
        AnswerMessage.read(AnswerMessage.of(round.answer()).pack()).answer(Words(SWARM), STATE, inf)


def _tree(message: Message) -> Any:
    return json.loads(message.pack())


def _read_link(data: bytes) -> None:
    _follow([LinkRecord.parse(data)])


def _read_links(data: bytes) -> None:
    """As whoever follows them does."""
    message = LinksMessage.read(data)
    assert LinksMessage.read(message.pack()) == message
    if message.begins is not None:
        assert BeginningRecord.of(message.begins.chain) == message.begins
    _follow(message.links)


def _follow(records: Sequence[LinkRecord]) -> None:
    words = Words(SWARM)
    links = [each.link(words) for each in records]
    assert [LinkRecord.of(each) for each in links] == list(records)
    chain = Chain(STATE, _electorate())
    chain.follow(links)
    _check_chain(chain)


def _check_chain(chain: Chain) -> None:
    """It leads from each of its states to the next, and each has an electorate that others read."""
    assert chain.head in chain
    assert [*chain.since([chain.first])] == chain.links
    for link in chain.links:
        electorate = chain.electorate_of(link.after)
        assert chain.from_state(link.state) is link
        assert Electorate.parse(electorate.round, electorate.to_json()) == electorate


def _chain_files() -> st.SearchStrategy[bytes]:
    first = _electorate()
    head = {"round": first.round, "first": STATE, "electorate": first.to_json()}
    lines = [json.dumps(head).encode(), *(LinkRecord.of(each).to_bytes() for each in _links())]
    changed = [st.one_of(st.just(line), json_of(json.loads(line))) for line in lines]
    whole = st.tuples(*changed).map(lambda some: b"\n".join([*some, b""]))
    return st.one_of(whole, changed_bytes([b"\n".join([*lines, b""])]))


def _load_chain(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain"
        path.write_bytes(data)
        _check_chain(ChainFile(path, Words(SWARM)).load())


def _read_electorate(data: bytes) -> None:
    electorate = Electorate.parse(3, load(data))
    assert Electorate.parse(3, electorate.to_json()) == electorate
    assert electorate.members <= electorate.former
    assert electorate.is_quorum(electorate.members) or not electorate.members
    Electorate.parse(4, electorate.after(["a", "b"], ["c"]).to_json())


def _decode(case: tuple[str, int, bytes]) -> None:
    name, numel, data = case
    values = build_codec(name, Encoding()).decode(data, numel)
    assert values.shape == (numel,) and values.dtype == torch.float32


@st.composite
def _encoded(draw: st.DrawFn) -> tuple[str, int, bytes]:
    name, numel = draw(st.sampled_from(CODECS)), draw(st.sampled_from([0, 1, 63, 1024, 4096, NUMEL]))
    valid = build_codec(name, Encoding()).encode(torch.linspace(-1, 1, numel))
    data = draw(changed_bytes([valid]))
    if draw(st.booleans()):  # with the right length
        data = data[: len(valid)] + bytes(max(0, len(valid) - len(data)))
    return name, numel, data


# States, and joining.


def _index() -> Index:
    header = {"kind": "replica-state-1", "round": 1, "tokens_total": 2, "layout": [[2, 5]], "buffers": ["v"]}
    return Blob.build(header, [bytes(40), bytes(40)]).index


def _read_index(data: bytes) -> None:
    check_header(Index.parse(data), ((2, 5),), ("v",))


def _hello() -> Hello:
    manifest = _manifest().canonical_bytes().decode()
    return hello("0" * 64, manifest=manifest, time="1.5", states=f"3:{'0' * 64} 4:{'1' * 64}")


def _read_hello(data: bytes) -> None:
    told = Hello.read(data)
    assert told.clock >= 0 or told.clock < 0
    assert all(number < 10**18 for number in told.rounds.values())
    Manifest.from_bytes(told.manifest.encode())


def _read_manifest(data: bytes) -> None:
    manifest = Manifest.from_bytes(data)
    assert Manifest.from_bytes(manifest.canonical_bytes()) == manifest
    _manifest().difference(manifest)


@functools.cache
def _organiser() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def _organisers() -> bytes:
    return _organiser().public_key().public_bytes_raw()


@functools.cache
def _token() -> Token:
    return Token.new(_organiser(), _manifest().swarm_id, 3, 3600.0)


def _revoked() -> bytes:
    return revocations.pack(revocations.revoke([bytes(8), b"revoked!"], _organiser(), _manifest().swarm_id))


def _credentials() -> st.SearchStrategy[str]:
    """Of a peer, and what the organiser signed changed before that too: uses, ends, swarms of its own."""
    credential = _token().credential("Qm")
    contents = changed_bytes([_token().signed[SIGNATURE_BYTES:]])
    resigned = contents.map(lambda content: sign_content(_organiser(), "invitation", content))
    return st.one_of(
        changed_bytes([credential.encode()]).map(lambda data: data.decode(errors="replace")),
        resigned.map(lambda signed: Token(_token().key, signed).credential("Qm")),
    )


def _read_credential(text: str) -> None:
    guests = Guests(_organisers(), _manifest().swarm_id)
    if not guests.admit("Qm", text):
        assert guests.objection("Qm") == ""
    read_credential(text, _organisers(), "Qm")


def _revocation_lists() -> st.SearchStrategy[bytes]:
    contents = changed_bytes([bytes(ID_BYTES)])
    kind = f"revocation in {_manifest().swarm_id}"
    return st.one_of(
        changed_bytes([_revoked()]), contents.map(lambda content: sign_content(_organiser(), kind, content))
    )


def _read_revocations(data: bytes) -> None:
    revoked = revocations.unpack(data, _organisers(), _manifest().swarm_id)
    assert len(revoked) <= revocations.IDS_MAX and all(len(each) == ID_BYTES for each in revoked)


def _read_dialback(data: bytes) -> None:
    answer = DialAnswer.read(data)
    with_observed(["/ip4/192.168.0.1/tcp/1"], [answer])
    for relay in answer.relays:
        _take_apart(relay)


def _take_apart(text: str) -> None:
    address = Address.parse(text)
    _ = address.port, address.transport, address.public, address.loopback, address.relayed


@functools.cache
def _tokenizer() -> bytes:
    return train_tokenizer(["to be or not to be"] * 3, 262).to_bytes()


def _read_tokenizer(data: bytes) -> None:
    Tokenizer.from_foreign(data, 0).encode("to be")


def _ask_for_chunks(data: bytes) -> None:
    async def ask() -> None:
        exchange, blob = Exchange(Direct("me", {})), Blob.build({}, [b"x" * 10])  # type: ignore[arg-type]
        exchange.publish(hello(), [blob])
        async for _ in exchange.rpc_chunks(ChunksMessage.read(data), "a"):
            pass

    asyncio.run(ask())


def _read_refusal(data: bytes) -> None:
    error = CallError.read(data)
    assert str(error) == error.detail and len(error.detail) <= DETAIL_BYTES_MAX
    assert error.detail.isprintable()
    again = CallError.read(error.pack())
    assert again.refusal == error.refusal and error.detail.startswith(again.detail)
    # What cannot be shown is longer when it is shown, so that the end may be cut off.
    assert again.detail == error.detail or len(error.detail.encode()) > DETAIL_BYTES_MAX


# Streams.


def _frame(data: bytes) -> bytes:
    return bytes(P2P.MESSAGE_MARKER + len(data).to_bytes(P2P.HEADER_LEN, P2P.BYTEORDER) + data)


def _at_most_1000(count: int) -> None:
    if count > 1000:
        raise CallError(Refusal.TOO_LONG)


def _read_frames(data: bytes) -> None:
    async def read() -> None:
        stream = asyncio.StreamReader()
        stream.feed_data(data)
        stream.feed_eof()
        frames = FrameReader(stream, _at_most_1000)
        while True:
            await P2P.receive_protobuf(BytesValue, frames)

    asyncio.run(read())


FRAMES = _frame(BytesValue(value=b"abc").SerializeToString()) * 2
STREAM_ERRORS = (CallError, asyncio.IncompleteReadError, TypeError, DecodeError)
DIGEST = Blob.build({}, [b"x" * 10]).digest

TARGETS: dict[str, Callable[[], Target]] = {
    "answers of the DHT": lambda: Target(
        st.one_of(_find_responses(), changed_bytes([b"\x12\x02\x08\x02"])),
        _check_found,
        (ValueError, DecodeError),
    ),
    "signed records": lambda: Target(_records(), _take, ()),
    "records that are told": lambda: Target(msgpack_of([b"x" * 700, b"y" * 16, True]), gossip.Told.read),
    "requests for records": lambda: Target(msgpack_of([b"x" * 700, b"y" * 32]), gossip.Request.read),
    "answers with records": lambda: Target(msgpack_of([[b"x" * 700], False]), gossip.Answer.read),
    "msgpack": lambda: Target(msgpack_of([1, {"a": [b"b"]}]), unpack),
    "signed messages": lambda: Target(_resigned(_leave()), lambda data: read_signed(data, "promise")),
    "words": lambda: Target(_words(), _read_word),
    "proofs": lambda: Target(_proofs(), lambda data: Proof.read(data, SWARM)),
    "messages about proofs": lambda: Target(
        msgpack_of([[b"x" * 8] * 3, [b"x" * 8], list(_proofs_made())]), _read_message
    ),
    "electorates": lambda: Target(json_of([["a", 4, 1, 3], ["b", 1, 2, 0]]), _read_electorate),
    "reports": lambda: Target(_reports(), _read_report),
    "answers to reports": lambda: Target(_answers(), _read_answer),
    "states that others know": lambda: Target(
        json_of({"states": [STATE, AFTER, "c" * 64]}), KnownMessage.read
    ),
    "links": lambda: Target(json_of(json.loads(LinkRecord.of(_links()[0]).to_bytes())), _read_link),
    "links that are told": lambda: Target(
        json_of(_tree(LinksMessage.of(_links(), BeginningRecord.of(Chain(STATE, _electorate()))))),
        _read_links,
    ),
    "chains on disk": lambda: Target(_chain_files(), _load_chain),
    "encoded values": lambda: Target(_encoded(), _decode),
    "indices": lambda: Target(json_of(json.loads(_index().data)), _read_index),
    "hellos": lambda: Target(json_of(_tree(_hello())), _read_hello, (ValueError, DuptError)),
    "manifests": lambda: Target(
        json_of(json.loads(_manifest().canonical_bytes())), _read_manifest, (ValueError, DuptError)
    ),
    "answers to dialling back": lambda: Target(
        json_of(
            {"observed": "1.2.3.4", "reasons": {"/ip4/0.0.0.0/tcp/1": ""}, "relays": ["/ip4/1.2.3.4/tcp/1"]}
        ),
        _read_dialback,
    ),
    "tokens": lambda: Target(
        changed_bytes([str(_token()).encode()]).map(lambda data: data.decode(errors="replace")),
        lambda text: Token.parse(text).check(_organisers(), _manifest().swarm_id),
    ),
    "credentials": lambda: Target(_credentials(), _read_credential),
    "names of invitations": lambda: Target(
        changed_bytes([str(_token()).encode(), _token().credential("Qm").encode(), b"0" * 16]).map(
            lambda data: data.decode(errors="replace")
        ),
        id_in,
    ),
    "lists of revocations": lambda: Target(_revocation_lists(), _read_revocations),
    "what peers present": lambda: Target(
        msgpack_of([_token().credential("Qm"), bytes(32), _revoked()]), Presented.read
    ),
    "tokenizers": lambda: Target(json_of(json.loads(_tokenizer())), _read_tokenizer, (ValueError, DuptError)),
    "requests of chunks": lambda: Target(
        json_of({"digest": DIGEST, "numbers": [0]}),
        _ask_for_chunks,
        (ValueError, CallError),
    ),
    "requests to dial back": lambda: Target(json_of({"addresses": ["/ip4/0.0.0.0/tcp/1"]}), DialMessage.read),
    "refusals": lambda: Target(
        changed_bytes([CallError(refusal, "not now").pack() for refusal in Refusal]), _read_refusal, ()
    ),
    "answers of relays": lambda: Target(changed_bytes([bytes.fromhex("080228643a020864")]), limit_of, ()),
    "addresses": lambda: Target(
        changed_bytes([b"/ip4/1.2.3.4/tcp/1/p2p/Qm", b"/ip6/::1/udp/9/quic-v1"]),
        lambda data: _take_apart(data.decode(errors="replace")),
        (),
    ),
    "frames": lambda: Target(changed_bytes([FRAMES]), _read_frames, STREAM_ERRORS),
}
