"""What text that a swarm offers costs its volunteers: bytes fetched beside bytes trained on, and disk.

A real swarm on loopback: a first peer that offers Python's standard library and manual and the descriptions
of packages, and three oracles that are given its address and nothing else. When they have trained for a while
the first peer goes for good (``--first-peer stays``: it does not), and a fourth oracle comes, which then has
its text from the others.

How to read it, a row for each oracle: tokens that the swarm counts, shards fetched, the bytes of these ÷ the
bytes of those tokens, bytes of text and of the whole folder on the disk at the end (without logs), and the
loss on what is held out for all, in nats per token, before and after. A ratio of 1 means that each shard was
trained on once; two shards are fetched ahead, so that more than 1 + 2 ÷ (shards read) is waste, and less
means that shards were read again.

    PYTHONPATH=. python benchmarks/offered.py [--rounds N] [--first-peer stays] [--max-disk BYTES]
        [--file PATH]
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from _figures import head, row
from _runs import Run, append, file_option

from dupt_swarm.disk.limit import folder_bytes, format_bytes
from dupt_swarm.manifest import Manifest
from dupt_swarm.offer.shard_list import ShardList
from peers.demo import LOOPBACK, write_corpora
from peers.processes import LocalProcesses

PEER = "dupt-peer"
PEER_PATH = str(Path(sys.executable).with_name(PEER))
LISTEN = ("--host-maddrs", LOOPBACK)
# Small, so that oracles get through shards while one watches.
CHANGES: dict[str, dict[str, Any]] = {
    "model": {"layers": 1, "width": 64, "hidden_width": 128},
    "inner": {"learning_rate": 1e-3},
    "rounds": {"tokens_per_round": 32768, "growth": 1.0},
}
COLUMNS = ("oracle", "tokens", "shards", "fetched ÷ trained", "text", "folder", "held-out loss")
FETCHED = re.compile(r"fetched .* MB of ([0-9a-f]{8}) ")
LATE_ROUNDS = 0.4  # of those of the others


@click.command()
@click.option("--rounds", type=click.IntRange(2), default=40, show_default=True, help="Of each oracle.")
@click.option("--first-peer", type=click.Choice(("goes", "stays")), default="goes", show_default=True)
@click.option("--max-disk", default="2GB", show_default=True, help="Of each oracle's folder.")
@file_option
def main(rounds: int, first_peer: str, max_disk: str, file: Path | None) -> None:
    """A table with a row for each oracle."""
    with tempfile.TemporaryDirectory(prefix="dupt-bench-") as name:
        folder = Path(name)
        manifest = write_manifest(folder)
        listed = ShardList.read((folder / "offer" / manifest.offer.digest).read_bytes())
        click.echo(
            f"{listed.tokens:,} tokens in {len(listed.shards)} shards of {listed.shards[0].tokens:,}; "
            f"rounds of {manifest.rounds.tokens_per_round:,} tokens; the first peer {first_peer}; folders of "
            f"{max_disk} at most"
        )
        summaries = run_swarm(folder, rounds, first_peer == "goes", ("--max-disk", max_disk))
        click.echo(head(COLUMNS))
        asked = {"rounds": rounds, "first_peer": first_peer, "max_disk": max_disk}
        for oracle, summary in summaries.items():
            found = asked | {"oracle": oracle} | measure(summary, folder / oracle, listed)
            append(file, found)
            click.echo(line(found))


def write_manifest(folder: Path) -> Manifest:
    """A swarm that offers text, with a small model."""
    write_corpora(folder / "texts")
    options = ["--offer", str(folder / "texts"), "--offer-licence", "PSF-2.0"]
    subprocess.run([PEER_PATH, "new", str(folder / "run.toml"), *options], check=True)
    tables = Manifest.load(folder / "run.toml").model_dump()
    changed = {name: tables[name] | keys for name, keys in CHANGES.items()}
    manifest = Manifest.model_validate(tables | changed)
    (folder / "run.toml").write_text(manifest.to_toml())
    return manifest


def run_swarm(folder: Path, rounds: int, goes: bool, more: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What each oracle says at its end, by name."""
    names = ["one", "two", "three", "late"]
    with LocalProcesses(folder) as processes:

        def start(name: str, command: str, *options: str) -> subprocess.Popen[str]:
            state = ("--state-dir", str(folder / name))
            return processes.start(name, PEER, command, *options, "--json", *LISTEN, *state)

        def join(name: str, address: str, rounds: int) -> None:
            """Start an oracle with nothing but an address."""
            start(name, "join", "--initial-peers", address, "--name", name, "--rounds", str(rounds), *more)

        first = start("first", "bootstrap", str(folder / "run.toml"))
        address = json.loads(processes.first_line("first"))["addresses"][0]
        for name in names[:3]:
            join(name, address, rounds)
        later = wait_for_address(address, rounds, [processes.started[name] for name in names[:3]])
        if goes:
            first.terminate()
            first.wait()
        join("late", later, max(2, int(LATE_ROUNDS * rounds)))
        return {name: json.loads(processes.finish(name)[0]) for name in names}


def wait_for_address(address: str, rounds: int, oracles: Sequence[subprocess.Popen[str]]) -> str:
    """Where an oracle is, once a quarter of the rounds are done."""
    look = [PEER_PATH, "status", "--initial-peers", address, "--json"]
    while True:
        assert all(process.poll() is None for process in oracles), "an oracle has ended"
        status = json.loads(subprocess.run(look, check=True, stdout=subprocess.PIPE).stdout)
        if status["round"] >= rounds / 4:
            peer = next(peer for peer in status["peers"] if peer["role"] == "oracle")
            return f"{peer['addresses'][0]}/p2p/{peer['peer_id']}"
        time.sleep(1)


def measure(summary: dict[str, Any], state: Path, listed: ShardList) -> Run:
    """What an oracle has trained on, fetched and kept."""
    sizes = {shard.digest[:8]: 2 * shard.tokens for shard in listed.shards}
    fetched = [sizes[digest] for digest in shards_in(state) if digest in sizes]
    [swarm] = (path for path in state.iterdir() if path.is_dir())
    text, whole = folder_bytes(swarm / "offer"), folder_bytes(swarm)
    whole -= sum(path.stat().st_size for path in swarm.glob("node.log*"))
    named = ("tokens_total", "heldout_loss_before", "heldout_loss_after")
    return {name: summary[name] for name in named} | {
        "shards": len(fetched),
        "fetched_bytes": sum(fetched),
        "text_bytes": text,
        "folder_bytes": whole,
    }


def line(found: Run) -> str:
    """A row of the table."""
    tokens = found["tokens_total"]
    ratio = found["fetched_bytes"] / (2 * tokens)
    loss = f"{found['heldout_loss_before']:.3f} → {found['heldout_loss_after']:.3f}"
    disk = [format_bytes(found[name]) for name in ("text_bytes", "folder_bytes")]
    return row([found["oracle"], f"{tokens:,}", str(found["shards"]), f"{ratio:.3f}", *disk, loss])


def shards_in(state: Path) -> Sequence[str]:
    """How the digests of the files begin that were fetched."""
    return [found for log in state.glob("*/node.log") for found in FETCHED.findall(log.read_text())]


if __name__ == "__main__":
    main()
