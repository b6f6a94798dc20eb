"""What a peer exports of itself."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hivemind.p2p import P2PHandlerError
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.tokenizer import train_tokenizer
from dupt_swarm.metrics.peer import PEER_METRICS
from dupt_swarm.metrics.spec import Distribution, MetricSpec
from dupt_swarm.node.messages import CatchingUp, FetchFailed, RoundResult, StateName, Traffic
from dupt_swarm.node.reasons import ENDINGS, REFUSED_MESSAGES, Failure
from dupt_swarm.node.record import PeerState
from dupt_swarm.node.view import View
from dupt_swarm.settings import NodeSettings
from peers.metrics.collector import PeerMetrics
from peers.metrics.http import parse_address, serve_metrics
from peers.metrics.recorders import DownloadRecorder, RoundRecorder
from tests.support.loopback import free_port
from tests.support.programs import BIN, LISTEN
from tests.support.screen import averaged, oracle, status
from tests.support.stranger import store_at, stranger_beside
from tests.support.texts import library
from tests.support.tiny import tiny_manifest
from tests.support.waiting import wait_until
from tests.support.warm import Program

DEADLINE_SECONDS = 90.0
PROMPT_SECONDS = 5.0

Labels = tuple[tuple[str, str], ...]


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.samples: dict[tuple[str, Labels], float] = {}
        self.kinds: dict[str, str] = {}
        for family in text_string_to_metric_families(text):
            self.kinds[family.name] = family.type
            for sample in family.samples:
                self.samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value

    def __getitem__(self, name: str) -> float:
        return self.samples[f"dupt_peer_{name}", ()]

    def __contains__(self, name: str) -> bool:
        return any(key == f"dupt_peer_{name}" for key, _ in self.samples)

    def by(self, name: str, label: str) -> dict[str, float]:
        """The values of a metric by one of its labels."""
        return {
            dict(labels)[label]: value
            for (key, labels), value in self.samples.items()
            if key == f"dupt_peer_{name}"
        }


def fetch(url: str) -> Scrape:
    with urllib.request.urlopen(url, timeout=PROMPT_SECONDS) as response:
        return Scrape(response.read().decode())


@pytest.fixture
def first(nothing_left: None, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A first peer that serves metrics: its address, and the metrics' URL."""
    del nothing_left
    corpus = library(tmp_path / "corpus", "argparse", "inspect")
    tokenizer = train_tokenizer([path.read_text() for path in sorted(corpus.iterdir())], 300)
    tokenizer.save(tmp_path / "tokenizer.json")
    manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size, rounds={"tokens_per_round": 6400})
    (tmp_path / "run.toml").write_text(manifest.to_toml())
    port = free_port()
    process = start("bootstrap", str(tmp_path / "run.toml"), tmp_path / "first", port, "--json")
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())["addresses"][0], f"http://127.0.0.1:{port}/metrics"
    end(process, signal.SIGTERM, 0)


def start(command: str, argument: str, state: Path, port: int, *more: str) -> subprocess.Popen[str]:
    """``dupt-peer`` on loopback."""
    addr = ("--metrics-addr", f"127.0.0.1:{port}", "--state-dir", str(state))
    line = [str(BIN / "dupt-peer"), command, argument, *addr, *LISTEN, *more]
    return Program(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str], number: int, code: int) -> None:
    process.send_signal(number)
    try:
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        process.kill()
    assert process.returncode == code, errors


