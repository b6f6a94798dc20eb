"""Which records a peer believes, and which it keeps when there are too many."""

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hivemind.utils import get_dht_time

from dupt_swarm.network.members import records
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.records import RECORD_BYTES_MAX, Records
from dupt_swarm.network.p2p.limits import OPEN, Admission
from dupt_swarm.node.reasons import FAILURES, REFUSED_MESSAGES, REJECTIONS
from dupt_swarm.node.record import EXPOSED_MAX, TASKS_MAX, PeerRecord, TaskResult
from dupt_swarm.replica.signed import public_of, read_signed, sign
from tests.support.signed_records import fresh_keys, id_of, signed_record

DIGEST = "ab" * 32
EVALUATION = {"dataset": "a", "bits_per_byte": 1.5, "loss_nats": 2.5, "round": 3, "time": 1e9}
# Of an oracle, as long as they get.
LONGEST = {
    "state": "averaging",
    "round": 2**61,
    "swarm_tokens": 2**61,
    "round_tokens": 2**61,
    "tokens_total": 2**61,
    "tokens_per_second": 1.1e11,
    "loss": 1.1,
    "heldout_loss": 1.1,
    "group_size": 2**19,
    "round_seconds": 1.1,
    "failed_rounds": 2**61,
    "heldout_bits_per_byte": 1.1,
    "averaging_seconds": 1.1,
    "averaged_rounds": 2**31,
    "failures": [2**31] * len(FAILURES),
    "rejections": [2**31] * len(REJECTIONS),
    "refused": [2**31] * len(REFUSED_MESSAGES),
    "exposed": ["Qm" + "1" * 44] * EXPOSED_MAX,
    "checkpoint_round": 2**61,
    "checkpoint_time": 1.1e9,
    "heldout_accuracy": 0.1,
    "heldout_nsp_accuracy": 0.1,
    "round_sent_bytes": 2**61,
    "round_received_bytes": 2**61,
    "utilization": 0.1,
    "round_waiting_seconds": 1.1,
    "waiting_seconds": 1.1,
    "name": "\N{SNOWMAN}" * 40,
    "version": "0" * 20,
    "device": "\N{SNOWMAN}" * 60,
    "credential": "A" * 300,
    "reach": "relayed",
    "addresses": ["/" + "1" * 159, "/" + "1" * 159],
}


@pytest.fixture
def manifest(make_manifest):
    """Records live 30 seconds."""
    return make_manifest(limits={"record_seconds": 30.0})


@pytest.fixture
def mine(identities):
    """The private key of the peer that publishes."""
    return load_identity(identities[0])


@pytest.fixture
def theirs(manifest) -> Records:
    """What another peer knows, who is to judge."""
    return Records(manifest, OPEN)


@pytest.fixture
def believes(manifest) -> Callable[[bytes], bool]:
    """Whether another peer who knows nothing yet believes a record."""
    return lambda data: bool(Records(manifest, OPEN).take([data]))


@pytest.fixture
def make(manifest, mine) -> Callable[..., bytes]:
    """A record signed by its owner, as it travels; ``fields`` change its content."""
    return lambda seconds=30.0, **fields: signed_record(manifest, mine, seconds, **fields)


@pytest.fixture
def sign_other(manifest, mine) -> Callable[..., bytes]:
    """Something else that the owner signed, as ``fields`` say."""

    def make(kind: str = "record", **fields: Any) -> bytes:
        content = json.loads(msgpack.unpackb(signed_record(manifest, mine))[0])
        return sign(mine, kind, {name: each for name, each in (content | fields).items() if name != "kind"})

    return make


def test_good_record(theirs, make, mine) -> None:
    """A signed record is believed by another peer, which reads from it who said what."""
    [(found, before)] = theirs.take([make(loss=2.5, name="Zoë", device="NVIDIA H100", round=3)])
    assert (found.peer_id, before) == (id_of(mine), None)
    assert (found.record.name, found.record.loss, found.record.round) == ("Zoë", 2.5, 3)
    assert list(theirs) == [found] == [theirs.of(id_of(mine))]


def test_what_a_peer_publishes_is_believed(manifest, mine, theirs) -> None:
    """It is what another peer reads, and the peer knows it itself."""
    record = PeerRecord(
        role="oracle", state="paused", time=get_dht_time(), round=1, state_digest=DIGEST, swarm_tokens=5
    )
    own = Records(manifest, OPEN)
    published = own.publish(mine, record)
    [(found, _)] = theirs.take([published.data])
    assert found == published == own.of(id_of(mine))
    assert found.record == record


