import dataclasses
import time

import pytest
from hivemind.dht.crypto import DHTRecord
from hivemind.dht.routing import DHTID
from hivemind.utils import MSGPackSerializer, get_dht_time

from dupt_swarm.network.members.identity import load_identity, owner_tag, peer_id_of
from dupt_swarm.network.members.validator import (
    RECORD_BYTES_MAX,
    build_validator,
    parse_record,
    peers_key,
    published,
)
from dupt_swarm.node.reasons import FAILURES, REFUSED_MESSAGES, REJECTIONS
from dupt_swarm.node.record import EXPOSED_MAX, PeerRecord
from tests.support.signed_records import fresh_key, signed_record

DIGEST = "ab" * 32


@pytest.fixture
def manifest(make_manifest):
    """Records live 30 seconds."""
    return make_manifest(limits={"record_seconds": 30.0})


@pytest.fixture
def mine(identities):
    """The private key of the peer that publishes."""
    return load_identity(identities[0])


@pytest.fixture
def theirs(manifest, identities):
    """The validator of another peer, which is to judge."""
    return build_validator(manifest, load_identity(identities[1]))


@pytest.fixture
def make_record(manifest, mine):
    """A record signed by its owner; ``fields`` change its content, ``value`` replaces it."""

    def make(*, value=None, seconds=30.0, key=None, subkey=None, signed=True, **fields) -> DHTRecord:
        content = {
            "role": "oracle",
            "state": "training",
            "time": get_dht_time(),
            "round": 3,
            "state_digest": DIGEST,
            "swarm_tokens": 100,
        }
        record = DHTRecord(
            key=DHTID.generate(source=key or peers_key(manifest.swarm_id)).to_bytes(),
            subkey=MSGPackSerializer.dumps(owner_tag(mine) if subkey is None else subkey),
            value=MSGPackSerializer.dumps(content | fields if value is None else value),
            expiration_time=get_dht_time() + seconds,
        )
        if not signed:
            return record
        return dataclasses.replace(record, value=build_validator(manifest, mine).sign_value(record))

    return make


def test_good_record(theirs, make_record, mine) -> None:
    """A signed record is accepted by another peer, which reads from it who said what."""
    record = make_record(loss=2.5, name="Zoë", device="NVIDIA H100")
    assert theirs.validate(record)
    value = MSGPackSerializer.loads(theirs.strip_value(record))
    peer_id, parsed = parse_record(owner_tag(mine), value)
    assert peer_id == peer_id_of(owner_tag(mine))
    assert (parsed.name, parsed.loss, parsed.round) == ("Zoë", 2.5, 3)


def test_an_evaluators_record(theirs, make_record, mine) -> None:
    """What an evaluator measured travels in its record."""
    found = {
        **{"dataset": "wiki", "bits_per_byte": 1.5, "loss_nats": 2.5, "accuracy": 0.5},
        **{"round": 3, "time": get_dht_time()},
    }
    found |= {"sample": {"prompt": "Once", "text": " upon a 🕰\n"}}
    record = make_record(role="evaluator", evaluation=found)
    assert theirs.validate(record)
    _, parsed = parse_record(owner_tag(mine), MSGPackSerializer.loads(theirs.strip_value(record)))
    assert parsed.evaluation is not None
    assert parsed.evaluation.model_dump() == found


def test_a_sample_is_bounded(theirs, make_record) -> None:
    """What the model said has at most 600 bytes with its prompt, and is valid Unicode."""

    def with_sample(**sample: object) -> bool:
        found = {"dataset": "a", "bits_per_byte": 1.5, "loss_nats": 2.5, "round": 3, "time": get_dht_time()}
        return theirs.validate(make_record(role="evaluator", evaluation={**found, "sample": sample}))

    assert with_sample(prompt="🕰" * 50, text="x" * 400)
    assert with_sample(prompt="", text="<script>\x1b[2J\x00\u202e")  # text like any other: see the page
    assert not with_sample(prompt="🕰" * 50, text="x" * 401)
    assert not with_sample(prompt="", text="x" * 1400)
    assert not with_sample(prompt="", text=b"x")
    assert not with_sample(prompt="")


def test_a_sample_gives_way(theirs, make_record) -> None:
    """A record that would be too long with the sample is published without it."""
    found = {"dataset": "a", "bits_per_byte": 1.5, "loss_nats": 2.5, "round": 3, "time": get_dht_time()}
    found["sample"] = {"prompt": "", "text": "x" * 600}
    about = {
        "role": "evaluator",
        "state": "evaluating",
        "time": get_dht_time(),
        "round": 3,
        "state_digest": DIGEST,
        "swarm_tokens": 100,
        "evaluation": found,
    }
    short = PeerRecord.model_validate(about)
    assert published(short) == short.published()
    long = PeerRecord.model_validate(
        {
            **about,
            "name": "\N{SNOWMAN}" * 40,
            "device": "\N{SNOWMAN}" * 60,
            "addresses": ("/" + "1" * 159,) * 3,
            "credential": "A" * 300,
        }
    )
    told = published(long)
    assert not theirs.validate(make_record(**long.published()))
    assert theirs.validate(make_record(**told))
    del found["sample"]
    assert told["evaluation"] == found


