"""A field of the record, and the metrics that show it."""

from typing import Annotated, Any

import pytest
from pydantic import Field

from dupt_swarm.metrics.peer import PEER_METRICS
from dupt_swarm.metrics.record import IN_PEER, IN_SWARM, in_peer, in_swarm, of_peer, of_swarm
from dupt_swarm.metrics.swarm import SWARM_METRICS
from dupt_swarm.node.record import Metric, PeerRecord
from dupt_swarm.node.view import Peer


class WarmRecord(PeerRecord):
    """With one field more: this declaration is all that it takes."""

    warmth: Annotated[
        float | None,
        Field(ge=0, le=200),
        Metric("warmth_celsius", "How warm an oracle is.", own=True),
        Metric("warmth_max_celsius", "How warm the warmest oracle is.", over="max"),
        Metric("warmth_celsius", "How warm oracles are, median.", over="median"),
    ] = None


def warm(peer_id: str, warmth: float | None, make_peer: Any) -> Peer:
    record = make_peer(peer_id).record
    return Peer(peer_id, WarmRecord.model_validate(record.given | {"warmth": warmth}))


def test_a_field_more(make_peer) -> None:
    """It is published, and exported of each oracle, of all of them and by itself, where it is known."""
    peers = [warm("a", 40.0, make_peer), warm("b", 60.0, make_peer), warm("c", None, make_peer)]
    assert peers[0].record.published()["warmth"] == 40.0
    new = [each for each in in_swarm(WarmRecord) if each.field == "warmth"]
    assert {each.spec.name: each.samples(peers) for each in new} == {
        "dupt_swarm_peer_warmth_celsius": [(("a",), 40.0), (("b",), 60.0)],
        "dupt_swarm_warmth_max_celsius": [((), 60.0)],
        "dupt_swarm_warmth_celsius": [((), 50.0)],
    }
    assert {each.spec.labels for each in new} == {("run", "peer_id"), ("run",)}
    [own] = set(in_peer(WarmRecord)) - set(IN_PEER)
    assert (own.spec.name, own.spec.labels) == ("dupt_peer_warmth_celsius", ())
    assert [own.value(peer.record) for peer in peers] == [[((), 40.0)], [((), 60.0)], []]


def test_nobody_knows(make_peer) -> None:
    """A figure of nobody has no sample, which is not zero."""
    unknown = [each for each in IN_SWARM if PeerRecord.model_fields[each.field].default is None]
    assert len(unknown) > 10
    assert [each.samples([make_peer("a")]) for each in unknown] == [[]] * len(unknown)


def test_some_fields_are_of_oracles_only(make_peer) -> None:
    """A first peer has a round, which counts for itself and in the swarm, and no tokens, rather than zero."""
    first = make_peer("first", role="bootstrap")
    by_name = {each.spec.name: each for each in (*IN_SWARM, *IN_PEER)}
    assert by_name["dupt_peer_round"].value(first.record) == [((), 3)]
    assert by_name["dupt_swarm_peer_round"].samples([first]) == [(("first",), 3)]
    assert by_name["dupt_peer_tokens_total"].value(first.record) == []
    assert by_name["dupt_swarm_peer_tokens_total"].samples([first, make_peer("a")]) == [(("a",), 0)]


def test_what_a_peer_and_the_monitor_export_has_one_help_text() -> None:
    """A figure of one peer is explained by the same words, whoever exports it."""
    specs = [spec for spec in PEER_METRICS if spec.kind != "info"]
    theirs = {spec.name: spec.help for spec in SWARM_METRICS}
    both = {
        spec.name: (spec.help, theirs[name])
        for spec in specs
        if (name := spec.name.replace("dupt_peer_", "dupt_swarm_peer_")) in theirs
    }
    assert {"dupt_peer_round", "dupt_peer_loss_nats", "dupt_peer_tokens_total"} <= both.keys()
    assert {name: helps for name, helps in both.items() if helps[0] != helps[1]} == {}


def test_metrics_by_name() -> None:
    """Dashboards take them by their names, and a name that no field declares is an error."""
    assert of_swarm("peer_utilization_ratio").labels == ("run", "peer_id")
    assert of_peer("waiting_seconds_total").kind == "counter"
    with pytest.raises(KeyError):
        of_swarm("utilisation_ratio")