def test_an_evaluators_record(theirs, make) -> None:
    """What an evaluator measured travels in its record."""
    sample = {"prompt": "Once", "text": " upon a 🕰\n"}
    found = EVALUATION | {"dataset": "wiki", "accuracy": 0.5, "nsp_accuracy": 0.75, "sample": sample}
    [(signed, _)] = theirs.take([make(role="evaluator", evaluation=found)])
    assert signed.record.evaluation.model_dump() == found


def test_tasks_of_an_evaluator(believes, make) -> None:
    """As many as there is room for, with figures of any usual size."""
    result = {"task": "arc", "metric": "acc", "value": 0.25, "round": 3}
    assert believes(make(role="evaluator", tasks=TASKS_MAX * [result]))
    assert not believes(make(role="evaluator", tasks=(TASKS_MAX + 1) * [result]))
    for wrong in ({"value": 1e10}, {"value": float("nan")}, {"task": "<b>"}, {"metric": ""}, {"round": -1}):
        assert not believes(make(role="evaluator", tasks=[result | wrong]))


def test_a_sample_is_bounded(believes, make) -> None:
    """What the model said has at most 600 bytes with its prompt, and is valid Unicode."""

    def with_sample(**sample: object) -> bool:
        return believes(make(role="evaluator", evaluation={**EVALUATION, "sample": sample}))

    assert with_sample(prompt="🕰" * 50, text="x" * 400)
    assert with_sample(prompt="", text="<script>\x1b[2J\x00\u202e")  # text like any other: see the page
    assert not with_sample(prompt="🕰" * 50, text="x" * 401)
    assert not with_sample(prompt="", text="x" * 1400)
    assert not with_sample(prompt="", text=5)
    assert not with_sample(prompt="")


def test_a_sample_gives_way(manifest, mine, theirs, make) -> None:
    """A record that would be too long with the sample is published without it."""
    about = {
        "role": "evaluator",
        "state": "evaluating",
        "time": get_dht_time(),
        "round": 3,
        "state_digest": DIGEST,
        "swarm_tokens": 100,
        "evaluation": {**EVALUATION, "sample": {"prompt": "", "text": "\N{SNOWMAN}" * 200}},
    }
    own = Records(manifest, OPEN)
    [(short, _)] = Records(manifest, OPEN).take([own.publish(mine, PeerRecord.model_validate(about)).data])
    assert short.record.evaluation is not None and short.record.evaluation.sample is not None
    rest = {name: LONGEST[name] for name in ("name", "device", "credential")}
    long = PeerRecord.model_validate({**about, **rest, "addresses": ("/" + "1" * 159,) * 3})
    assert not theirs.take([make(**long.published())])
    [(found, _)] = theirs.take([own.publish(mine, long).data])
    assert found.record.evaluation.model_dump(exclude_none=True) == EVALUATION


def test_tasks_give_way_too(manifest, mine, theirs, make) -> None:
    """Of more than there is room for, the first are published."""
    rest = {name: LONGEST[name] for name in ("name", "device", "credential")}
    results = [
        {"task": f"{number}-{'t' * 38}", "metric": "m" * 40, "value": 1 / 3, "round": 2**61}
        for number in range(TASKS_MAX)
    ]
    about = {"role": "evaluator", "state": "evaluating", "time": get_dht_time(), "round": 3}
    about |= {"state_digest": DIGEST, "swarm_tokens": 100, "evaluation": EVALUATION, **rest}
    about |= {"addresses": ("/" + "1" * 159,) * 3, "published_at": "https://" + "x" * 150}
    long = PeerRecord.model_validate({**about, "tasks": tuple(map(TaskResult.model_validate, results))})
    assert not theirs.take([make(**long.published())])
    [(found, _)] = theirs.take([Records(manifest, OPEN).publish(mine, long).data])
    assert found.record.evaluation.model_dump(exclude_none=True) == EVALUATION
    assert 0 < len(found.record.tasks) < TASKS_MAX
    assert found.record.tasks == long.tasks[: len(found.record.tasks)]


def test_largest_honest_record_fits(believes, make) -> None:
    """The longest record that an oracle can publish of itself is within the limit; it evaluates nothing."""
    assert believes(make(role="oracle", **LONGEST))