def test_largest_honest_record_fits(theirs, make_record) -> None:
    """The longest record that an oracle can publish of itself is within the limit; it evaluates nothing."""
    largest = make_record(
        role="oracle",
        state="averaging",
        round=2**61,
        swarm_tokens=2**61,
        round_tokens=2**61,
        tokens_total=2**61,
        tokens_per_second=1.1e11,
        loss=1.1,
        heldout_loss=1.1,
        group_size=2**19,
        round_seconds=1.1,
        failed_rounds=2**61,
        heldout_bits_per_byte=1.1,
        averaging_seconds=1.1,
        averaged_rounds=2**31,
        failures=[2**31] * len(FAILURES),
        rejections=[2**31] * len(REJECTIONS),
        refused=[2**31] * len(REFUSED_MESSAGES),
        exposed=["Qm" + "1" * 44] * EXPOSED_MAX,
        checkpoint_round=2**61,
        checkpoint_time=1.1e9,
        heldout_accuracy=0.1,
        round_sent_bytes=2**61,
        round_received_bytes=2**61,
        utilization=0.1,
        round_waiting_seconds=1.1,
        waiting_seconds=1.1,
        name="\N{SNOWMAN}" * 40,
        version="0" * 20,
        device="\N{SNOWMAN}" * 60,
        credential="A" * 300,
        reach="relayed",
        addresses=["/" + "1" * 159, "/" + "1" * 159],
    )
    assert len(theirs.strip_value(largest)) <= RECORD_BYTES_MAX
    assert theirs.validate(largest)


def test_largest_record_of_an_evaluator_fits(theirs, make_record) -> None:
    """So is that of an evaluator, which has no rounds to tell of."""
    largest = make_record(
        role="evaluator",
        state="averaging",
        round=2**61,
        swarm_tokens=2**61,
        reach="relayed",
        checkpoint_round=2**61,
        checkpoint_time=1.1e9,
        evaluation={
            "dataset": "x" * 40,
            "bits_per_byte": 1.1,
            "loss_nats": 1.1,
            "accuracy": 0.1,
            "round": 2**61,
            "time": get_dht_time(),
        },
        name="\N{SNOWMAN}" * 40,
        version="0" * 20,
        device="\N{SNOWMAN}" * 60,
        credential="A" * 300,
        addresses=["/" + "1" * 159, "/" + "1" * 159],
    )
    assert theirs.validate(largest)


def test_refusals_are_counted_by_reason(theirs, make_record) -> None:
    """What is not believed is counted under the first thing that is wrong with it."""
    assert theirs.validate(make_record())
    assert theirs.refused == {}
    theirs.validate(make_record(signed=False))
    theirs.validate(make_record(round=-1))
    theirs.validate(make_record(junk="x" * RECORD_BYTES_MAX))
    theirs.validate(make_record(time=get_dht_time() + 3600))
    assert theirs.refused == {"signature": 1, "content": 1, "size": 1, "time": 1}


def test_time_is_linear_in_the_length(theirs, make_record) -> None:
    """What hivemind searches in quadratic time is refused by its form: 10,000 such values take a moment."""
    records = [
        dataclasses.replace(make_record(), value=b"[signature:" * 170),
        make_record(key="x", subkey=b"[owner:" * 140, value=True, signed=False),
        dataclasses.replace(make_record(key="x", signed=False), value=b"[signature:" * 170),
    ]
    began = time.process_time()
    for record in records:
        for _ in range(10_000):
            assert not theirs.validate(record)
    assert time.process_time() - began < 5  # searching takes 3 ms each


def test_owner_only(theirs, make_record, identities) -> None:
    """Nobody can store under another peer's key, whether signed with the wrong key or not at all."""
    victim = owner_tag(load_identity(identities[2]))
    assert not theirs.validate(make_record(subkey=victim))
    assert not theirs.validate(make_record(subkey=victim, signed=False))


def test_signature_is_needed(theirs, make_record) -> None:
    """An unsigned record, and a signed one whose content was changed, are refused."""
    assert not theirs.validate(make_record(signed=False))
    record = make_record(round=3)
    changed = record.value.replace(DIGEST.encode(), b"cd" * 32)
    assert changed != record.value
    assert not theirs.validate(dataclasses.replace(record, value=changed))
    assert not theirs.validate(dataclasses.replace(record, expiration_time=record.expiration_time + 1))


@pytest.mark.parametrize(
    "fields",
    [
        {"loss": float("nan")},
        {"loss": float("inf")},
        {"tokens_per_second": float("nan")},
        {"tokens_per_second": 1e13},
        {"time": float("nan")},
        {"time": 1e12},
        {"round": 2**62},
        {"round": -1},
        {"round": "3"},
        {"state_digest": "x" * 64},
        {"state_digest": b"ab" * 32},
        {"role": "king"},
        {"state": ""},
        {"name": "x" * 41},
        {"name": ["x"]},
        {"reach": "everywhere"},
        {"addresses": "/ip4/192.0.2.1/tcp/1"},
        {"addresses": ["/ip4/192.0.2.1/tcp/1"] * 4},
        {"addresses": ["/dns4/" + "x" * 155]},
        {"addresses": ["no multiaddr"]},
        {"addresses": ["/ip4/192.0.2.1/tcp/1\n/x"]},
    ],
)
def test_implausible_content(theirs, make_record, fields) -> None:
    """NaN, huge numbers, wrong types and unknown words are refused although they are signed."""
    assert not theirs.validate(make_record(**fields))


