"""``dupt-peer evaluate``: an independent evaluator, which measures each new state on a corpus of its own."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.command_line.exit_codes import command_errors, message
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.errors import DuptError, UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.record import RecordUpdate, TaskResult
from dupt_swarm.settings import LISTEN_EVERYWHERE, OF_THE_SWARM, URL_PATTERN, EvaluatorSettings, NodeSettings
from peers import options
from peers.control.actions import PeerControl
from peers.control.socket import serve_control
from peers.interruption import Interruption
from peers.model.export import TYPES
from peers.screen import words
from peers.screen.log import Log
from peers.screen.words import about_left_out

if TYPE_CHECKING:
    from dupt_swarm.evaluator import Evaluator, Measurement
    from dupt_swarm.models.harness import Harness
    from dupt_swarm.models.publishing import Publisher
    from dupt_swarm.swarm import Swarm


@click.command("evaluate")
@options.initial_peers
@click.option(
    "--corpus",
    type=options.TEXT_PATH,
    default=None,
    metavar="PATH",
    help="Text, or tables of examples, that no oracle trains on. It never leaves this machine. "
    "[default: what is held out of the text that the swarm offers]",
)
@click.option(
    "--dataset",
    default="",
    help="The corpus's public name. [default: name of the file or folder; of the swarm's `held-out`]",
)
@options.data
@options.device
@options.batch_size
@click.option(
    "--blocks",
    type=click.IntRange(1),
    default=None,
    help="Measure on at most this many sequences or examples; compare like with like. "
    "[default: the whole corpus]",
)
@click.option(
    "--prompt",
    default=None,
    metavar="TEXT",
    help="Also let each state continue this text, for all to read on the monitor's page. [default: no]",
)
@click.option(
    "--sample-tokens",
    type=click.IntRange(1, 1000),
    default=64,
    show_default=True,
    help="How much of it, at most; records have room for some 500 characters.",
)
@click.option(
    "--publish",
    type=UserPath(file_okay=False, path_type=Path),
    default=None,
    metavar="DIR",
    help="Also write measured states into DIR: a folder for `transformers` each, and `latest`, a link.",
)
@click.option(
    "--every",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Publish, and measure on --tasks, after so many rounds.",
)
@click.option("--keep", type=click.IntRange(1), default=3, show_default=True, help="How many stay published.")
@click.option(
    "--gguf", type=click.Choice(TYPES), default=None, help="With a model.gguf in each. [default: none]"
)
@click.option(
    "--published-at",
    default="",
    metavar="URL",
    help="Where others find what is published, for the monitor's page to link to. [default: nowhere]",
)
@click.option(
    "--tasks",
    type=UserPath(dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Also measure by lm-evaluation-harness on the task that this .yaml describes, in a process of "
    "lower priority. Repeatable.",
)
@click.option("--once", is_flag=True, help="Measure the current state, publish no record of it, and leave.")
@options.swarm_id
@options.invitation
@click.option(
    "--host-maddrs",
    multiple=True,
    default=LISTEN_EVERYWHERE,
    show_default=True,
    metavar="ADDRESS",
    help="Multiaddr to listen on. Repeatable.",
)
@options.state_dir
@options.name
@options.as_json
@command_errors
def command(
    initial_peers: tuple[str, ...],
    state_dir: Path | None,
    as_json: bool,
    once: bool,
    publish: Path | None,
    every: int,
    keep: int,
    gguf: str | None,
    published_at: str,
    tasks: tuple[Path, ...],
    **chosen: Any,
) -> None:
    """Follow a swarm, and measure each new state on a corpus of your own, or of the swarm.

    Prints a line for each, and publishes it, signed, for all to see. It trains nothing.
    """
    log = Log()
    with Interruption() as interruption:
        from dupt_swarm.evaluator import Evaluator, check_prompt, dataset_name
        from dupt_swarm.learning.device import choose_device
        from dupt_swarm.learning.objectives import check_data
        from dupt_swarm.models.harness import Harness, check_tasks
        from dupt_swarm.swarm import Swarm

        if chosen["corpus"] == OF_THE_SWARM:
            chosen["corpus"] = None
        own = options.pick(EvaluatorSettings, chosen)
        check_data(own)
        dataset_name(own)
        check_prompt(own)
        publisher = _publisher(publish, every, keep, gguf, published_at)
        if tasks:
            check_tasks(tasks)
        device = str(choose_device(own.device))
        settings = options.pick(NodeSettings, chosen | {"device": device}, role="evaluator")
        log.say("joining the swarm …")
        with Swarm.join(initial_peers, state_dir, settings, check=partial(_check, own, publisher)) as swarm:
            log.say(f"joined {swarm.manifest.swarm_id} at round {swarm.state.round}")
            control = PeerControl(swarm, "evaluator", settings.name)
            with serve_control(swarm.folder.path, control.actions):
                progress = control.beaten_by(log.preparing)
                evaluator = Evaluator(
                    swarm, own, progress, lambda doing: control.beat(doing, swarm.state.round)
                )
                for sentence in (*about_left_out(evaluator.objective.left_out), *evaluator.objective.notes):
                    log.say(sentence)
                interruption.on_stop(evaluator.stop)
                folder, harness = swarm.folder.path / "tasks", None
                if tasks:
                    harness = Harness(tasks, every, swarm.manifest, folder, device, own.batch_size)
                with closing(harness) if harness else nullcontext():
                    reporter = _Reporter(swarm, publisher, harness, log, as_json, once)
                    if once:
                        _measure_once(evaluator, reporter, control, interruption)
                    else:
                        swarm.publish(RecordUpdate(published_at=published_at))
                        evaluator.run(reporter.measured, reporter.look)
        log.say("left the swarm")
    interruption.exit_if_received()


def _publisher(
    folder: Path | None, every: int, keep: int, gguf: str | None, published_at: str
) -> Publisher | None:
    """What writes measured states, if they are to be written."""
    from dupt_swarm.models.publishing import Publisher

    if not re.fullmatch(URL_PATTERN.strip("^$"), published_at):
        raise UsageError(
            f"{published_at}: no URL; write it like https://example.org/model", setting="published_at"
        )
    if folder is not None:
        return Publisher(folder, every, keep, gguf)
    if gguf is not None:
        raise UsageError("say where to publish it", setting=("gguf", "publish"))
    if published_at:
        raise UsageError("say what folder is found there", setting=("published_at", "publish"))
    return None


def _check(own: EvaluatorSettings, publisher: Publisher | None, manifest: Manifest) -> None:
    """See that this machine's data, and where states are published, go with the swarm."""
    from dupt_swarm.learning.objectives import check_data

    check_data(own, manifest)
    if publisher is not None:
        publisher.check(manifest.swarm_id)