def test_largest_record_of_an_evaluator_fits(believes, make) -> None:
    """So is that of an evaluator, which has no rounds to tell of."""
    names = (
        "round",
        "swarm_tokens",
        "reach",
        "checkpoint_round",
        "name",
        "device",
        "credential",
        "addresses",
    )
    rest = {name: LONGEST[name] for name in names}
    found = EVALUATION | {"dataset": "x" * 40, "accuracy": 0.1, "round": 2**61, "time": get_dht_time()}
    assert believes(make(role="evaluator", state="averaging", evaluation=found, **rest))


def test_refusals_are_counted_by_reason(theirs, make) -> None:
    """What is not believed is counted under the first thing that is wrong with it."""
    theirs.take([make()])
    assert theirs.refused == {}
    later = get_dht_time() + 3600
    theirs.take([make(seconds=31)[:-20] + bytes(20), make(31, round=-1), b"x", make(31, time=later)])
    theirs.take([bytes(RECORD_BYTES_MAX + 1)])
    assert theirs.refused == {"signature": 1, "content": 2, "size": 1, "time": 1}


def test_one_bad_record_spoils_no_others(manifest, theirs) -> None:
    """It is dropped alone, wherever it is among them."""
    one, two = fresh_keys(2)
    news = theirs.take([b"", signed_record(manifest, one), b"\x93" * 500, signed_record(manifest, two), b""])
    assert [record.peer_id for record, _ in news] == [id_of(one), id_of(two)]
    assert theirs.refused == {"content": 3}


def test_signature_is_needed(believes, make, identities) -> None:
    """A record whose content, end or signer was changed is refused."""
    text, public, signature = msgpack.unpackb(make(round=3))
    other = public_of(load_identity(identities[1]))
    ends = json.loads(text)["expires"]
    changed = text.replace(DIGEST.encode(), b"cd" * 32), text.replace(b"%r" % ends, b"%r" % (ends + 1))
    forged = [
        *[(each, public, signature) for each in changed],
        (text, other, signature),
        (text, public, signature[:-8] + bytes(8)),
        (text, public, b""),
    ]
    assert text not in changed
    assert [believes(msgpack.packb(each)) for each in forged] == [False] * 5


def test_other_kinds_of_statements(believes, sign_other) -> None:
    """What a peer signed as something else, or for another swarm, is no record of this one."""
    assert believes(sign_other())
    assert not believes(sign_other(kind="vote"))
    assert not believes(sign_other(swarm="other-0123456789ab"))


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
def test_implausible_content(believes, make, fields) -> None:
    """NaN, huge numbers, wrong types and unknown words are refused although they are signed."""
    assert not believes(make(**fields))


def test_oversized(believes, make) -> None:
    """Too large a record is refused, also where the surplus is in a field that nobody reads."""
    assert believes(make(junk="x" * 100))
    assert not believes(make(junk="x" * RECORD_BYTES_MAX))


@pytest.mark.parametrize("value", [None, 1, True, "text", [], [1, 2], {}, {"1": 2}])
def test_other_types(believes, sign_other, value) -> None:
    """Signed values that are no dictionary with the right keys are refused."""
    assert not believes(sign_other(record=value))


@pytest.mark.parametrize("expires", [None, 9_999_999_999, "soon", float("nan"), float("inf"), [1.0]])
def test_an_end_that_is_none(believes, sign_other, expires) -> None:
    """A record says when it expires, as a fraction of finite length."""
    assert not believes(sign_other(expires=expires))


def test_far_expiry(believes, make) -> None:
    """A record cannot outlive the peer's silence: its expiry is bounded, but for a skew of the clocks."""
    assert believes(make(seconds=32.0))
    assert [believes(make(seconds=each)) for each in (34.0, 1e9, -1.0)] == [False] * 3


def test_future_time(believes, make) -> None:
    """A record from the future is refused, but for a skew of the clocks."""
    assert believes(make(time=get_dht_time() + 1))
    assert not believes(make(time=get_dht_time() + 10))


HOSTILE = [
    b"",
    b"\xc1",
    b"\xff" * 100,
    b"\x93" * 500,
    b"\xdf\xff\xff\xff\xff",
    msgpack.packb([b"[" * 2000, bytes(31), b""]),
    msgpack.packb([b'{"expires":', b"", b""]),
    msgpack.packb([b'{"expires":1.0}', bytes(31), b""]),
    msgpack.packb([1, 2, 3]),
    msgpack.packb({}),
]


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes(theirs, data) -> None:
    """Bytes that are no signed record are refused without an exception, and soon."""
    began = time.process_time()
    assert not theirs.take([data] * 1000)
    assert time.process_time() - began < 1
    assert theirs.refused == {"content": 1000}


