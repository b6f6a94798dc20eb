"""Rounds between real peers in real processes over loopback."""

import json
import math
import re
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dupt_swarm import GPT, CollaborativeOptimizer, Swarm
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.record import PeerRecord
from dupt_swarm.optimizer.feedback import ErrorFeedback
from dupt_swarm.replica.aggregation import sum_of_squares
from tests.support import swarm_program
from tests.support.contributions import encoded
from tests.support.driven_swarm import Cluster
from tests.support.saved_models import small_manifest, small_tokenizer
from tests.support.tiny import reduced_tables, settings
from tests.support.waiting import wait_until
from tests.support.warm import Program

PROGRAM = Path(swarm_program.__file__)

GRADIENT: dict[str, dict[str, Any]] = {
    "rounds": {"strategy": "gradient", "overlap": False, "tokens_per_round": 64},
    "inner": {"optimizer": "none", "clip_norm": 0.0},
    "outer": {"optimizer": "adamw", "learning_rate": 0.01, "momentum": 0.0},
}
# Both codecs lose much, and feedback makes up for one of them.
REDUCED = reduced_tables(
    inner={"optimizer": "adamw"}, encoding={"contribution": "two_bit", "average": "int4", "feedback": 1.0}
)
PLAIN_AVERAGING: dict[str, dict[str, Any]] = {
    "rounds": {"overlap": False, "max_round_seconds": 0.001},
    "inner": {"optimizer": "sgd", "learning_rate": 0.5, "clip_norm": 0.0, "weight_decay": 0.0},
    "outer": {"optimizer": "nesterov", "learning_rate": 1.0, "momentum": 0.0},
    "schedule": {"warmup_updates": 0, "final_ratio": 1.0},
}


def cluster_of(folder: Path, manifest: Manifest, count: int = 0) -> Cluster:
    """A first peer, and so many oracles whose trainers are this process."""
    names = [f"oracle{number}" for number in range(count)]
    return Cluster(folder, manifest, GPT(manifest.model).parameters(), names)