def test_an_oracle_shows_its_training(first: tuple[str, str], tmp_path: Path) -> None:
    """During real training every figure is there and plausible, and after it nothing serves them."""
    address, first_url = first
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    began = time.time()
    oracle = start(
        *("join", f"--initial-peers={address}", tmp_path / "oracle", port, "--name", "a", "--device", "cpu"),
        *("--corpus", str(tmp_path / "corpus"), "--checkpoint-seconds", "1", "--no-compile"),
    )
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not settled(scrape := try_to_fetch(url)):
        assert time.monotonic() < deadline and oracle.poll() is None
        time.sleep(0.1)
    assert scrape is not None
    later = fetch(url)

    check_names(scrape)
    states = scrape.by("state", "state")
    assert sorted(states.values()) == [0.0] * (len(get_args(PeerState)) - 1) + [1.0]
    assert states["training"] or states["averaging"]
    steps = scrape.by("step_duration_seconds_count", "phase")
    assert set(steps) == {"data", "forward", "backward", "optimizer"}
    # The trainer goes on while it is read, so all that is certain is what lies between two readings.
    for count in steps.values():
        assert scrape["inner_steps_total"] - 1 <= count <= later["inner_steps_total"] + 1
    assert scrape["trained_tokens_total"] <= 64 * scrape["inner_steps_total"]
    assert 64 * (scrape["inner_steps_total"] - 1) <= later["trained_tokens_total"]
    assert 0 < sum(scrape.by("step_duration_seconds_sum", "phase").values()) < time.time() - began
    assert scrape["averaging_rounds_total"] <= later["round"]
    assert scrape["round"] <= later["averaging_rounds_total"] + 1
    assert scrape["averaging_rounds_total"] <= scrape["averaging_duration_seconds_count"]
    assert 6400 <= scrape["tokens_total"] <= scrape["trained_tokens_total"]
    assert 0 < scrape["loss_nats"] < 7 and 0 < scrape["heldout_loss_nats"] < 7
    assert 0 < scrape["learning_rate"] < 1
    assert (scrape["averaging_group_size"], scrape["round_lag"], scrape["known_peers"]) == (1, 0, 2)
    assert scrape["network_receive_bytes_total"] > 4 * 10_000, "the state came from the first peer"
    assert scrape["round_receive_bytes"] >= 0 and scrape["round_transmit_bytes"] > 0
    assert 0 < scrape["utilization_ratio"] <= 1
    assert 0 <= scrape["round_waiting_seconds"] <= later["waiting_seconds_total"] < time.time() - began
    times = ("start", "last_step", "last_round", "checkpoint_saved")
    assert all(began - 1 <= scrape[f"{name}_timestamp_seconds"] <= time.time() for name in times)
    assert "gpu_memory_total_bytes" not in scrape
    # Each begins at zero, or `increase` would not show the first of its kind.
    assert scrape.by("averaging_rounds_failed_total", "reason") == dict.fromkeys(Failure, 0.0)
    assert scrape.by("refused_messages_total", "reason") == dict.fromkeys(REFUSED_MESSAGES, 0.0)
    assert scrape.by("node_restarts_total", "reason") == dict.fromkeys(ENDINGS, 0.0)

    served = fetch(first_url)
    check_names(served)
    assert served["network_transmit_bytes_total"] > 4 * 10_000
    assert "inner_steps_total" not in served and "utilization_ratio" not in served
    assert served.by("refused_messages_total", "reason") == dict.fromkeys(REFUSED_MESSAGES, 0.0)

    end(oracle, signal.SIGINT, 130)
    with pytest.raises(urllib.error.URLError):
        fetch(url)


def test_what_a_stranger_sends_is_counted(first: tuple[str, str]) -> None:
    """A first peer that is sent nonsense serves on, and shows what it refused by reason."""
    address, url = first

    async def attack() -> None:
        async with stranger_beside(address) as p2p:
            for value in (b"", b"\xc1", bytes(10_000)):
                with contextlib.suppress(P2PHandlerError):  # nothing is stored
                    await store_at(p2p, address, "x", b"\xc4\x01x", value)

    asyncio.run(asyncio.wait_for(attack(), DEADLINE_SECONDS))
    expected = dict.fromkeys(REFUSED_MESSAGES, 0.0) | {"form": 2.0, "size": 1.0}
    wait_until(lambda: fetch(url).by("refused_messages_total", "reason") == expected)


def try_to_fetch(url: str) -> Scrape | None:
    """None while nothing listens there."""
    try:
        return fetch(url)
    except (urllib.error.URLError, OSError):
        return None


def settled(scrape: Scrape | None) -> bool:
    """Whether an oracle has ended rounds, saved itself, and sees the other peer."""
    return (
        scrape is not None
        and "checkpoint_saved_timestamp_seconds" in scrape
        and "averaging_rounds_total" in scrape
        and scrape["averaging_rounds_total"] >= 2
        and scrape["known_peers"] == 2
        and scrape["network_receive_bytes_total"] > 0
        and "utilization_ratio" in scrape
    )