def test_what_is_known_is_not_verified_again(theirs, make, monkeypatch) -> None:
    """Most of what others tell was told a moment ago; a single other byte is looked at anew."""
    verified: list[bytes] = []
    read = read_signed

    def note(data: bytes, kind: str):
        verified.append(data)
        return read(data, kind)

    monkeypatch.setattr(records, "read_signed", note)
    data, newer = make(), make(31)
    assert [len(theirs.take([data])) for _ in range(3)] == [1, 0, 0]
    assert verified == [data]
    assert [len(theirs.take([each])) for each in (newer[:-8] + bytes(8), newer, data)] == [0, 1, 0]
    assert len(verified) == 3


class Crowd:
    """A peer that has room for three records, and its mates' keys."""

    def __init__(self, manifest, mates: int = 2) -> None:
        self.manifest, self.full = manifest, Counter[str]()
        self.keys = fresh_keys(6)
        self.mates = {id_of(key) for key in self.keys[:mates]}
        self.records = Records(manifest, OPEN, lambda: self.mates, self.full)

    def take(self, *numbers: int, seconds: float = 20.0) -> None:
        for number in numbers:
            self.records.take([signed_record(self.manifest, self.keys[number], seconds)])

    @property
    def owners(self) -> list[int]:
        names = [id_of(key) for key in self.keys]
        return [names.index(each.peer_id) for each in self.records]


@pytest.fixture
def crowd(manifest, monkeypatch) -> Crowd:
    """The first two are its mates."""
    monkeypatch.setattr(records, "RECORDS_MAX", 3)
    return Crowd(manifest)


def test_a_peer_that_is_known_stays(crowd) -> None:
    """Newcomers find no place while all are taken, and are counted; those who are known are renewed."""
    crowd.take(2, 3, 4, 5)
    assert (crowd.owners, crowd.full) == ([2, 3, 4], {"full": 1})
    before = crowd.records.of(id_of(crowd.keys[3])).expires
    crowd.take(3, seconds=25.0)
    assert crowd.owners == [2, 3, 4] and crowd.records.of(id_of(crowd.keys[3])).expires > before


def test_mates_come_first(crowd) -> None:
    """A mate takes the place of the newest who is none, and nobody takes a mate's."""
    crowd.take(2, 0, 3, 1, 4)
    assert sorted(crowd.owners) == [0, 1, 2]


def test_a_mate_takes_no_mates_place(crowd) -> None:
    """Also if that came last."""
    crowd.take(2, 3, 0, 1)
    assert sorted(crowd.owners) == [0, 1, 2]


def test_a_peer_that_is_not_admitted_has_no_record(manifest, make) -> None:
    """It takes nobody's place, and is counted."""

    class Nobody(Admission):
        def admit(self, peer_id: str, credential: str) -> str:
            return f"{peer_id} has shown {credential!r}"

    found = Records(manifest, Nobody())
    assert found.take([make()]) == [] and len(found) == 0
    assert found.refused == {"invitation": 1}


def test_the_newest_counts(crowd) -> None:
    """A record that ends later takes the place of the one before, and not the other way round."""
    first, last, late = (signed_record(crowd.manifest, crowd.keys[2], each) for each in (15.0, 19.0, 17.0))
    for data in (first, last, late):
        crowd.records.take([data])
    assert [each.data for each in crowd.records] == [last]


def test_what_has_expired_is_forgotten(crowd, monkeypatch) -> None:
    """Its place is free then; and nobody takes what has expired already."""
    crowd.take(2, 3, 4)
    later = get_dht_time() + 21
    expired = signed_record(crowd.manifest, crowd.keys[5])
    monkeypatch.setattr(records, "get_dht_time", lambda: later)
    crowd.records.forget_expired()
    crowd.records.take([expired])
    assert crowd.owners == []


def test_what_others_should_act_on_at_once(theirs, make) -> None:
    """A newcomer, another state or other work; not that time has gone by and tokens were trained."""
    told = [make(20), make(21, loss=1.0), make(22, state="averaging"), make(23, state="averaging", round=1)]
    assert [record.changes(before) for record, before in theirs.take(told)] == [True, False, True, True]