@contextmanager
def three_programs(first: Swarm, folder: Path, rounds: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Oracles that are processes of their own."""
    with ExitStack() as stack:
        programs: list[subprocess.Popen[str]] = []
        for number in range(3):
            command = [sys.executable, str(PROGRAM), first.addresses[0], str(folder / str(number))]
            program = Program([*command, str(number), str(rounds), "3"], stdout=subprocess.PIPE, text=True)
            stack.callback(program.communicate)
            stack.callback(program.kill)
            programs.append(program)
        yield programs


def see_each_other(swarms: list[Swarm]) -> None:
    """Wait until each sees all the others at work on the same state."""

    def ready(swarm: Swarm) -> bool:
        return len(swarm.view.companions(swarm.state.digest, "")) == len(swarms)

    wait_until(lambda: all(ready(swarm) for swarm in swarms))


def trained_by(swarms: list[Swarm]) -> tuple[list[GPT], list[CollaborativeOptimizer]]:
    """A model and an optimizer for each, once all see one another at work."""
    models = [GPT(swarm.manifest.model) for swarm in swarms]
    optimizers = [
        CollaborativeOptimizer(model.parameters(), swarm) for model, swarm in zip(models, swarms, strict=True)
    ]
    see_each_other(swarms)
    return models, optimizers


def in_parallel(work: Callable[[int], None], count: int) -> None:
    """Do ``work`` of the numbers below ``count`` at the same time, and raise what it raises."""
    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(work, number) for number in range(count)]:
            future.result()


def train_beside(
    models: Sequence[GPT],
    optimizers: Sequence[CollaborativeOptimizer],
    manifest: Manifest,
    sizes: Sequence[list[int]],
) -> None:
    """Each takes steps on batches of these sizes, all at the same time."""
    barrier = threading.Barrier(len(models))

    def train(number: int) -> None:
        for batch in batches(number, manifest, sizes[number]):
            barrier.wait()
            step(models[number], optimizers[number], batch)

    in_parallel(train, len(models))


def batches(seed: int, manifest: Manifest, sizes: list[int]) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for size in sizes:
        shape = (size, manifest.model.context_length + 1)
        yield torch.randint(manifest.model.vocabulary_size, shape, generator=generator)


def backward(model: GPT, batch: Tensor) -> int:
    model(batch[:, :-1], batch[:, 1:]).backward()
    return batch[:, 1:].numel()


def step(model: GPT, optimizer: CollaborativeOptimizer, batch: Tensor) -> None:
    """An inner step."""
    optimizer.step(tokens=backward(model, batch))
    optimizer.zero_grad()


def values_of(model: GPT) -> Tensor:
    """The parameters as one vector."""
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("changes", "rounds"),
    [({"rounds": {"tokens_per_round": 320}}, 5), (GRADIENT, 5), (REDUCED, 5)],
    ids=["diloco", "gradient", "reduced"],
)
def test_rounds_of_three_processes_give_one_digest_each(
    tmp_path: Path, changes: dict[str, Any], rounds: int
) -> None:
    """After each round all three oracles hold bit-identical states, and so does the first peer."""
    with (
        cluster_of(tmp_path, small_manifest(**changes)) as cluster,
        three_programs(cluster.first, tmp_path, rounds) as programs,
    ):
        outputs = [program.communicate(timeout=120)[0] for program in programs]
        wait_until(lambda: cluster.first.view.peers != ())
        reports = [[json.loads(line) for line in output.splitlines()] for output in outputs]
        states = defaultdict(list)
        for line in (line for report in reports for line in report):
            states[line["round"]].append((line["digest"], line["tokens"]))
        assert sorted(states) == list(range(1, rounds + 1))
        assert {number: same for number, same in states.items() if len(set(same)) > 1} == {}
        # On a machine that is busy with something else an oracle may miss a round, and catches up.
        assert sum(len(same) == 3 for same in states.values()) >= 0.7 * rounds
        last = states[rounds][0][0]
        wait_until(lambda: last in {peer.record.state_digest for peer in cluster.first.view.peers})
        # It followed by computing rounds again: the states did not travel.
        assert re.search(r"computed \d+ rounds again", cluster.first.folder.log.read_text())


@pytest.mark.usefixtures("nothing_left")
def test_one_sgd_step_each_is_weighted_averaging(tmp_path: Path) -> None:
    """With one SGD step inside, a plain outer step and an all-reduce, the result is the mean by tokens."""
    manifest = small_manifest(**reduced_tables(**PLAIN_AVERAGING))
    sizes = [4, 8, 12]
    with cluster_of(tmp_path, manifest, 3) as cluster:
        swarms = cluster.oracles
        models, optimizers = trained_by(swarms)
        start = values_of(models[0])
        results = []
        for seed, size in enumerate(sizes):
            alone = GPT(manifest.model)
            alone.load_state_dict(models[0].state_dict())
            backward(alone, next(batches(seed, manifest, [size])))
            gradient = torch.cat([parameter.grad.reshape(-1) for parameter in alone.parameters()])  # type: ignore[union-attr]
            results.append(start - manifest.inner.learning_rate * gradient)
        expected = sum(size * result for size, result in zip(sizes, results, strict=True)) / sum(sizes)
        train_beside(models, optimizers, manifest, [[size] for size in sizes])
        change = (expected - start).abs().max()
        for swarm, model in zip(swarms, models, strict=True):
            assert swarm.state.swarm_tokens == sum(sizes) * manifest.model.context_length
            assert torch.equal(values_of(model), swarm.anchor)
            assert (swarm.anchor - expected).abs().max() < change * 2**-9
        assert len({swarm.state.digest for swarm in swarms}) == 1


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("overlap", [False, True])
def test_a_round_that_is_rejected(tmp_path: Path, overlap: bool) -> None:
    """The state stays and progress is kept; once states are accepted the swarm goes on with all of it."""
    manifest = small_manifest(rounds={"overlap": overlap, "max_round_seconds": 0.5})
    with cluster_of(tmp_path, manifest, 2) as cluster:
        swarms = cluster.oracles
        judges = [Judging(), Judging()]
        models = [GPT(manifest.model) for _ in swarms]
        optimizers = [
            CollaborativeOptimizer(model.parameters(), swarm, judge=judge)
            for model, swarm, judge in zip(models, swarms, judges, strict=True)
        ]
        see_each_other(swarms)

        def train_until(reason: str | None) -> None:
            def train(number: int) -> None:
                optimizer = optimizers[number]
                results = [optimizer.last_round]
                while results[-1] is results[0] or results[-1] is None or results[-1].reason != reason:
                    step(models[number], optimizer, next(batches(number, manifest, [4])))
                    results.append(optimizer.last_round)

            in_parallel(train, 2)

        before = swarms[0].state
        train_until("rejected")
        assert [swarm.state for swarm in swarms] == [before, before]
        assert all(optimizer.round_tokens > 0 == optimizer.contributed_tokens for optimizer in optimizers)
        for judge in judges:
            judge.accepting = True
        train_until(None)
        assert swarms[0].state == swarms[1].state
        assert all(optimizer.contributed_tokens > 0 for optimizer in optimizers)
        # Each state was judged from the one before, with what this oracle has trained on.
        assert {digest for judge in judges for digest in judge.before} == {before.digest}
        assert all(min(judge.tokens) > 0 for judge in judges)


class Judging:
    """Accepts no state until told to."""

    def __init__(self) -> None:
        self.accepting = False
        self.tokens: list[int] = []
        self.before: list[str] = []

    def __call__(self, tokens: int, before: tuple[str, Tensor], after: tuple[str, Tensor]) -> bool:
        assert before[1].shape == after[1].shape
        assert not torch.equal(before[1], after[1])
        self.tokens.append(tokens)
        self.before.append(before[0])
        return self.accepting


@pytest.mark.usefixtures("nothing_left")
def test_one_shared_sgd_step_each_is_averaging_bit_for_bit(tmp_path: Path) -> None:
    """With exact contributions that everybody gets, the new anchor is computed by hand, bit for bit."""
    exact = {"encoding": {"contribution": "fp32"}, "aggregation": {"rule": "mean"}}
    manifest = small_manifest(**PLAIN_AVERAGING, **exact)
    sizes = [4, 8, 12]
    with cluster_of(tmp_path, manifest, 3) as cluster:
        swarms = cluster.oracles
        models, optimizers = trained_by(swarms)
        start = swarms[0].anchor.clone()
        contributions: dict[str, tuple[Tensor, float]] = {}
        for number, size in enumerate(sizes):
            alone = GPT(manifest.model)
            alone.load_state_dict(models[number].state_dict())
            sgd = torch.optim.SGD(alone.parameters(), lr=manifest.inner.learning_rate)
            backward(alone, next(batches(number, manifest, [size])))
            sgd.step()
            contributions[swarms[number].peer_id] = (start - values_of(alone), size / sum(sizes))
        train_beside(models, optimizers, manifest, [[size] for size in sizes])
        rounds = [optimizer.last_round for optimizer in optimizers]
        assert [each and len(each.mates) for each in rounds] == [2] * 3
        # One part each, so this is the norm; the middle one of three is the median.
        norms = {peer: math.sqrt(sum_of_squares(values)) for peer, (values, _) in contributions.items()}
        scales = {peer: min(1.0, sorted(norms.values())[1] / norm) for peer, norm in norms.items()}
        [first, second, third] = (
            values * (share * scales[peer]) for peer, (values, share) in sorted(contributions.items())
        )
        expected = start - (first + second + third)
        assert all(torch.equal(swarm.anchor, expected) for swarm in swarms)


@pytest.mark.usefixtures("nothing_left")
def test_two_gradient_oracles_match_one_process_with_both_batches(tmp_path: Path) -> None:
    """Five rounds of `gradient` and an all-reduce give what AdamW gives on the two batches together."""
    changes = {**GRADIENT, "schedule": {"warmup_updates": 0, "final_ratio": 1.0}}
    changes["rounds"] = changes["rounds"] | {"max_round_seconds": 0.001}
    manifest = small_manifest(**reduced_tables(**changes))
    model = GPT(manifest.model)
    adamw = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.999), weight_decay=0.0)
    sizes = [4] * 5
    for pair in zip(batches(0, manifest, sizes), batches(1, manifest, sizes), strict=True):
        backward(model, torch.cat(pair))
        adamw.step()
        adamw.zero_grad()
    expected = values_of(model)

    with cluster_of(tmp_path, manifest, 2) as cluster:
        swarms = cluster.oracles
        models, optimizers = trained_by(swarms)
        start = swarms[0].anchor.clone()
        train_beside(models, optimizers, manifest, [sizes] * 2)
        assert [swarm.state.round for swarm in swarms] == [5, 5]
        assert torch.equal(swarms[0].anchor, swarms[1].anchor)
        # Adam divides by the size of the gradient, so the codec's error shows where gradients are tiny.
        error = (swarms[0].anchor - expected).norm() / (expected - start).norm()
        assert error < 2**-7


@pytest.mark.usefixtures("nothing_left")
def test_an_oracle_alone_trains_on_and_a_late_joiner_gets_its_state(tmp_path: Path) -> None:
    """One oracle does rounds by itself; one that joins later starts from the very same state."""
    manifest = small_manifest(rounds={"tokens_per_round": 64})
    with cluster_of(tmp_path, manifest) as cluster:
        swarm = cluster.add("early")
        model = GPT(manifest.model)
        optimizer = CollaborativeOptimizer(model.parameters(), swarm)
        for batch in batches(0, manifest, [4, 4, 4]):
            step(model, optimizer, batch)
        assert (swarm.state.round, swarm.state.swarm_tokens) == (3, 192)
        late = cluster.add("late")
        wait_until(lambda: swarm.state in (late.state, late.catching_up.newer))
        assert late.adopt().state == late.state == swarm.state
        assert torch.equal(late.anchor, swarm.anchor)
        assert late.tokenizer == small_tokenizer().to_bytes()


@pytest.mark.usefixtures("nothing_left")
def test_a_round_ends_in_the_middle_of_a_long_step(tmp_path: Path) -> None:
    """With the steps that are complete; the gradients of the one under way come to the next round."""
    manifest = small_manifest(rounds={"max_round_seconds": 60.0})
    with cluster_of(tmp_path, manifest) as cluster:
        swarm = cluster.add("slow")
        model = GPT(manifest.model)
        optimizer = CollaborativeOptimizer(model.parameters(), swarm)
        whole, half = batches(0, manifest, [4, 2])
        optimizer.attend()
        assert swarm.state.round == 0  # nothing is complete yet
        step(model, optimizer, whole)
        tokens = backward(model, half)
        gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        optimizer._due._training_since -= 60.0  # it took so long
        optimizer.attend()
        assert (swarm.state.round, swarm.state.swarm_tokens) == (1, 64)
        kept = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        assert all(map(torch.equal, kept, gradients))
        assert torch.equal(values_of(model), swarm.anchor)
        optimizer.step(tokens=tokens)
        assert optimizer.round_tokens == tokens
        assert not torch.equal(values_of(model), swarm.anchor)


@pytest.mark.usefixtures("nothing_left")
def test_steps_go_on_while_a_contribution_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who says meanwhile that the round is not to be ended is heard when it could begin."""
    manifest = small_manifest(rounds={"max_round_seconds": 0.5})
    may_go_on = threading.Event()
    encode = ErrorFeedback.encode

    def slow(feedback: ErrorFeedback, values: Tensor) -> bytes:
        assert may_go_on.wait(60)
        return encode(feedback, values)

    monkeypatch.setattr(ErrorFeedback, "encode", slow)
    with cluster_of(tmp_path, manifest, 2) as cluster:
        models, [optimizer, _] = trained_by(cluster.oracles)
        data = batches(0, manifest, [4] * 1000)
        steps_beside = 0
        while steps_beside < 3:
            steps_beside += optimizer.averaging
            step(models[0], optimizer, next(data))
        tokens = optimizer.round_tokens
        optimizer.interrupt()
        may_go_on.set()
        optimizer.settle()
        assert optimizer.last_round is not None
        assert (optimizer.last_round.state, optimizer.last_round.reason) == (None, "cancelled")
        assert optimizer.round_tokens == tokens


@pytest.mark.usefixtures("nothing_left")
def test_the_others_go_on_when_an_oracle_is_killed(tmp_path: Path) -> None:
    """Kill -9 of one of three oracles: the other two end further rounds together, with equal states."""
    with (
        cluster_of(tmp_path, small_manifest(rounds={"matchmaking_seconds": 4})) as cluster,
        three_programs(cluster.first, tmp_path, rounds=6) as [victim, *others],
    ):
        assert victim.stdout is not None
        victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)
        outputs = [program.communicate(timeout=90)[0] for program in others]
        reports = [
            {line["round"]: line for line in map(json.loads, output.splitlines())} for output in outputs
        ]
        common = reports[0].keys() & reports[1].keys()
        assert len(common) >= 4
        assert all(reports[0][number]["digest"] == reports[1][number]["digest"] for number in common)


