"""What needs a network or a disk of its own: a swarm that is cut in two, and a disk that is full."""

import os
import subprocess
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from dupt_swarm.replica.chain import Chain, counted_in
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.link import Brought, Link
from dupt_swarm.replica.signed_words import Words
from tests.support.chaos.swarm import MANIFEST, PeerProcess, end
from tests.support.namespaces import Host, Net
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("nothing_left")]
LISTEN = "/ip4/0.0.0.0/tcp/31330"
# The others need the processor too: seven peers train here.
STEP_SECONDS = 0.5


class Half:
    """Some peers, each on a host of its own."""

    def __init__(self, folder: Path, net: Net) -> None:
        self._folder, self._net = folder, net
        self.hosts: list[Host] = []
        self.peers: list[PeerProcess] = []

    def start(self, name: str, role: str, *initial_peers: str) -> PeerProcess:
        """A new peer on a new host."""
        host = self._net.host(name)
        peer = PeerProcess(self._folder / name, role, LISTEN, initial_peers)
        peer.wrap, peer.start_program = host.command, subprocess.Popen
        peer.environment["DUPT_CHAOS_STEP_SECONDS"] = str(STEP_SECONDS)
        peer.start()
        self.hosts.append(host)
        self.peers.append(peer)
        return peer

    @property
    def oracles(self) -> list[PeerProcess]:
        return [peer for peer in self.peers if peer.role == "oracle"]

    def reaches(self, number: int) -> bool:
        """Whether all its oracles hold one and the same state of round ``number`` or later."""
        states = [
            {(event["round"], event["digest"]) for event in peer.events("state")} for peer in self.oracles
        ]
        return any(number <= round for round, _ in set.intersection(*states))

    @property
    def round(self) -> int:
        """The newest round of any of its oracles."""
        return max((event["round"] for peer in self.oracles for event in peer.events("state")), default=0)

    def digests(self, number: int) -> set[str]:
        """Of the states of round ``number`` here."""
        return {digest for round, digest in self.states if round == number}

    @property
    def states(self) -> set[tuple[int, str]]:
        """Round and digest of all states that any of its oracles has had."""
        events = [event for peer in self.oracles for event in peer.events("state")]
        return {(event["round"], event["digest"]) for event in events}


def test_two_halves_of_a_swarm_go_on_and_merge(tmp_path: Path, net: Net) -> None:
    """Cut in two, both halves train on; when the cut is healed, all hold one state again."""
    one, other, whole = (Half(tmp_path, net) for _ in range(3))
    try:
        address = address_of(one.start("first", "bootstrap"))
        for half, names in ((one, ("a", "b")), (other, ("c", "d"))):
            for name in names:
                half.start(name, "oracle", address)
        for peer in (*one.peers, *other.peers):
            peer.joined()
        whole.peers = [*one.peers, *other.peers]
        wait_until(lambda: whole.reaches(2), "all four train together")
        net.cut(one.hosts, other.hosts)
        start = whole.round
        wait_until(lambda: one.reaches(start + 3) and other.reaches(start + 3), "both halves train on")
        apart = one.digests(start + 3) ^ other.digests(start + 3)
        assert apart, "the cut did not cut"
        net.heal()
        start = whole.round
        wait_until(lambda: whole.reaches(start + 2), "the halves have merged", 180)
    finally:
        end([*one.peers, *other.peers])


def voters_of(first: PeerProcess) -> int:
    """How many vote at the first peer's state."""
    saved = first.events("saved")
    return int(saved[-1]["voters"]) if saved else 0


def chain_of(peer: PeerProcess) -> Chain:
    """As it keeps it."""
    [path] = peer.folder.glob("state/*/chain.jsonl")
    return ChainFile(path, Words(MANIFEST.swarm_id)).load()


def is_at_least(number: Callable[[], int], least: int) -> bool:
    """Now."""
    return number() >= least


def digests(states: set[tuple[int, str]]) -> set[str]:
    """Of these states."""
    return {digest for _, digest in states}


def most_brought(peer: PeerProcess, maker: str, round: int) -> int:
    """The most tokens of a contribution of the maker after that round, as a peer's chain says."""
    chain = chain_of(peer)
    later = chain.links[max(0, round - chain.begins) :]
    brought = [each.tokens for link in later for each in link.choice.brought if each.maker == maker]
    return max(brought, default=0)


