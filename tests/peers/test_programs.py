"""The programs as people use them: real processes, their output and exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import platformdirs
import pytest
from click.testing import CliRunner

from dupt_swarm.replica.electorate import MEMORY_ROUNDS
from peers.cli import main as peer_program
from peers.model.cli import main as model_program
from tests.support.dumps import page, write_dump
from tests.support.loopback import NOBODY
from tests.support.programs import LISTEN, dupt_peer, start, wait_for_line
from tests.support.smaller import make_smaller
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")

A_CONTRIBUTION = 10_000  # bytes; it has more
# Ten are promised; the rest is for a machine that runs other tests beside this one.
STOP_SECONDS = 10 + 10


def test_help_needs_neither_torch_nor_hivemind() -> None:
    """`--help` of the program and of each command answers without importing anything heavy."""
    code = (
        "import sys; from click.testing import CliRunner; from peers.cli import main, COMMANDS\n"
        "for name in ['', *COMMANDS]:\n"
        "    assert CliRunner().invoke(main, [*filter(None, [name]), '--help']).exit_code == 0\n"
        "print([m for m in ('torch', 'hivemind', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("program", "command"), [(peer_program, "audit"), (model_program, "verify")])
def test_kernels_are_kept_but_not_in_tmp(
    program: click.Command, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch may make its folder although nothing is compiled."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert CliRunner().invoke(program, [command, "--help"]).exit_code == 0
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == platformdirs.user_cache_dir("dupt_swarm")


def test_an_organiser_hears_that_members_must_trust_one_another(manifest: Path, tmp_path: Path) -> None:
    """Where everybody may join, and members reduce; where they share, as in what `new` writes, not."""
    reducing = tmp_path / "reducing" / "run.toml"
    reducing.parent.mkdir()
    text = manifest.read_text().replace('exchange = "share"', 'exchange = "reduce"')
    reducing.write_text(text.replace('rule = "agreeing_mean"', 'rule = "mean"'))
    reducing.with_name("tokenizer.json").write_bytes(manifest.with_name("tokenizer.json").read_bytes())
    for path, noted in ((manifest, False), (reducing, True)):
        peer = start("bootstrap", str(path), *LISTEN, "--state-dir", str(tmp_path / "state"))
        try:
            assert peer.stdout is not None
            assert peer.stdout.readline().startswith("dupt-peer join")
        finally:
            peer.terminate()
            _, errors = peer.communicate(timeout=30)
        assert ("members must trust one another" in errors) == noted


@pytest.mark.parametrize(("step", "whole"), [(1000, 10_500), (1024, 10_240)])
def test_an_organiser_hears_of_steps_that_do_not_divide(
    manifest: Path, tmp_path: Path, step: int, whole: int
) -> None:
    """Each number that is used as another is named, with the nearest that would be used as they are."""
    run = tmp_path / "run.toml"  # without a tokenizer: the first peer ends soon
    run.write_text(manifest.read_text())
    make_smaller(run, tokens_per_round=whole, tokens_per_step=step)
    errors = dupt_peer("bootstrap", str(run), *LISTEN, "--state-dir", str(tmp_path)).stderr
    expected = [
        "note: rounds.tokens_per_step = 1000 is no multiple of model.context_length = 128, so steps have "
        "fewer; write 896 or 1024",
        "note: rounds.tokens_per_round = 10500 is no multiple of rounds.tokens_per_step = 1000, so the "
        "learning rate falls more slowly; write 10000 or 11000",
    ]
    found = [line for line in errors.splitlines() if line.startswith("note: rounds.")]
    assert found == (expected if step == 1000 else [])
    assert "tokenizer.json" in errors


def test_new_writes_nothing_over(manifest: Path, text: Path) -> None:
    """An existing manifest is not overwritten, exit code 2."""
    before = manifest.read_text()
    done = dupt_peer("new", str(manifest), "--corpus", str(text))
    assert done.returncode == 2
    assert "exists" in done.stderr
    assert manifest.read_text() == before


def test_a_wrong_key_in_the_manifest_is_exit_code_10(manifest: Path, tmp_path: Path) -> None:
    """A misspelt key stops the first peer with the key and what was probably meant."""
    (tmp_path / "tokenizer.json").write_bytes(manifest.with_name("tokenizer.json").read_bytes())
    wrong = tmp_path / "run.toml"
    wrong.write_text(manifest.read_text().replace("[inner]", "[inner]\nlr = 1.0"))
    done = dupt_peer("bootstrap", str(wrong), *LISTEN, "--state-dir", str(tmp_path))
    assert done.returncode == 10
    assert "unknown key `inner.lr`; did you mean `inner.learning_rate`?" in done.stderr


def test_a_tokenizer_of_another_run_is_exit_code_10(manifest: Path, tmp_path: Path) -> None:
    """A first peer whose tokenizer.json is not the manifest's does not start."""
    wrong = tmp_path / "run.toml"
    wrong.write_text(manifest.read_text())
    (tmp_path / "tokenizer.json").write_text("{}")
    done = dupt_peer("bootstrap", str(wrong), *LISTEN, "--state-dir", str(tmp_path))
    assert done.returncode == 10
    assert "tokenizer" in done.stderr


