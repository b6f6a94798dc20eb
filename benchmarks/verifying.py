"""How long `dupt-model verify` takes for a model of many rounds.

The chain is forged, but as a swarm would make it: in each round all peers bring a contribution and sign.
The model is so small that its weights take no time.

How to read it, a row for each number of peers: seconds of `verify`, of all processors and by the clock, as
its threads verify side by side; those of processors for each signature, with its share of all the rest; and
the size of chain.jsonl.

    PYTHONPATH=. python benchmarks/verifying.py [--rounds 1000] [--peers 5,20] [--file PATH]
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from _runs import Run, append, file_option
from _swarm_arithmetic import drawn_state
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.checkpoint import REPLICA_FILE
from dupt_swarm.disk.folders import CHAIN_FILE
from dupt_swarm.models.saved_model import write_shared
from dupt_swarm.models.verifying import verify
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Acceptance, Brought, Choice, Link
from dupt_swarm.replica.signed_words import Words
from dupt_swarm.replica.storage import save_state
from tests.support.saved_models import small_tokenizer
from tests.support.signed_records import fresh_keys, id_of
from tests.support.tiny import tiny_manifest

TOKENS = 1_000_000


def digest_of(text: str) -> str:
    """Of a state or a contribution that nobody has."""
    return hashlib.sha256(text.encode()).hexdigest()


class Forged:
    """A model folder whose chain these peers have signed."""

    def __init__(self, folder: Path, keys: Sequence[Ed25519PrivateKey], rounds: int) -> None:
        tokenizer = small_tokenizer()
        manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size)
        self._words, self._rounds = Words(manifest.swarm_id), rounds
        owners = {id_of(key): key for key in keys}
        self._keys = dict(sorted(owners.items()))
        first = drawn_state(manifest)
        last = replace(
            first, round=rounds, swarm_tokens=rounds * len(keys) * TOKENS, electorate=self._electorate()
        )
        write_shared(folder, manifest, tokenizer.to_bytes(), None)
        save_state(last, folder / REPLICA_FILE)
        ChainFile(folder / CHAIN_FILE, self._words).write(self._chain(first.digest, last.digest))

    def _choice(self, number: int) -> Choice:
        brought = tuple(Brought(peer, digest_of(f"{peer} {number}"), TOKENS) for peer in self._keys)
        return Choice(brought, weak=number == 0)

    def _electorate(self) -> Electorate:
        found = Electorate()
        for number in range(self._rounds):
            found = found.after(tuple(self._keys), weak=number == 0)
        return found

    def _chain(self, first: str, last: str) -> Chain:
        chain = Chain(first, Electorate())
        for number in range(self._rounds):
            after = last if number == self._rounds - 1 else digest_of(f"state {number}")
            chain.follow([self._link(chain.head, self._choice(number), after)])
        return chain

    def _link(self, before: str, choice: Choice, after: str) -> Link:
        words = [Acceptance(peer, before, 0, choice.id, after, weak=choice.weak) for peer in self._keys]
        signed = (replace(each, signed=self._words.sign(self._keys[each.maker], each)) for each in words)
        return Link(before, 0, choice, after, (), tuple(signed))


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--peers", default="5,20", show_default=True, help="So many sign each round.")
@file_option
def main(rounds: int, peers: str, file: Path | None) -> None:
    """Processor seconds of verifying a chain."""
    measure(1, 1)  # what the first one takes longer for is left out
    for count in map(int, peers.split(",")):
        found = measure(count, rounds)
        append(file, found)
        seconds = found["cpu_seconds"]
        click.echo(
            f"{rounds} rounds of {count:3} peers: {seconds:.2f} s, {found['seconds']:.2f} by the clock, "
            f"{1e6 * seconds / rounds / count:.0f} us a signature, {found['chain_bytes'] / 1e6:.1f} MB"
        )


def measure(count: int, rounds: int) -> Run:
    """Seconds for rounds of so many peers, and the bytes of their chain."""
    keys = fresh_keys(count)
    with tempfile.TemporaryDirectory() as name:
        Forged(Path(name), keys, rounds)
        began, of_clock = time.process_time(), time.monotonic()
        found = verify(Path(name))
        seconds, of_clock = time.process_time() - began, time.monotonic() - of_clock
        assert (found.links, found.unchecked) == (rounds, ())
        size = (Path(name) / CHAIN_FILE).stat().st_size
        asked = {"rounds": rounds, "peers": count}
        return asked | {"cpu_seconds": seconds, "seconds": of_clock, "chain_bytes": size}


if __name__ == "__main__":
    main()
