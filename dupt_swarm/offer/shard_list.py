"""The list of an offer's shards; whoever knows its digest, from the manifest, can check all else by it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dupt_swarm.errors import CorpusError
from dupt_swarm.fields import Digest
from dupt_swarm.learning.token_files import id_bytes
from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.offered import offered_blob

SHARD_TOKENS_MAX = 1 << 21  # so that a shard has 4 MiB, or 8 with a vocabulary of more than 65,536 ids
SHARDS_MAX = 100_000
LIST_BYTES_MAX = 1 << 24


class Shard(BaseModel):
    """One of them: token ids, little-endian, of two bytes each or of four."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    digest: Digest
    tokens: Annotated[int, Field(ge=1, le=SHARD_TOKENS_MAX)]


class ShardList(BaseModel):
    """All of them.

    Attributes:
        held_out: documents that nobody trains on.
        shards: documents to train on, in an order drawn from the seed, so that all shards are alike.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    held_out: Shard
    shards: Annotated[tuple[Shard, ...], Field(min_length=1, max_length=SHARDS_MAX)]

    @property
    def data(self) -> bytes:
        """As it travels."""
        return self.model_dump_json().encode()

    @property
    def digest(self) -> str:
        """What the manifest names."""
        return offered_blob(self.data).digest

    @property
    def files(self) -> tuple[Shard, ...]:
        """All but the list itself."""
        return (self.held_out, *self.shards)

    @property
    def tokens(self) -> int:
        """How many there are to train on."""
        return sum(shard.tokens for shard in self.shards)

    @classmethod
    def read(cls, data: bytes) -> ShardList:
        """Read one that has the digest that the manifest names.

        Raises:
            CorpusError: its organiser has written something else.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise CorpusError(
                f"what this swarm offers is no list of shards ({first['msg']}); train on a text of your own, "
                "and tell its organiser",
                setting="corpus",
            ) from error


def bytes_of(shard: Shard, manifest: Manifest) -> int:
    """How many a shard has, as the list says."""
    return shard.tokens * id_bytes(manifest.tokenizer.vocabulary_size)


def missing_in(folder: Path, manifest: Manifest) -> str:
    """What this folder lacks of the offer, in words; an empty string: nothing, judged by names and sizes."""
    listed = folder / manifest.offer.digest
    data = listed.read_bytes() if listed.is_file() else b""
    if offered_blob(data).digest != manifest.offer.digest:
        return "its list"
    files = ShardList.read(data).files
    paths = {folder / shard.digest: bytes_of(shard, manifest) for shard in files}
    missing = sum(not path.is_file() or path.stat().st_size != size for path, size in paths.items())
    return f"{missing} of its {len(files)} shards" if missing else ""
