"""``dupt-model translate``: write a text for each of many."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.command_line.printable import one_line
from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.generation.overlap import overlap, require_overlap
from dupt_swarm.learning.labelled.files import LabelledFiles, is_table
from peers import options
from peers.model.lines import check_apart, write_lines
from peers.screen.words import number, plural

if TYPE_CHECKING:
    from dupt_swarm.learning.generation.translate import Translation

STDIN = Path("-")
SOURCE, TARGET = "source", "target"
LINES = ".jsonl"


@click.command("translate")
@click.argument("model", type=UserPath(path_type=Path))
@click.argument("file", type=UserPath(exists=True, allow_dash=True, path_type=Path))
@options.columns
@click.option("--beams", type=int, default=4, show_default=True, help="Keep so many likeliest; 1: greedy.")
@click.option(
    "--length-penalty",
    type=float,
    default=0.6,
    show_default=True,
    help="0 writes what is likeliest, which is short; more prefers longer texts.",
)
@click.option(
    "--out",
    type=UserPath(dir_okay=False, path_type=Path),
    default=None,
    help=f"File for what is written, a line each; {LINES}: with its score. [default: stdout]",
)
@click.option(
    "--score", "scored", is_flag=True, help="FILE is a table with targets: say on stderr chrF and BLEU."
)
@options.batch_size
@options.device
@options.threads
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines on stdout.")
@command_errors
def command(
    model: Path,
    file: Path,
    columns: dict[str, str],
    out: Path | None,
    scored: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Let MODEL, an encoder-decoder, write a text for each line of FILE, which may be - for stdin.

    What it writes is what it has learnt: translations, or whatever the pairs of its swarm were. FILE may also
    be a table with a column `source`, or a folder of tables. What is written comes in FILE's order.
    """
    from dupt_swarm.learning.device import choose_device
    from dupt_swarm.learning.generation.beam import BeamSearch
    from dupt_swarm.learning.generation.translate import translate
    from dupt_swarm.learning.objectives import writer_of
    from dupt_swarm.learning.threads import Threads
    from dupt_swarm.models.saved_model import load_model

    check_apart(out, file)
    if scored:
        require_overlap()
    search = options.pick(BeamSearch, chosen)
    sources, targets = _read(file, columns, scored)
    device = choose_device(chosen["device"])
    saved = load_model(model)
    writer = writer_of(saved.build(device))
    threads = Threads(chosen["threads"])
    found = translate(
        writer,
        saved.tokenizer,
        sources,
        search,
        at_once=chosen["batch_size"],
        look=lambda *_: threads.adapt(),
    )
    if cut := sum(one.cut for one in found):
        click.echo(f"note: {plural(cut, 'text')} cut to the model's context", err=True)
    as_lines = as_json if out is None else out.suffix == LINES
    write_lines(_as_json(sources, found) if as_lines else _as_text(found), out)
    if scored:
        for name, value in overlap([one.text for one in found], targets).items():
            click.echo(f"{name:5} {number(value)}", err=True)


def _read(file: Path, columns: dict[str, str], scored: bool) -> tuple[list[str], list[str]]:
    """The texts of a file: what to write for, and, if that is ``scored``, what a person wrote for it.

    Raises:
        UsageError: it is no table, and options ask for one.
        CorpusError: it cannot be read.
    """
    if file != STDIN and is_table(file):
        from dupt_swarm.learning.labelled.pairs import text_in

        tables = LabelledFiles(file, columns)
        names = [SOURCE, TARGET] if scored else [SOURCE]
        tables.check_names(names)
        rows = [[text_in(row, name) for name in names] for row in tables.rows(names)]
        return [row[0] for row in rows], [row[-1] for row in rows]
    for name, value in (("scored", scored), ("columns", columns)):
        if value:
            raise UsageError(f"{file}: it takes a table, and this is lines of text", setting=name)
    try:
        data = sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
        lines = io.StringIO(data.decode("utf-8-sig"), newline=None)
        return [line.rstrip("\n") for line in lines], []
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file}: not UTF-8: {error}; convert it") from error
    except OSError as error:
        raise CorpusError(f"{file}: cannot be read: {error.strerror}; check its permissions") from error


def _as_text(found: Sequence[Translation]) -> Iterator[str]:
    """A line for each, without what a terminal would obey."""
    for one in found:
        yield one_line(one.text) + "\n"


def _as_json(sources: Sequence[str], found: Sequence[Translation]) -> Iterator[str]:
    for index, (source, one) in enumerate(zip(sources, found, strict=True)):
        line = {"row": index + 1, "source": source, "target": one.text, "score": one.score}
        yield json.dumps(line) + "\n"