def test_an_unreachable_swarm_is_exit_code_11_with_a_reason_for_each_address(
    tmp_path: Path, text: Path
) -> None:
    """Each address is named with why it failed."""
    addresses = ("--initial-peers", NOBODY, "--initial-peers", "somewhere")
    done = dupt_peer("join", *addresses, "--corpus", str(text), *LISTEN, "--state-dir", str(tmp_path))
    assert done.returncode == 11
    assert f"{NOBODY}: connection refused" in done.stderr or "refused" in done.stderr
    assert "somewhere: not a multiaddr" in done.stderr
    assert not any(tmp_path.iterdir())


def test_a_missing_device_is_exit_code_13(text: Path, tmp_path: Path) -> None:
    """A GPU that is not there is reported before the swarm is even contacted."""
    done = dupt_peer(
        *("join", "--initial-peers", NOBODY, "--corpus", str(text)),
        *("--device", "cuda:63", *LISTEN, "--state-dir", str(tmp_path)),
    )
    assert done.returncode == 13
    assert "cuda:63" in done.stderr


def test_another_swarm_than_expected_is_exit_code_10(
    bootstrap: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    """`--swarm` pins the swarm."""
    done = dupt_peer(
        *("join", "--initial-peers", bootstrap["address"], "--swarm", "other-0123456789ab"),
        *("--corpus", str(text), *LISTEN, "--state-dir", str(tmp_path)),
    )
    assert done.returncode == 10
    assert bootstrap["swarm_id"] in done.stderr


def oracles_of(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [peer for peer in status["peers"] if peer["role"] == "oracle"]


def status_after_a_round(address: str) -> dict[str, Any]:
    """Empty: an oracle has not published one with the other yet. Options come from the environment too."""
    status: dict[str, Any] = json.loads(
        dupt_peer("status", "--json", DUPT_PEER_STATUS_INITIAL_PEERS=address).stdout
    )
    received = [peer["round_received_bytes"] or 0 for peer in oracles_of(status)]
    return status if len(received) == 2 and min(received) > A_CONTRIBUTION else {}


def test_two_oracles_train_and_status_shows_them(
    bootstrap: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    """Two joins with nothing but an address average; status lists all peers, and what rounds cost them."""
    oracles = [
        start(
            *("join", "--initial-peers", bootstrap["address"], "--corpus", str(text), *LISTEN),
            *("--state-dir", str(tmp_path / name), "--name", name, "--json"),
        )
        for name in ("one", "two")
    ]
    for oracle in oracles:
        wait_for_line(oracle, "last round averaged with 1 other")
    # What a screen shows already may reach the DHT a little later.
    status = wait_until(partial(status_after_a_round, bootstrap["address"]), "figures of a round", pause=0.0)
    table = dupt_peer("status", "--initial-peers", bootstrap["address"])
    for oracle in oracles:
        oracle.terminate()
    summaries = [json.loads(oracle.communicate(timeout=30)[0]) for oracle in oracles]

    assert {"swarm_id", "round", "loss", "tokens_total", "peers"} <= status.keys()
    assert status["swarm_id"] == bootstrap["swarm_id"]
    assert {peer["name"] for peer in status["peers"]} == {"", "one", "two"}
    figures = ("round", "tokens_total", "tokens_per_second", "loss", "heldout_loss")
    expected = {"peer_id", *figures, "state_digest"}
    assert all(expected <= peer.keys() for peer in status["peers"])
    for peer in oracles_of(status):
        assert peer["round_sent_bytes"] > A_CONTRIBUTION
        assert 0 <= peer["round_waiting_seconds"] <= peer["waiting_seconds"]
        assert 0 < peer["utilization"] <= 1
    assert "utilization" in table.stdout
    assert bootstrap["swarm_id"] in table.stdout
    assert "one" in table.stdout
    assert [oracle.returncode for oracle in oracles] == [0, 0]
    assert all(summary["rounds"] >= 1 for summary in summaries)


@pytest.mark.system  # for its length; network/rounds/test_follow.py shows where it goes
def test_an_oracle_comes_back_to_one_that_went_on_alone(
    bootstrap: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    """For more rounds than members are remembered: it goes on from there, and they average again."""

    def join(name: str) -> subprocess.Popen[str]:
        to = ("--initial-peers", bootstrap["address"], "--corpus", str(text), *LISTEN)
        return start("join", *to, "--state-dir", str(tmp_path / name), "--name", name)

    def round_of_swarm() -> int:
        status = dupt_peer("status", "--json", "--initial-peers", bootstrap["address"])
        assert status.returncode == 0, status.stderr
        return int(json.loads(status.stdout)["round"])

    oracles = [join("stays"), join("leaves")]
    try:
        for oracle in oracles:
            wait_for_line(oracle, "last round averaged with 1 other")
        oracles[1].terminate()
        oracles[1].communicate(timeout=30)
        far = round_of_swarm() + MEMORY_ROUNDS
        wait_until(lambda: round_of_swarm() > far, "the other is far ahead")
        oracles[1] = join("leaves")
        wait_for_line(oracles[1], "last round averaged with 1 other")
    finally:
        for oracle in oracles:
            oracle.terminate()
            oracle.communicate(timeout=30)


def test_an_oracle_stops_after_the_rounds_asked_for(
    bootstrap: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    """`--rounds 4` ends by itself, exit code 0, with a summary that shows what was learnt of all corpora."""
    wiki = tmp_path / "dewiki-20260101-pages-articles.xml.bz2"
    write_dump(wiki, *(page(path.stem, path.read_text()) for path in text.iterdir()))
    done = dupt_peer(
        *("join", "--initial-peers", bootstrap["address"], "--corpus", str(text), "--corpus", f"{wiki}:0.3"),
        *(*LISTEN, "--state-dir", str(tmp_path / "oracle"), "--rounds", "4", "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert "fetching the state: 100 %" in done.stderr
    assert f"{text}, {wiki}:0.3: " in done.stderr
    summary = json.loads(done.stdout)
    assert summary["rounds"] == 4
    assert summary["heldout_loss_after"] < summary["heldout_loss_before"]
    assert summary["bits_per_byte_after"] < summary["bits_per_byte_before"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_an_oracle_soon_with_a_checkpoint(
    bootstrap: dict[str, Any], text: Path, tmp_path: Path, number: int, code: int
) -> None:
    """Ctrl-C and SIGTERM: checkpoint saved, exit code 130 and 0, nothing left."""
    oracle = start(
        *("join", "--initial-peers", bootstrap["address"], "--corpus", str(text), *LISTEN),
        *("--state-dir", str(tmp_path / "oracle")),
    )
    wait_for_line(oracle, "last round averaged")
    began = time.monotonic()
    oracle.send_signal(number)
    oracle.communicate(timeout=30)
    assert oracle.returncode == code
    assert time.monotonic() - began < STOP_SECONDS
    [checkpoint] = (tmp_path / "oracle" / bootstrap["swarm_id"]).glob("checkpoint-*")
    files = {path.name for path in checkpoint.iterdir()}
    assert files == {"oracle.safetensors", "replica.safetensors", "final"}
