"""The chain of rounds on disk: for good, one line for each link."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.plain import load
from dupt_swarm.replica.signed_words import LinkRecord, Words


class ChainFile:
    """That of one peer. Its first line says where the chain begins: round, digest and electorate."""

    def __init__(self, path: Path, words: Words) -> None:
        """``words`` reads those of the links."""
        self.path, self._words = path, words

    def load(self) -> Chain:
        """The chain, as it was kept; a last line that was not written to its end is dropped.

        Raises:
            ValueError: it is damaged, or a link does not leave the state before it; says which.
            OSError: it cannot be read.
        """
        *lines, _ = self.path.read_bytes().split(b"\n")
        try:
            match load(lines[0]) if lines else None:
                case {"round": int() as round, "first": str() as first, "electorate": list() as rows}:
                    chain = Chain(first, Electorate.parse(round, rows))
                case _:
                    raise ValueError("not the first line of a chain")
        except ValueError as error:
            raise ValueError(f"{self.path.name}: it does not say where it begins: {error}") from error
        for number, line in enumerate(lines[1:], round + 1):
            try:
                chain.follow([LinkRecord.parse(line).link(self._words)])
            except ValueError as error:
                raise ValueError(f"{self.path.name}: the link of round {number}: {error}") from error
        return chain

    def write(self, chain: Chain) -> None:
        """The whole of it.

        Raises:
            FileError: it cannot be written.
        """
        first = chain.electorate_at(0)
        head = {"round": first.round, "first": chain.first, "electorate": first.to_json()}

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:
                file.write(json.dumps(head).encode() + b"\n")
                for link in chain.links:
                    file.write(LinkRecord.of(link).to_bytes() + b"\n")

        write_atomically(self.path, write)

    def append(self, links: Sequence[Link]) -> None:
        """What has come to it.

        Raises:
            OSError: it cannot be written.
        """
        with self.path.open("ab") as file:
            file.write(b"".join(LinkRecord.of(link).to_bytes() + b"\n" for link in links))