def brought_by(links: Iterable[Link]) -> set[Brought]:
    """The contributions that counted in these rounds."""
    return {each for link in links for each in link.counting}


def has_contributed_as_the_chain_says(peer: PeerProcess) -> bool:
    """Whether the tokens are the same, where both are up to date."""
    told, chain = peer.events("state")[-1], chain_of(peer)
    counted = counted_in(chain.links[: told["round"] - chain.begins])
    return chain.head == told["digest"] and counted.get(peer.joined()["peer_id"], 0) == told["contributed"]


def address_of(first: PeerProcess) -> str:
    """At which others call it."""
    addresses: list[str] = first.joined()["addresses"]
    return next(address for address in addresses if "/127." not in address)


def test_two_and_five_of_a_swarm_go_on_and_merge(tmp_path: Path, net: Net) -> None:
    """Of seven voters five and two are cut off from one another: both train on, and then all are at the
    state of the five, none of which has ever been at one of the two's.

    What the two have learnt meanwhile they bring again, for no more tokens than a contribution may stand for
    (for the loss see `test_branches.py`); what each oracle has contributed is what the chain says.
    """
    five, two, whole = (Half(tmp_path, net) for _ in range(3))
    try:
        first = five.start("first", "bootstrap")
        address = address_of(first)
        for half, names in ((five, "abcde"), (two, "fg")):
            for name in names:
                half.start(name, "oracle", address)
            for peer in half.peers:
                peer.joined()
        whole.peers = [*five.peers, *two.peers]
        wait_until(lambda: voters_of(first) == 7, "all seven vote", 240, pause=0.5)
        net.cut(five.hosts, two.hosts)
        start, before = whole.round, whole.states
        wait_until(lambda: five.reaches(start + 3) and two.reaches(start + 3), "both train on", 180)
        apart = two.states - five.states - before
        assert apart, "the cut did not cut"
        lost = brought_by(link for link in chain_of(two.peers[0]).links if link.after in digests(apart))
        start, there = whole.round, five.round
        net.heal()
        wait_until(lambda: whole.reaches(start + 2), "all seven are at one state", 240)
        assert five.states.isdisjoint(apart)
        most, both = int(MANIFEST.weight_limit(there)), brought_by(chain_of(five.peers[1]).links)
        for peer in two.peers:
            peer_id = peer.joined()["peer_id"]
            heard = partial(most_brought, five.peers[1], peer_id, there)
            again = sum(each.tokens for each in lost - both if each.maker == peer_id)
            wait_until(partial(is_at_least, heard, min(again, most)), "it is brought again", 120)
        for peer in whole.oracles:
            said = partial(has_contributed_as_the_chain_says, peer)
            wait_until(said, f"{peer.folder.name}: as the chain says")
    finally:
        end(whole.peers or [*five.peers, *two.peers])


def fill(path: Path) -> None:
    """Write to ``path`` until the disk is full."""
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"\0" * 4096)


def test_a_full_disk_does_not_stop_training(tmp_path: Path) -> None:
    """A checkpoint that cannot be written costs nothing but itself: the peer says so, and goes on."""
    if os.geteuid():
        assert not os.environ.get("CI"), "mounting a small disk needs root"
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)], check=True)
    first = PeerProcess(tmp_path / "first", "bootstrap", "/ip4/127.0.0.1/tcp/0", ())
    first.folder.mkdir()
    (first.folder / "state").symlink_to(disk)
    oracle = None
    try:
        first.start()
        oracle = PeerProcess(
            tmp_path / "oracle", "oracle", "/ip4/127.0.0.1/tcp/0", (first.joined()["address"],)
        )
        oracle.start()
        oracle.joined()
        fill(disk / "ballast")
        rounds = len(oracle.events("state"))
        wait_until(lambda: len(oracle.events("state")) > rounds + 3, "the swarm trains on")
        assert first.alive
        wait_until(lambda: "No space left on device" in first.errors, "the first peer says so")
        (disk / "ballast").unlink()
        saved = len(first.events("saved"))
        wait_until(lambda: len(first.events("saved")) > saved, "it saves again when there is room")
    finally:
        end([peer for peer in (oracle, first) if peer is not None])
        subprocess.run(["umount", str(disk)], check=True)