@pytest.mark.usefixtures("nothing_left")
def test_oracles_go_on_without_the_first_peer(tmp_path: Path) -> None:
    """The first peer is nobody special: when it is gone, two oracles still average with each other."""
    manifest = small_manifest(**PLAIN_AVERAGING)
    with cluster_of(tmp_path, manifest, 2) as cluster:
        swarms = cluster.oracles
        models, optimizers = trained_by(swarms)
        cluster.first.close()
        train_beside(models, optimizers, manifest, [[4] * 3] * 2)
        assert [swarm.state.round for swarm in swarms] == [3, 3]
        assert swarms[0].state == swarms[1].state
        assert all(optimizer.failed_rounds == 0 for optimizer in optimizers)


@pytest.mark.usefixtures("nothing_left")
def test_records_tell_what_rounds_cost(tmp_path: Path) -> None:
    """Bytes of at least half a contribution each way, seconds waited, and what is left; until a pause."""
    manifest = small_manifest(**PLAIN_AVERAGING)
    with cluster_of(tmp_path, manifest, 2) as cluster:
        swarms = cluster.oracles
        models, optimizers = trained_by(swarms)
        train_beside(models, optimizers, manifest, [[4] * 3] * 2)

        def record(swarm: Swarm) -> PeerRecord:
            found = swarm.view.record(swarm.peer_id)
            assert found is not None
            return found

        wait_until(lambda: all(record(swarm).averaged_rounds == 3 for swarm in swarms))
        share = len(encoded(swarms[0].anchor, manifest)) / 2
        for known in map(record, swarms):
            assert known.round_sent_bytes is not None and known.round_received_bytes is not None
            assert min(known.round_sent_bytes, known.round_received_bytes) > share
            assert known.round_waiting_seconds is not None and known.waiting_seconds is not None
            assert 0 < known.round_waiting_seconds < known.waiting_seconds
            assert known.utilization is not None
            assert 0 < known.utilization < 1
        optimizers[0].pause()
        wait_until(lambda: record(swarms[0]).state == "paused")
        assert record(swarms[0]).utilization is None
        assert record(swarms[0]).waiting_seconds


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("resuming", [2, 1])
def test_oracles_that_resume(tmp_path: Path, resuming: int) -> None:
    """Those that resume at the same moment end the round together; one alone goes on alone."""
    manifest = small_manifest(rounds={"tokens_per_round": 10_000})
    with cluster_of(tmp_path, manifest, 2) as cluster:
        swarms = cluster.oracles
        models, optimizers = trained_by(swarms)

        def all_paused(swarm: Swarm) -> bool:
            return [peer.record.state for peer in swarm.view.oracles] == ["paused"] * 2

        def resume(number: int) -> None:
            """With contributions as large as after an evening's training."""
            optimizer = optimizers[number]
            optimizer.resume()
            while optimizer.last_round is None:
                backward(models[number], next(batches(number, manifest, [1])))
                optimizer.step(tokens=0 if optimizer.round_tokens else 10_001)
                optimizer.zero_grad()

        for optimizer in optimizers:
            optimizer.pause()
        wait_until(lambda: all(map(all_paused, swarms)))
        in_parallel(resume, resuming)
        states = set()
        for number in range(resuming):
            result = optimizers[number].last_round
            assert result is not None
            assert len(result.mates) == resuming - 1
            states.add(result.state)
        assert len(states) == 1
        assert None not in states


