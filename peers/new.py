"""``dupt-peer new``: a manifest from a preset with a tokenizer of its own, or from a model that exists.

With text that the swarm offers, if that is wanted.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.left_out import LeftOut, TextFiles
from dupt_swarm.manifest import Manifest, Objective
from dupt_swarm.manifest.explain import explain_invalid
from dupt_swarm.manifest.manifest import NAME, NAME_REMEDY
from dupt_swarm.manifest.tables import LM_WEIGHTS
from dupt_swarm.organiser import KEY_FILE
from dupt_swarm.organiser.key import make_key, public_hex
from dupt_swarm.presets import PRESETS, load_preset, manifest_from_preset, sizes_of
from dupt_swarm.tasks import TASKS
from peers import options
from peers.offering import NOTHING, Offering
from peers.screen.log import note_left_out

PRESET = "tiny"
EPOCHS = 3
OF_TASKS = ("task", "labels", "lm_weight")
NOT_FROM_A_MODEL = {
    "preset": "the model has a shape of its own",
    "size": "the model has a size of its own",
    "corpus": "the model has its tokenizer, and oracles bring their own texts",
    "columns": "the model has its tokenizer, and oracles bring their own tables",
}


def _sizes() -> Iterator[str]:
    """A phrase for each preset that has several."""
    for preset in PRESETS:
        if sizes := sizes_of(preset):
            yield f"{preset}: {', '.join(sizes)}"


@click.command("new")
@click.argument("manifest", type=UserPath(dir_okay=False, path_type=Path))
@click.option("--preset", type=click.Choice(PRESETS), default=None, help=f"[default: {PRESET}]")
@click.option(
    "--size", default=None, metavar="SIZE", help=f"Of the preset. {'; '.join(_sizes())}. [default: the first]"
)
@click.option(
    "--corpus",
    type=options.TEXT_PATH,
    default=None,
    metavar="PATH",
    help="File, folder or glob of text that the tokenizer learns from; with preset transformer tables of "
    "pairs, with columns source and target. Not with --from. [default: all that is offered]",
)
@click.option(
    "--offer",
    "offers",
    type=options.TEXT_PATH,
    multiple=True,
    metavar="PATH",
    help="Public text, as for --corpus, that the swarm offers to oracles without a corpus. Repeatable.",
)
@click.option("--offer-title", default="", help="What it is called. [default: the name of the first PATH]")
@click.option("--offer-source", default="", help="Where it is from, such as an address.")
@click.option(
    "--offer-licence", default="", help="Under which everybody may pass it on, such as CC-BY-SA-4.0."
)
@options.data
@click.option(
    "--from",
    "model",
    type=UserPath(path_type=Path),
    default=None,
    metavar="MODEL",
    help="Train a model on that exists: a folder in Hugging Face's format (gpt2, openai-gpt, llama, "
    "cohere, bert), from `dupt-model pull`, or a checkpoint.",
)
@click.option("--task", type=click.Choice(TASKS), default=None, help="Teach --from MODEL this, not language.")
@click.option("--labels", default="", metavar="A,B,…", help="The task's; similarity without: a score.")
@click.option(
    "--lm-weight",
    type=options.Numbers(0, 100),
    default=None,
    help="Weight of the language model's loss beside the task's (lambda); 0: faster. "
    "[default: 0.5; of an encoder 0]",
)
@click.option(
    "--admission",
    type=click.Choice(("open", "invite")),
    default="open",
    show_default=True,
    help="Which peers the swarm admits: all, or those with an invitation (`dupt-peer invite`).",
)
@click.option("--name", default=None, help="Name of the swarm. [default: the name of the file]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@command_errors
def command(manifest: Path, model: Path | None, name: str | None, **chosen: Any) -> None:
    """Write MANIFEST (such as run.toml), and tokenizer.json and organiser.key beside it.

    Whoever has organiser.key organises the swarm: keep a copy, and show it nobody. One that is there is used.

    With --from the swarm begins from a model, whose weights go into initial.safetensors beside it; with
    --task oracles join with labelled examples of their own.

    With --offer it writes a folder offer, too: the text in shards, which the first peer serves from beside
    MANIFEST and oracles pass on. All see it; what oracles bring themselves stays private.
    """
    name = name or manifest.stem
    if not NAME.fullmatch(name):
        raise UsageError(f"a swarm cannot be called {name}: {NAME_REMEDY}", setting="name")
    offering = Offering.of(chosen)
    if model is None:
        _write_preset(manifest, name=name, offering=offering, **chosen)
        return
    for option, reason in NOT_FROM_A_MODEL.items():
        if chosen[option]:
            raise UsageError(f"{reason}; leave it out", setting=option)
    objective = _objective(chosen["task"], chosen["labels"], chosen["lm_weight"])
    _write_from_model(
        manifest,
        model,
        objective,
        name=name,
        seed=chosen["seed"],
        admission=chosen["admission"],
        offering=offering,
    )


def check_free(*paths: Path) -> None:
    """See that nothing would be overwritten.

    Raises:
        UsageError: something would.
    """
    for path in paths:
        if path.exists():
            raise UsageError(f"{path} exists; remove it, or write into another folder")


def _write_preset(
    manifest: Path,
    *,
    preset: str | None,
    size: str | None,
    corpus: str | None,
    name: str,
    seed: int,
    offering: Offering,
    **chosen: Any,
) -> None:
    """A swarm that begins from random weights."""
    for option in OF_TASKS:
        if chosen[option] not in (None, ""):
            raise UsageError(
                "a task is learnt by a pretrained model; give one too", setting=(option, "model")
            )
    preset = preset or PRESET
    objective = Objective(**load_preset(preset, size).get("objective", {}))
    texts = _texts(objective, corpus, offering, chosen)
    tokenizer_path = manifest.with_name("tokenizer.json")
    check_free(manifest, tokenizer_path, *offering.folders(manifest))
    # What is wrong with the manifest should not cost the training of a tokenizer.
    check = {"tokenizer_sha256": "0" * 64, "vocabulary_size": 257}
    manifest_from_preset(preset, name=name, seed=seed, size=size, **check)  # type: ignore[arg-type]

    written = write(
        manifest,
        preset,
        texts,
        name=name,
        seed=seed,
        size=size,
        admission=chosen["admission"],
        offering=offering,
    )
    key = manifest.with_name(KEY_FILE)
    click.echo(f"wrote {manifest} (swarm {written.swarm_id}), {tokenizer_path} and {key}", err=True)
    say_next(manifest)


def _texts(
    objective: Objective, corpus: str | None, offering: Offering, chosen: dict[str, Any]
) -> Iterator[str]:
    """What the tokenizer learns from: text, or the texts of pairs if that is what oracles bring.

    Raises:
        UsageError: there is nothing, or something that the objective has no use for.
        CorpusError: it is not there, or there is no text in it.
    """
    if objective.reads_text:
        if chosen["columns"]:
            raise UsageError("text has no columns; leave them out", setting="columns")
        files = offering.texts if corpus is None else [options.pick(TextFiles, chosen, path=corpus)]
        if not files:
            raise UsageError(
                "give text for the tokenizer to learn from, or to offer, or a model to begin with",
                setting=("corpus", "offers", "model"),
            )
        for text in files:
            text.check()
        return read_all(files)
    if offering.texts:
        raise UsageError(
            f"a swarm that learns {objective.kind} offers no text; oracles bring tables", setting="offers"
        )
    if corpus is None:
        raise UsageError("give tables of pairs for the tokenizer to learn from", setting="corpus")
    from dupt_swarm.learning.labelled.pairs import read_pairs, read_rows

    tables = LabelledFiles(Path(corpus), chosen["columns"])
    if next(read_pairs(tables), None) is None:
        raise CorpusError(f"{corpus}: there is no pair of texts in it; give some")
    return chain.from_iterable(read_rows(tables))


def organise(manifest: Manifest, admission: str, path: Path) -> Manifest:
    """``manifest`` with this kind of admission and the organiser whose key is beside ``path``.

    It is the first to write there, and makes the folder.

    Raises:
        UsageError: what is there is no key, or the folder cannot be made.
        FileError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error
    table = {"kind": admission, "organiser": public_hex(make_key(path.with_name(KEY_FILE)))}
    return manifest.changed({"admission": table})


