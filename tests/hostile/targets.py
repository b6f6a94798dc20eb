"""What parses bytes from the network, each with inputs of its kind and the errors that its callers expect."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
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
from hivemind.utils.crypto import RSAPrivateKey
from hypothesis import strategies as st

from dupt_swarm.errors import DuptError
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from dupt_swarm.manifest import Encoding, Manifest
from dupt_swarm.network.admission import Guests, Presented
from dupt_swarm.network.auditing import check_evidence
from dupt_swarm.network.averaging.group import SharingGroup
from dupt_swarm.network.averaging.offences import ProofsMessage
from dupt_swarm.network.averaging.pledge import Accepting, Proof, Subject, Vote
from dupt_swarm.network.averaging.polls import VoteMessage, VotesMessage
from dupt_swarm.network.averaging.reports import Acceptance, AnswerMessage, Decision, Report, ReportMessage
from dupt_swarm.network.averaging.reports import Answer as AgreementAnswer
from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.network.averaging.roll_call import CoordinatorMessage, JoinMessage, RollMessage, StateMessage
from dupt_swarm.network.members import gossip
from dupt_swarm.network.members.records import Records
from dupt_swarm.network.p2p.dht_messages import check_dht_message, place_of
from dupt_swarm.network.p2p.frames import FrameReader
from dupt_swarm.network.p2p.limits import OPEN
from dupt_swarm.network.p2p.rpc import DETAIL_BYTES_MAX, CallError, Refusal
from dupt_swarm.network.reach.dialback import Answer, DialMessage
from dupt_swarm.network.reach.reachability import with_observed
from dupt_swarm.network.reach.relays import limit_of
from dupt_swarm.network.states.exchange import ChunksMessage, Exchange, Log
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.record import PeerRecord
from dupt_swarm.organiser import revocations
from dupt_swarm.organiser.invitation import ID_BYTES, Token, id_in, read_credential
from dupt_swarm.organiser.signed import SIGNATURE_BYTES
from dupt_swarm.organiser.signed import sign as sign_content
from dupt_swarm.replica.blob import Blob, Index
from dupt_swarm.replica.codec import build_codec
from dupt_swarm.replica.plain import load, unpack
from dupt_swarm.replica.signed import read_signed, sign
from dupt_swarm.replica.state import check_header
from dupt_swarm.replica.voters import Voters
from tests.hostile.inputs import JSON_VALUES, changed_bytes, changed_tree, json_of, msgpack_of
from tests.support.direct import Direct
from tests.support.sharing_groups import STATE, SWARM, group_of, member_keys
from tests.support.tiny import tiny_manifest

SENDER = b"\x12\x20" + bytes(range(32))
NUMEL = 5000
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
def _keys() -> dict[str, RSAPrivateKey]:
    return member_keys(3)


def _key() -> RSAPrivateKey:
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


def _signed_contents() -> st.SearchStrategy[bytes]:
    content = {"swarm": SWARM, "round": 3, "state": STATE, "contribution": "0" * 64, "tokens": 10}
    content["callable"] = True
    honest = sign(_key(), "contribution", content)
    trees = changed_tree(content, st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=5)))
    return st.one_of(
        trees.filter(lambda tree: isinstance(tree, dict)).map(
            lambda tree: sign(_key(), "contribution", tree)
        ),
        changed_bytes([honest]),
        msgpack_of(msgpack.unpackb(honest)),
    )


@functools.cache
def _group() -> SharingGroup:
    return group_of(_keys())


def _acceptance(place: int, *choice: int) -> bytes:
    peer = _group().members[place]
    return _group().sign(peer, _keys()[peer], Acceptance(1, choice))


@functools.cache
def _decision() -> Decision:
    return Decision(1, (0, 1), (0, 2), (_acceptance(0, 0, 1), _acceptance(2, 0, 1)))


def _joins() -> st.SearchStrategy[bytes]:
    return json_of(JoinMessage(statement="abcd").model_dump())


def _rolls() -> st.SearchStrategy[bytes]:
    return st.one_of(
        json_of(RollMessage.of(group_of(_keys()).roll).model_dump()),
        changed_bytes([group_of(_keys()).roll.data]),
    )


def _read_roll(data: bytes) -> None:
    statements = group_of(_keys()).roll.statements
    try:
        message = RollMessage.read(data)
    except ValueError:
        Roll.read(data, statements)
    else:
        Roll.read(
            base64.b64decode(message.roll),
            [Statement.read(base64.b64decode(each), SWARM) for each in message.statements],
        )


def _vote(after: str = "b" * 64) -> Vote:
    peer, key = next(iter(_keys().items()))
    return Vote.sign(Subject(SWARM, "ab" * 20, 3, STATE), after, peer, key)


@functools.cache
def _proof() -> bytes:
    return Proof.of(_vote(), _vote("c" * 64)).data


@functools.cache
def _proof_of_acceptances() -> bytes:
    return Proof.of(*(Accepting.read(_acceptance(0, 0, *choice)) for choice in ((1,), (1, 2)))).data


def _proofs() -> st.SearchStrategy[bytes]:
    """Also of votes and acceptances each of which is valid."""
    signed = [_vote(digit * 64).data for digit in "bcd"]
    signed += [_acceptance(0, 0, 1), _acceptance(0, 0, 1, 2)]
    kinds = st.sampled_from(["vote", "acceptance", "statement", "", None])
    mixed = st.tuples(kinds, st.lists(st.sampled_from(signed), max_size=3))
    return st.one_of(
        changed_bytes([_proof(), _proof_of_acceptances()]),
        msgpack_of(msgpack.unpackb(_proof())),
        msgpack_of(msgpack.unpackb(_proof_of_acceptances())),
        mixed.map(lambda some: bytes(msgpack.packb([some[0], *some[1]]))),
    )


def _read_message(data: bytes) -> None:
    message = ProofsMessage.read(data)
    assert ProofsMessage.read(message.pack()) == message
    for each in message.proofs:
        Proof.read(each, SWARM)


def _polled() -> VoteMessage:
    return VoteMessage(roll="ab" * 20, vote="abcd", known=("c" * 64,))


def _read_votes(data: bytes) -> None:
    for each in VotesMessage.read(data).votes:
        Vote.read(base64.b64decode(each))


def _read_report(data: bytes) -> None:
    report = ReportMessage.read(data).report(3)
    if report.accepted is not None:
        _group().check_acceptance(0, report.accepted)


def _read_answer(data: bytes) -> None:
    answer = AnswerMessage.read(data).answer(3)
    if answer.decision is not None:
        _group().check_decision(answer.decision)


def _answers() -> st.SearchStrategy[bytes]:
    answer = AgreementAnswer(1, (0, 1), _decision(), (frozenset({0}), frozenset({1}), frozenset({2})))
    return json_of(AnswerMessage.of(answer).model_dump())


def _reports() -> st.SearchStrategy[bytes]:
    report = Report(1, frozenset({0, 1}), Acceptance(1, (0, 1), (0, (0,)), _acceptance(0, 0, 1)))
    return json_of(ReportMessage.of("ab" * 20, report).model_dump())


def _log() -> list[dict[str, Any]]:
    entry = {
        **{"round": 4, "before": "a" * 64, "after": "b" * 64, "exchange": "share", "members": list(_keys())},
        "inputs": [{"digest": "0" * 64, "tokens": 5, "maker": next(iter(_keys())), "statement": "abcd"}],
        "votes": ["abcd"],
    }
    return [entry, {**entry, "round": 5, "before": "b" * 64, "after": "c" * 64, "exchange": "reduce"}]


def _read_log(data: bytes) -> None:
    log = Log.read(data)
    assert Log.read(log.pack()) == log
    for entry in log.entries:
        check_evidence(entry, SWARM, Voters())


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


def _hello() -> dict[str, str]:
    return {
        **{"version": "0.3.0", "swarm_id": _manifest().swarm_id, "tokenizer_blob": "0" * 64},
        **{"manifest": _manifest().canonical_bytes().decode(), "state_digest": "0" * 64, "time": "1.5"},
        "states": f"3:{'0' * 64} 4:{'1' * 64}",
    }


def _read_hello(data: bytes) -> None:
    hello = Hello.read(data)
    assert hello.clock >= 0 or hello.clock < 0
    assert all(number < 10**18 for number in hello.rounds.values())
    Manifest.from_bytes(hello.manifest.encode())


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
    answer = Answer.read(data)
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
        exchange.publish(Hello("", "", "", "", ""), [blob])
        async for _ in exchange.rpc_chunks(ChunksMessage.read(data), "a"):
            pass

    asyncio.run(ask())


def _read_refusal(data: bytes) -> None:
    error = CallError.read(data)
    assert str(error) == error.detail and len(error.detail) <= DETAIL_BYTES_MAX
    assert error.detail.isprintable()
    again = CallError.read(error.pack())
    assert (again.refusal, again.detail) == (error.refusal, error.detail)


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
    "signed messages": lambda: Target(_signed_contents(), lambda data: read_signed(data, "contribution")),
    "statements": lambda: Target(_signed_contents(), lambda data: Statement.read(data, SWARM)),
    "acceptances": lambda: Target(changed_bytes([_acceptance(0, 0, 1)]), Accepting.read),
    "who comes to end a round": lambda: Target(_joins(), JoinMessage.read),
    "rolls": lambda: Target(_rolls(), _read_roll),
    "who looks for the others": lambda: Target(
        json_of(StateMessage(round=3, state=STATE).model_dump()), StateMessage.read
    ),
    "whom the others ask": lambda: Target(
        json_of(CoordinatorMessage(coordinator="QmSome").model_dump()), CoordinatorMessage.read
    ),
    "votes": lambda: Target(changed_bytes([_vote().data]), Vote.read),
    "proofs": lambda: Target(_proofs(), lambda data: Proof.read(data, SWARM)),
    "messages about proofs": lambda: Target(
        msgpack_of([[b"x" * 8] * 3, [b"x" * 8], [_proof(), _proof_of_acceptances()]]), _read_message
    ),
    "who votes": lambda: Target(json_of(_polled().model_dump()), VoteMessage.read),
    "votes told": lambda: Target(json_of(VotesMessage(votes=("abcd",)).model_dump()), _read_votes),
    "tables of voters": lambda: Target(
        json_of([["a", 4, 3], ["b", 1, 2]]), lambda data: Voters.parse(load(data))
    ),
    "reports": lambda: Target(_reports(), _read_report),
    "answers to reports": lambda: Target(_answers(), _read_answer),
    "logs": lambda: Target(json_of(_log()), _read_log),
    "encoded values": lambda: Target(_encoded(), _decode),
    "indices": lambda: Target(json_of(json.loads(_index().data)), _read_index),
    "hellos": lambda: Target(json_of(_hello()), _read_hello, (ValueError, DuptError)),
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