@dataclass(frozen=True)
class _Reporter:
    """Prints and publishes measurements. Unless ``once``, it says what fails, and measuring goes on."""

    swarm: Swarm
    publisher: Publisher | None
    harness: Harness | None
    log: Log
    as_json: bool
    once: bool

    def measured(self, found: Measurement) -> None:
        """Print it, publish the state if that is due, and measure it on tasks if that is."""
        _print(found, self.as_json)
        if self.publisher is not None and self.publisher.is_due(found.state.round):
            with self._tolerating("not published"):
                written = self.publisher.publish(self.swarm, found)
                self.log.say(f"published {written}" if written else "not published: the swarm has moved on")
        if self.harness is not None and self.harness.is_due(found.state.round):
            with self._tolerating("not measured on tasks"):
                if not self.harness.start(self.swarm, found):
                    self.log.say("not measured on tasks: the swarm has moved on")

    def look(self) -> bool:
        """Print and publish the results of tasks once they are there; whether they are yet to come."""
        if self.harness is None:
            return False
        with self._tolerating("not measured on tasks"):
            if results := self.harness.finished():
                _print_tasks(results, self.as_json)
                if not self.once:
                    self.swarm.publish(RecordUpdate(tasks=results), now=True)
        return self.harness.busy

    @contextmanager
    def _tolerating(self, what: str) -> Iterator[None]:
        try:
            yield
        except DuptError as error:
            if self.once:
                raise
            self.log.say(f"{what}: {message(error)}")


def _measure_once(
    evaluator: Evaluator, reporter: _Reporter, control: PeerControl, interruption: Interruption
) -> None:
    """Measure the current state, and wait for its results on tasks."""
    from dupt_swarm.evaluator import LOOK_SECONDS

    if (found := evaluator.measure()) is None:
        return
    reporter.measured(found)
    while reporter.look() and interruption.received is None:
        control.beat("measuring", reporter.swarm.state.round)
        time.sleep(LOOK_SECONDS)


def _print_tasks(results: Sequence[TaskResult], as_json: bool) -> None:
    round = results[0].round
    if as_json:
        tasks = [one.model_dump(exclude={"round"}) for one in results]
        click.echo(json.dumps({"round": round, "tasks": tasks}))
        return
    figures = ", ".join(f"{one.task} {one.metric} {one.value:.4f}" for one in results)
    click.echo(f"{time.strftime('%H:%M:%S')}  round {round}  {figures}")


def _print(found: Measurement, as_json: bool) -> None:
    state, evaluation = found.state, found.evaluation
    if not as_json:
        unit, count = next(iter(evaluation.counts.items()))
        click.echo(
            f"{time.strftime('%H:%M:%S')}  round {state.round}  {found.dataset} "
            f"{words.figure(evaluation, decimals=4)}  loss {evaluation.loss_nats:.4f}  "
            f"({count:,} {unit} in {found.seconds:.1f} s)"
        )
        if found.sample is not None:
            click.echo(f"          {words.sample(found.sample.prompt, found.sample.text)}")
        return
    line: dict[str, Any] = {
        "dataset": found.dataset,
        "round": state.round,
        "state_digest": state.digest,
        "swarm_tokens": state.swarm_tokens,
        # JSON cannot represent non-finite numbers.
        "bits_per_byte": evaluation.bits_per_byte if found.finite else None,
        "loss_nats": evaluation.loss_nats if found.finite else None,
        "accuracy": evaluation.accuracy if found.finite else None,
        "nsp_accuracy": evaluation.nsp_accuracy if found.finite else None,
        **evaluation.counts,
        "time": found.time,
        "seconds": found.seconds,
    }
    if found.sample is not None:
        line["sample"] = found.sample.model_dump()
    click.echo(json.dumps(line))