def say_next(path: Path) -> None:
    """What to do with a manifest, and with the key beside it."""
    key = path.with_name(KEY_FILE)
    click.echo(f"keep a copy of {key}, and show it nobody: who has it organises the swarm", err=True)
    click.echo(f"next: dupt-peer bootstrap {shlex.quote(str(path))}", err=True)


def write(
    path: Path,
    preset: str,
    texts: Iterable[str],
    *,
    name: str,
    seed: int,
    size: str | None = None,
    admission: str = "open",
    offering: Offering = NOTHING,
) -> Manifest:
    """Train the tokenizer, and write all files; the manifest last, so that it never lacks the others."""
    from dupt_swarm.learning.tokenizer import ENCODER_SPECIAL, END_OF_TEXT, train_tokenizer

    model = load_preset(preset, size)["model"]
    wanted = model["vocabulary_size"]
    special = ENCODER_SPECIAL if model.get("bidirectional") else (END_OF_TEXT,)
    tokenizer = train_tokenizer(texts, wanted, special)
    if tokenizer.vocabulary_size < wanted:
        click.echo(
            f"note: the corpus gave {tokenizer.vocabulary_size} tokens of the {wanted} wanted; "
            f"a larger corpus gives a better tokenizer",
            err=True,
        )
    manifest = manifest_from_preset(
        preset,
        name=name,
        seed=seed,
        size=size,
        tokenizer_sha256=tokenizer.sha256,
        vocabulary_size=tokenizer.vocabulary_size,
    )
    try:
        with offering.written(organise(manifest, admission, path), tokenizer, path) as manifest:
            tokenizer.save(path.with_name("tokenizer.json"))
            path.write_text(manifest.to_toml(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error
    return manifest


def read_all(files: Sequence[TextFiles]) -> Iterator[str]:
    """All text of each, piece by piece, for `write`; then it is said what of it was left out."""
    for text in files:
        left_out: list[LeftOut] = []
        yield from (piece.text for piece in text.read(text.find(), left_out.append))
        note_left_out(left_out)


def _write_from_model(
    manifest: Path,
    model: Path,
    objective: Objective | None,
    *,
    name: str,
    seed: int,
    admission: str,
    offering: Offering,
) -> None:
    """A swarm that begins from a model, to learn this, or language; its state of round 0 is written, too."""
    files = [manifest, *(manifest.with_name(other) for other in ("tokenizer.json", "initial.safetensors"))]
    check_free(*files, *offering.folders(manifest))
    from dupt_swarm.models.beginning import begin_language, begin_task, write_beginning
    from dupt_swarm.models.saved_model import load_model

    base = load_model(model)
    if offering.texts and not (objective or base.manifest.objective).reads_text:
        raise UsageError(
            "the swarm would learn from tables of examples, and what is offered is text; leave it out",
            setting="offers",
        )
    for note in base.notes:
        click.echo(f"note: {note}", err=True)
    if objective is None:
        written, state = begin_language(base, name=name, seed=seed)
    else:
        if "lm_weight" not in objective.model_fields_set:
            usual = LM_WEIGHTS[base.manifest.model.kind]
            objective = objective.model_copy(update={"lm_weight": usual})
        written, state = begin_task(base, objective, name=name, seed=seed)
    organised = organise(written, admission, manifest)
    with offering.written(organised, base.tokenizer, manifest) as written:
        write_beginning(manifest, written, base.tokenizer, state)
    click.echo(f"wrote {manifest} (swarm {written.swarm_id}), {' and '.join(map(str, files[1:]))}", err=True)
    click.echo(_advice(written, manifest), err=True)
    say_next(manifest)


def _objective(task: str | None, given: str, lm_weight: float | None) -> Objective | None:
    """The manifest's table, with labels that commas divide and λ (None: the usual one); None: language.

    Raises:
        UsageError: labels are missing, or there are some that the task does not have.
    """
    labels = tuple(filter(None, map(str.strip, given.split(","))))
    if task is None:
        for setting, value in (("labels", labels), ("lm_weight", lm_weight)):
            if value not in ((), None):
                raise UsageError("say what the model is to learn", setting=(setting, "task"))
        return None
    if TASKS[task].needs_labels and len(labels) < 2:
        raise UsageError(
            f"{task} needs the names of its labels, two at least, as they are in the oracles' examples",
            setting="labels",
        )
    weight = {} if lm_weight is None else {"lm_weight": lm_weight}
    try:
        return Objective.model_validate({"kind": task, "labels": list(labels), **weight})
    except ValidationError as error:
        raise UsageError(explain_invalid(error, Objective, task), setting="labels") from error


def _advice(manifest: Manifest, path: Path) -> str:
    """How long the schedule lasts, which only the organiser can judge."""
    updates, step = manifest.schedule.total_updates, manifest.rounds.tokens_per_step
    change = f"schedule.total_updates in {path.name} is what to change"
    examples = step // manifest.model.context_length
    if manifest.objective.supervised:
        return (
            f"note: the learning rate ends after {updates:,} steps of {examples} examples, {EPOCHS} epochs "
            f"of {updates * examples // EPOCHS:,} examples of each oracle; {change} if they have others"
        )
    count, unit = (step, "tokens") if manifest.objective.reads_text else (examples, "examples")
    return (
        f"note: the learning rate decays over {updates:,} steps of {count:,} {unit}, "
        f"{updates * count:,} of each oracle; {change} if they have others"
    )