def check_names(scrape: Scrape) -> None:
    """Every family is in the table, with its kind."""
    kinds = {"info": "gauge"}  # as the text format knows no other
    table = {spec.name.removesuffix("_total"): kinds.get(spec.kind, spec.kind) for spec in PEER_METRICS}
    assert scrape.kinds.items() <= table.items()


def test_before_the_swarm_is_found_there_is_little_to_say() -> None:
    """A peer that is still joining shows its software and that it joins."""
    registry = CollectorRegistry()
    registry.register(PeerMetrics())
    scrape = Scrape(generate_latest(registry).decode())
    assert {name for name, state in scrape.by("state", "state").items() if state} == {"syncing"}
    assert {name for name, _ in scrape.samples} == {
        "dupt_peer_build_info",
        "dupt_peer_start_timestamp_seconds",
        "dupt_peer_state",
        "dupt_peer_paused_seconds_total",
    }


def test_rounds_and_pauses_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result counts when it is new; the time between reports counts as paused if it began so."""
    clock = iter([0.0, 1.0, 2.0, 4.0, 8.0])
    monkeypatch.setattr("peers.metrics.recorders.time.monotonic", lambda: next(clock))
    recorder = RoundRecorder()
    good = RoundResult(StateName(1, 640, "a" * 64), None, 640, (), 0.3)
    bad = RoundResult(None, Failure.PEER_LOST, 640, (), 7.0)
    for result, state in ((None, "training"), (good, "paused"), (good, "paused"), (bad, "training")):
        recorder.report(SimpleNamespace(last_round=result, state=state))  # type: ignore[arg-type]
    assert (recorder.rounds, recorder.failed) == (2, Counter(peer_lost=1))
    assert recorder.durations.read()[1] == pytest.approx(7.3)
    assert recorder.paused_seconds == 6.0
    succeeded = recorder.last_success
    assert succeeded is not None
    clock = iter([9.0])
    recorder.report(SimpleNamespace(last_round=replace(bad), state="training"))  # type: ignore[arg-type]
    assert (recorder.rounds, recorder.last_success) == (3, succeeded)


@pytest.mark.parametrize("trains", [True, False])
def test_what_a_peer_knows_of_itself(trains: bool) -> None:
    """Beside or instead of its record; what has not happened yet is zero, what is not known is not there."""
    view = View(0.0, (oracle("me", 90.0), oracle("other", 90.0)))  # in round 7
    swarm: Any = SimpleNamespace(
        **{"peer_id": "me", "view": view, "restarts": {}, "traffic": Traffic(received=70, sent=40)},
        manifest=SimpleNamespace(swarm_id="run"),
        state=SimpleNamespace(round=9 if trains else 5),
        folder=SimpleNamespace(checkpoint=None),
        listen=lambda _: None,
    )
    metrics, registry = PeerMetrics(), CollectorRegistry()
    registry.register(metrics)
    metrics.joined(swarm, NodeSettings("oracle"))
    assert "tokens_total" not in Scrape(generate_latest(registry).decode()), "earlier sessions count"
    if trains:
        running: Any = SimpleNamespace(observe=lambda _: None, learning_rate=0.1)
        metrics.trains(running, "cpu")
        metrics.report(status(averaged(9)))
    scrape = Scrape(generate_latest(registry).decode())
    assert (scrape["round"], scrape["round_lag"]) == ((9, 0) if trains else (7, 0))
    assert (scrape["network_receive_bytes_total"], scrape["network_transmit_bytes_total"]) == (70, 40)
    assert scrape.by("node_restarts_total", "reason") == dict.fromkeys(ENDINGS, 0)
    assert scrape.by("refused_messages_total", "reason") == dict.fromkeys(REFUSED_MESSAGES, 0)
    if trains:
        assert scrape.by("averaging_rounds_failed_total", "reason") == dict.fromkeys(Failure, 0)
        assert (scrape["averaging_group_size"], scrape["tokens_total"]) == (2, 1_234_567)


def test_downloads_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each download has its duration; failed ones are counted beside it, other events passed over."""
    clock = iter([10.0, 12.0, 15.0, 20.0, 50.0])
    monkeypatch.setattr("peers.metrics.recorders.time.monotonic", lambda: next(clock))
    recorder = DownloadRecorder()
    newer = StateName(1, 640, "a" * 64)
    events = (
        CatchingUp(fetching=False, newer=None),
        CatchingUp(fetching=True, newer=None),
        CatchingUp(fetching=False, newer=newer),
        CatchingUp(fetching=True, newer=None),  # by a node that dies
        CatchingUp(fetching=True, newer=None),
        FetchFailed(),
        CatchingUp(fetching=False, newer=None),
        CatchingUp(fetching=False, newer=newer),
        "something else",
    )
    for event in events:
        recorder.hear(event)
    buckets, total = recorder.durations.read()
    assert (buckets[-1], total, recorder.failed) == (("+Inf", 2.0), 32.0, 1)


