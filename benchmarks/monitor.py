"""What the monitor costs in a large swarm: the time of a scrape, the time of a refresh, memory.

Everything is real but the peers: a first peer on loopback holds the given number of signed records, each
with a key of its own and told over the network like any other. `dupt-monitor` runs as users run it: its own
node pulls the records every few seconds, verifies every signature, and is scraped over HTTP. Records are
renewed once per generation, so the manifest lets them live for an hour.

How to read it: a scrape lasts from the request to the last byte; `refresh` is the monitor's own metric,
over all refreshes seen; memory is the resident set of the monitor and its node together, at the first
scrape and at the end of each generation. A generation renews all records with new states and counts, since
that is what could make memory grow.

    python benchmarks/monitor.py [--peers 1000] [--generations 6] [--seconds 20] [--max-peer-series 50]
        [--file PATH]
"""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import torch
from _manifest import UNREAD, manifest_of
from _processes import with_descendants
from _runs import Run, append, file_option
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind.utils import get_dht_time
from prometheus_client.parser import text_string_to_metric_families

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.gossip import Gossip, Told
from dupt_swarm.network.members.records import Records
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.limits import OPEN
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.network.reach.starting import start_daemon
from dupt_swarm.node.record import PeerRecord
from dupt_swarm.presets import load_preset
from dupt_swarm.settings import NodeSettings
from dupt_swarm.swarm import Swarm
from peers.demo import LOOPBACK

MONITOR = Path(sys.executable).with_name("dupt-monitor")
PAUSE_SECONDS = 0.5  # for a peer that was told too much


def signed_record(manifest: Manifest, key: Ed25519PrivateKey, number: int, generation: int) -> bytes:
    """The record that a peer with this key would publish, with every field that an oracle fills."""
    record = PeerRecord(
        role="oracle",
        state="training",
        time=get_dht_time(),
        round=100 + generation,
        state_digest=hashlib.sha256(str(generation).encode()).hexdigest(),
        swarm_tokens=10**9 + generation,
        round_tokens=number,
        tokens_total=10**6 + number + generation,
        tokens_per_second=1000.0 + number,
        loss=3.0 + number / 1000,
        heldout_loss=3.5,
        heldout_bits_per_byte=1.4,
        group_size=16,
        round_seconds=600.0,
        averaging_seconds=4.5,
        round_sent_bytes=10**8 + number,
        round_received_bytes=10**9 + generation,
        utilization=0.97,
        round_waiting_seconds=0.3,
        waiting_seconds=15.0 + generation,
        averaged_rounds=50 + generation,
        failures=(0, generation, 1),
        failed_rounds=1 + generation,
        checkpoint_round=99,
        checkpoint_time=get_dht_time() - 60,
        name=f"volunteer {number}",
        version=f"0.{number % 20}.0",
        device="NVIDIA GeForce RTX 4090",
    )
    return Records(manifest, OPEN).publish(key, record).data


async def tell(address: str, manifest: Manifest, keys: list[Ed25519PrivateKey], generation: int) -> None:
    """Tell the peer at this address a record for each key."""
    with tempfile.TemporaryDirectory() as folder:
        p2p = await start_daemon(NodeSettings("observer", host_maddrs=(LOOPBACK,)), Path(folder))
        try:
            await connect(p2p, (address,))
            [holder] = await p2p.list_peers()
            for number, key in enumerate(keys):
                record = Told(signed_record(manifest, key, number, generation))
                while True:
                    with suppress(CallError):  # too many calls for now
                        await p2p.call(holder.peer_id, Gossip.rpc_tell, record)
                        break
                    await asyncio.sleep(PAUSE_SECONDS)
        finally:
            await p2p.shutdown()