@pytest.mark.usefixtures("nothing_left")
def test_a_second_first_peer_holds_the_swarm_too(tmp_path: Path) -> None:
    """A first peer that is given addresses takes the state from there; others join through it alone."""
    manifest = small_manifest()
    with cluster_of(tmp_path, manifest) as cluster:
        wish = settings("bootstrap", initial_peers=cluster.first.addresses)
        with Swarm.create(manifest, cluster.first.tokenizer, [], tmp_path / "second", wish) as second:
            assert second.state == cluster.first.state
            assert torch.equal(second.anchor, cluster.first.anchor)
            cluster.first.close()
            with Swarm.join(second.addresses, tmp_path / "late", settings(name="late")) as late:
                assert late.state == second.state


@pytest.mark.usefixtures("nothing_left")
def test_what_is_not_finite_never_reaches_the_anchor(tmp_path: Path) -> None:
    """A NaN in an oracle's parameters costs that oracle's work since the anchor, and nothing else."""
    manifest = small_manifest(**PLAIN_AVERAGING)
    with cluster_of(tmp_path, manifest) as cluster:
        swarm = cluster.add("unlucky")
        model = GPT(manifest.model)
        optimizer = CollaborativeOptimizer(model.parameters(), swarm)
        tokens = backward(model, next(batches(0, manifest, [4])))
        model.wte.weight.grad[0, 0] = float("nan")  # type: ignore[index]
        before = swarm.anchor.clone()
        optimizer.step(tokens=tokens)
        assert optimizer.last_round is not None
        assert optimizer.last_round.reason == "not_finite"
        assert swarm.state.round == 0
        assert torch.equal(swarm.anchor, before)
        assert torch.equal(values_of(model), before)