def test_oversized(theirs, make_record) -> None:
    """Too large a record is refused, also where the surplus is in a field that nobody reads."""
    assert theirs.validate(make_record(junk="x" * 100))
    assert not theirs.validate(make_record(junk="x" * RECORD_BYTES_MAX))


@pytest.mark.parametrize("value", [None, 1, True, "text", b"bytes", [], [1, 2], {}, {1: 2}])
def test_other_types(theirs, make_record, value) -> None:
    """Signed values that are no dictionary with the right keys are refused."""
    assert not theirs.validate(make_record(value=value) if value is not None else make_record(value=[None]))


def test_far_expiry(theirs, make_record) -> None:
    """A record cannot outlive the peer's silence: its expiry is bounded, but for a skew of the clocks."""
    assert theirs.validate(make_record(seconds=32.0))
    assert not theirs.validate(make_record(seconds=34.0))
    assert not theirs.validate(make_record(seconds=1e9))
    assert not theirs.validate(make_record(seconds=float("inf")))


def test_future_time(theirs, make_record) -> None:
    """A record from the future is refused, but for a skew of the clocks."""
    assert theirs.validate(make_record(time=get_dht_time() + 1))
    assert not theirs.validate(make_record(time=get_dht_time() + 10))


@pytest.mark.parametrize("subkey", [1, "peer", b"peer", b"", None, [1]])
def test_junk_subkeys(theirs, make_record, subkey) -> None:
    """Under the peers' key nothing is stored but by owners: junk would hide them all."""
    assert not theirs.validate(make_record(subkey=[None] if subkey is None else subkey))


def test_reserved_subkeys(theirs, make_record) -> None:
    """A plain value or a ready-made dictionary under the peers' key is refused."""
    for subkey in (MSGPackSerializer.dumps(None), b""):
        record = dataclasses.replace(make_record(signed=False), subkey=subkey)
        assert not theirs.validate(record)


def test_other_keys(theirs, make_record) -> None:
    """No other key takes anything, signed or not."""
    for signed in (True, False):
        record = make_record(key="test.0b101", signed=signed)
        assert not theirs.validate(record)
        assert not theirs.validate(
            make_record(key="x", subkey=b"\x12\x20" + bytes(32), value=True, signed=signed)
        )
    assert theirs.validate(make_record())


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\xff" * 100, b"\x93" * 500, b"\xdf\xff\xff\xff\xff"])
def test_hostile_bytes(theirs, make_record, value) -> None:
    """Bytes that are no msgpack are refused without an exception, under any key."""
    for key in (None, "other"):
        record = make_record(key=key, subkey=b"peer", value=True, signed=False)
        assert not theirs.validate(dataclasses.replace(record, value=value))
        assert not theirs.validate(dataclasses.replace(record, subkey=value))


def test_another_swarm(make_manifest, identities, make_record) -> None:
    """A record of one swarm is not accepted under the rules of another one."""
    other = build_validator(make_manifest(name="other"), load_identity(identities[1]))
    assert not other.validate(make_record())


def test_what_was_accepted_is_not_verified_again(make_manifest, monkeypatch) -> None:
    """Most of what is read was read a moment ago; a single other byte is looked at anew."""
    manifest, key = make_manifest(), fresh_key()
    tag, value, expires = signed_record(manifest, key)
    place = DHTID.generate(source=peers_key(manifest.swarm_id)).to_bytes()
    record = DHTRecord(place, MSGPackSerializer.dumps(tag), value, expires)
    validator = build_validator(manifest, fresh_key())
    verified: list[DHTRecord] = []
    verify = validator._signature.validate

    def note(record: DHTRecord) -> bool:
        verified.append(record)
        return bool(verify(record))

    monkeypatch.setattr(validator._signature, "validate", note)
    assert [validator.validate(record) for _ in range(3)] == [True] * 3
    assert len(verified) == 1
    later = dataclasses.replace(record, expiration_time=expires + 0.5)
    forged = dataclasses.replace(record, value=value[:5] + b"x" + value[6:])
    assert [validator.validate(each) for each in (later, forged, record)] == [False, False, True]
    assert len(verified) == 3


def test_when_it_expires_is_signed_as_it_is_written(manifest, mine, theirs, make_record) -> None:
    """A whole number in the place of the same fraction is another record, and its signature fails."""
    unsigned = dataclasses.replace(make_record(signed=False), expiration_time=float(int(get_dht_time()) + 20))
    record = dataclasses.replace(unsigned, value=build_validator(manifest, mine).sign_value(unsigned))
    assert theirs.validate(record)
    assert not theirs.validate(dataclasses.replace(record, expiration_time=int(record.expiration_time)))