@contextmanager
def running_monitor(address: str, folder: Path, max_peer_series: int) -> Iterator[tuple[str, int]]:
    """A running `dupt-monitor`; yields its URL and process id."""
    options = ["--initial-peers", address, "--port", "0", "--state-dir", str(folder)]
    process = subprocess.Popen(
        [MONITOR, *options, "--max-peer-series", str(max_peer_series)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.terminate()
        process.wait(30)


def scrape(url: str) -> tuple[float, str]:
    """GET ``url``: the seconds it took, and the text."""
    started = time.perf_counter()
    with urllib.request.urlopen(url, timeout=30) as response:
        text = response.read().decode()
    return time.perf_counter() - started, text


def value_of(text: str, name: str) -> float:
    """The sum over all samples of one name."""
    families = text_string_to_metric_families(text)
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def resident(pid: int) -> float:
    """MiB of a process and all its descendants."""
    return sum(process.memory_info().rss for process in with_descendants(pid)) / 2**20


def watch(url: str, seconds: float) -> Run:
    """Scrape repeatedly for ``seconds``; how long each took, and each refresh with its moment."""
    scrapes: list[float] = []
    refreshes: dict[float, float] = {}
    text, deadline = "", time.monotonic() + seconds
    while time.monotonic() < deadline:
        took, text = scrape(url)
        scrapes.append(took)
        moment = value_of(text, "dupt_monitor_last_refresh_timestamp_seconds")
        refreshes[moment] = value_of(text, "dupt_monitor_refresh_duration_seconds")
        time.sleep(0.2)
    return {"scrape_seconds": scrapes, "refresh_seconds": list(refreshes.items()), "characters": len(text)}


def lines(first: Run, watched: Sequence[Run]) -> Iterator[str]:
    """The results as lines of text."""
    scrapes = [seconds for each in watched for seconds in each["scrape_seconds"]]
    # Two generations may have seen the same one.
    refreshes = list(dict(pair for each in watched for pair in each["refresh_seconds"]).values())
    middle, slow = statistics.median(scrapes), sorted(scrapes)[int(0.99 * len(scrapes))]
    yield f"peers          {first['exported']:.0f} exported at the first scrape"
    yield f"scrapes        {len(scrapes)}, of {watched[-1]['characters'] / 1024:.0f} KiB"
    yield f"scrape         median {1000 * middle:.1f} ms, 99 % {1000 * slow:.1f} ms"
    yield f"refresh        median {statistics.median(refreshes):.2f} s, longest {max(refreshes):.2f} s"
    memory = ", ".join(f"{each['memory_mib']:.0f}" for each in (first, *watched))
    yield f"memory         {memory} MiB"


@click.command()
@click.option("--peers", default=1000, show_default=True)
@click.option("--generations", default=6, show_default=True, help="How often all records are renewed.")
@click.option("--seconds", default=20.0, show_default=True, help="How long to watch each generation.")
@click.option("--max-peer-series", default=50, show_default=True)
@file_option
def main(peers: int, generations: int, seconds: float, max_peer_series: int, file: Path | None) -> None:
    """Measure, and print a line for each figure."""
    manifest = manifest_of(load_preset("tiny") | {"limits": {"record_seconds": 3600.0}})
    keys = [Ed25519PrivateKey.generate() for _ in range(peers)]
    settings = NodeSettings("bootstrap", name="first", host_maddrs=(LOOPBACK,))
    parameters = torch.nn.Linear(4, 4).parameters()
    with (
        tempfile.TemporaryDirectory() as folder,
        Swarm.create(manifest, UNREAD, parameters, Path(folder) / "first", settings) as swarm,
    ):
        address = swarm.addresses[0]
        asyncio.run(tell(address, manifest, keys, 0))
        click.echo(f"records        {len(keys)} told")
        rows: list[Run] = []

        def add(found: Run) -> None:
            asked = {"peers": peers, "seconds": seconds, "max_peer_series": max_peer_series}
            rows.append(asked | {"generation": len(rows), "memory_mib": resident(pid)} | found)
            append(file, rows[-1])

        with running_monitor(address, Path(folder) / "monitor", max_peer_series) as (url, pid):
            add({"exported": value_of(scrape(url)[1], "dupt_swarm_peers")})
            for generation in range(1, generations + 1):
                add(watch(url, seconds))
                if generation < generations:
                    asyncio.run(tell(address, manifest, keys, generation))
        for line in lines(rows[0], rows[1:]):
            click.echo(line)


if __name__ == "__main__":
    main()
