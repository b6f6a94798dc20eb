"""`dupt-peer ledger`: what peers have given, by the rounds of a real swarm."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dupt_swarm.replica.ledger import Entry, Ledger
from peers.ledger import table, to_json
from tests.support.programs import LISTEN, dupt_peer, start, wait_for_line

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_what_two_oracles_have_given(bootstrap: dict[str, Any], text: Path, tmp_path: Path) -> None:
    """Also those who have left: tokens, rounds and places add up, and each is found by the end of its id."""
    address = ("--initial-peers", bootstrap["address"])
    nobody = dupt_peer("ledger", *address)
    options = ("--corpus", str(text), *LISTEN, "--json")
    done = dupt_peer("join", *address, *options, "--state-dir", str(tmp_path / "ada"), "--rounds", "2")
    assert done.returncode == 0, done.stderr
    bob = start("join", *address, *options, "--state-dir", str(tmp_path / "bob"), "--name", "bob")
    try:
        wait_for_line(bob, "% of the swarm's, place ")
        found = json.loads(dupt_peer("ledger", *address, "--json").stdout)
        table = dupt_peer("ledger", *address).stdout
        last = found["peers"][-1]
        one = dupt_peer("ledger", *address, "--peer", last["peer_id"][-8:])
        nothing = dupt_peer("ledger", *address, "--peer", "QmNobodyAtAll")
        short = dupt_peer("ledger", *address, "--peer", "abc")
    finally:
        bob.terminate()
        bob.communicate(timeout=60)

    assert "round 0   0 tokens of 0 peers" in nobody.stdout
    assert found["swarm_id"] == bootstrap["swarm_id"]
    assert (found["begins"], len(found["peers"])) == (0, 2)
    assert found["tokens"] == sum(peer["tokens"] for peer in found["peers"])
    assert [peer["place"] for peer in found["peers"]] == [1, 2]
    ada = next(peer for peer in found["peers"] if not peer["name"])
    assert (ada["rounds"], ada["first_round"], ada["last_round"]) == (2, 1, 2)
    assert ada["tokens"] == json.loads(done.stdout)["tokens_total"]
    assert "bob" in table
    assert last["peer_id"][-8:] in one.stdout
    assert found["peers"][0]["peer_id"][-8:] not in one.stdout
    assert nothing.returncode == short.returncode == 2
    assert "at least the last 6 characters (--peer)" in short.stderr
    assert "(--peer)" in nothing.stderr


def test_one_peer_of_it() -> None:
    """Its place is that among all."""
    ledger = Ledger(0, 3, (Entry("QmA", 20, 2, 0, 1, 2), Entry("QmB", 10, 1, 1, 3, 3)))
    found = to_json("s-0", ledger, {"QmB": "bob"}, "QmB")
    assert found["peers"] == [
        {
            "place": 2,
            "name": "bob",
            "peer_id": "QmB",
            "tokens": 10,
            "rounds": 1,
            "dropped": 1,
            "first_round": 3,
            "last_round": 3,
        }
    ]


def test_whose_work_counted_for_nothing_has_no_place() -> None:
    """Neither in the table, which says how much there is of what was dropped, nor in JSON."""
    ledger = Ledger(0, 3, (Entry("QmGiver", 10, 1, 0, 3, 3), Entry("QmDropped", 0, 0, 2, 0, 0)))
    console = Console(file=io.StringIO(), record=True, width=120)
    console.print(table(ledger, {"QmGiver": "ada"}, "", 20))
    assert [line.split() for line in console.export_text().splitlines()[1:]] == [
        ["1", "ada", "QmGiver", "10", "100.0%", "1", "0", "3", "3"],
        ["–", "–", "mDropped", "0", "0.0%", "0", "2", "–", "–"],
    ]
    console.print(table(ledger, {}, "QmDropped", 20))
    assert "QmGiver" not in console.export_text()
    console.print(table(ledger, {}, "", 1))
    assert "mDropped" not in console.export_text()
    places: Any = to_json("s-0", ledger, {})["peers"]
    assert [each["place"] for each in places] == [1, None]
