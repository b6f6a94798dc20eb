"""Text that a swarm is to offer, as `dupt-peer new` is told: checked, and written beside the manifest."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from dupt_swarm.disk.folders import OFFER_FOLDER
from dupt_swarm.disk.home import expanded
from dupt_swarm.errors import UsageError
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.explain import explain_invalid
from dupt_swarm.manifest.tables import TITLE_LENGTH_MAX, Offer
from peers import options
from peers.screen.log import Log, note_left_out
from peers.screen.words import plural

if TYPE_CHECKING:
    from dupt_swarm.learning.tokenizer import Tokenizer


@dataclass(frozen=True)
class Offering:
    """Text that a swarm is to offer.

    Attributes:
        texts: which; none: nothing is offered.
        title: what it is called.
        source: where it is from.
        licence: under which it may be passed on.
    """

    texts: Sequence[TextFiles] = ()
    title: str = ""
    source: str = ""
    licence: str = ""

    @classmethod
    def of(cls, chosen: dict[str, Any]) -> Offering:
        """What the options say.

        Raises:
            UsageError: they do not go together.
            CorpusError: the text cannot be read.
        """
        texts = [options.pick(TextFiles, chosen, path=path) for path in chosen["offers"]]
        about = {name: chosen[f"offer_{name}"] for name in ("title", "source", "licence")}
        if not texts:
            for name, value in about.items():
                if value:
                    raise UsageError("it takes text to offer", setting=(f"offer_{name}", "offers"))
            return NOTHING
        if not about["licence"]:
            raise UsageError(
                "everybody passes it on: say under which licence they may, such as CC-BY-SA-4.0",
                setting="offer_licence",
            )
        if chosen["task"] is not None:
            raise UsageError(
                "a task is learnt from labelled examples, not from text", setting=("offers", "task")
            )
        about["title"] = about["title"] or expanded(texts[0].path).absolute().name[:TITLE_LENGTH_MAX]
        try:
            Offer(**about)
        except ValidationError as error:
            raise UsageError(explain_invalid(error, Offer, "offer"), setting="offers") from error
        for text in texts:
            text.check()
        return cls(texts, **about)

    def folders(self, manifest: Path) -> list[Path]:
        """Where it is written, beside the manifest; none if there is none."""
        return [manifest.with_name(OFFER_FOLDER)] if self.texts else []

    @contextmanager
    def written(self, manifest: Manifest, tokenizer: Tokenizer, path: Path) -> Iterator[Manifest]:
        """Write it beside the manifest's ``path``; yield the manifest that names it.

        It is removed again where what else belongs to the manifest cannot be written.

        Raises:
            CorpusError: there is too little, or too much.
            UsageError: it cannot be written.
        """
        folders = self.folders(path)
        for folder in folders:
            manifest = manifest.changed({"offer": self._write(manifest, tokenizer, folder)})
        try:
            yield manifest
        except BaseException:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
            raise

    def _write(self, manifest: Manifest, tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
        """The manifest's table."""
        from dupt_swarm.offer.cutting import cut_offer

        listed, left_out = cut_offer(
            self.texts,
            tokenizer,
            folder,
            context_length=manifest.model.context_length,
            seed=manifest.seed,
            progress=Log().preparing,
        )
        note_left_out(left_out)
        click.echo(
            f"the swarm offers {listed.tokens:,} tokens in {plural(len(listed.shards), 'shard')}, "
            f"in {folder}; {listed.held_out.tokens:,} are held out",
            err=True,
        )
        about = {name: getattr(self, name) for name in ("title", "source", "licence")}
        return {"digest": listed.digest, "tokens": listed.tokens, **about}


NOTHING = Offering()