def test_a_distribution_is_cumulative() -> None:
    """Buckets hold what is at most their bound, each with those before it; the last one holds all."""
    distribution = Distribution((1.0, 2.5))
    for value in (0.5, 1.0, 2.0, 99.0):
        distribution.observe(value)
    assert distribution.read() == ([("1.0", 2.0), ("2.5", 3.0), ("+Inf", 4.0)], 102.5)
    family = MetricSpec("x_seconds", "histogram", "X.", ("phase",), (1.0, 2.5)).histogram(
        [(("data",), distribution)]
    )
    assert [(sample.name, sample.value) for sample in family.samples][-2:] == [
        ("x_seconds_count", 4.0),
        ("x_seconds_sum", 102.5),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:9465", ("127.0.0.1", 9465)), ("[::1]:0", ("::1", 0)), ("localhost:1", ("localhost", 1))],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    """Host and port, IPv6 in brackets."""
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["9465", ":9465", "host", "host:", "host:x", "::1:80", "[h]:1", "h:65536", "h:²"]
)
def test_bad_addresses(text: str) -> None:
    """What is no address is refused with an example, or with the limit that it breaks."""
    with pytest.raises(UsageError, match=r"write it like 127\.0\.0\.1:9465|ports end at 65535"):
        parse_address(text)


def test_a_page_reads_nothing_by_a_name_of_its_own() -> None:
    """A request to another host than an address or --metrics-addr's gets the remedy (DNS rebinding)."""
    port = free_port()
    with serve_metrics(f"localhost:{port}"):
        for host, status in (
            (f"127.0.0.1:{port}", 200),
            ("localhost", 200),
            (f"attacker.example:{port}", 421),
        ):
            connection = http.client.HTTPConnection("localhost", port, timeout=DEADLINE_SECONDS)
            connection.request("GET", "/metrics", headers={"Host": host})
            with contextlib.closing(connection), connection.getresponse() as response:
                assert response.status == status
                assert ("--metrics-addr NAME:PORT" in response.read().decode()) is (status == 421)


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_what_cannot_be_a_name_is_refused(host: str) -> None:
    """A host whose name the DNS could not hold is the user's error, told like a taken port."""
    address = f"{host}:9465"
    with pytest.raises(UsageError, match=f"{address}: cannot listen there"), serve_metrics(address):
        pass


def test_a_silent_client_holds_no_thread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who connects and says nothing is let go after a while, and that is no error."""
    monkeypatch.setattr("dupt_swarm.metrics.serving._Handler.timeout", 0.05)
    with serve_metrics(f"127.0.0.1:{(port := free_port())}"):
        capsys.readouterr()
        with socket.create_connection(("127.0.0.1", port), timeout=PROMPT_SECONDS) as client:
            assert client.recv(1) == b""
    assert capsys.readouterr().err == ""


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    """Before anything else: exit code 2, and the message names the option."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UsageError, match="choose another address or port"), serve_metrics(address):
            pass
        done = subprocess.run(
            [
                *(str(BIN / "dupt-peer"), "join", "--initial-peers", "x", "--corpus", str(tmp_path)),
                *("--metrics-addr", address, "--state-dir", str(tmp_path / "state")),
            ],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
    assert done.returncode == 2
    assert f"--metrics-addr {address}: cannot listen there" in done.stderr
