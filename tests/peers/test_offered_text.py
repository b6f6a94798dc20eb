"""A swarm that offers text: volunteers type an address, and nothing else."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dupt_swarm.manifest import Manifest
from dupt_swarm.offer.shard_list import ShardList, missing_in
from tests.support.programs import LISTEN, dupt_peer, first_peer, start, wait_for_line
from tests.support.smaller import make_smaller
from tests.support.texts import library

pytestmark = pytest.mark.usefixtures("nothing_left")

ABOUT = (
    *("--offer-title", "The library", "--offer-source", "https://example.org"),
    *("--offer-licence", "PSF-2.0"),
)


@pytest.fixture(scope="module")
def offering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of a swarm that offers text, made by `new`, with a smaller model."""
    folder = tmp_path_factory.mktemp("offering")
    text = library(folder / "text", "argparse", "inspect", "typing", "tarfile", "subprocess", "ast")
    done = dupt_peer("new", str(folder / "run.toml"), "--offer", str(text), *ABOUT)
    assert done.returncode == 0, done.stderr
    assert f"in {folder / 'offer'}" in done.stderr
    make_smaller(folder / "run.toml", tokens_per_round=4096, growth=1.0)
    return folder / "run.toml"


def list_of(manifest: Path) -> ShardList:
    digest = Manifest.load(manifest).offer.digest
    return ShardList.read((manifest.with_name("offer") / digest).read_bytes())


def held_by(state: Path) -> set[str]:
    """What an oracle has of the offer."""
    return {path.name for path in state.glob("*/offer/*")}


def join(address: str, state: Path, *more: str, corpus: str = "") -> subprocess.Popen[str]:
    """Nothing is typed but an address; the rest is for a test machine."""
    options = (*LISTEN, "--state-dir", str(state), "--name", state.name, "--json", *more)
    return start("join", "--initial-peers", address, *options, DUPT_PEER_JOIN_CORPUS=corpus)


@contextmanager
def joined(address: str, *states: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Oracles that run; at the end they are stopped."""
    oracles = [join(address, state) for state in states]
    try:
        yield oracles
    finally:
        for oracle in oracles:
            oracle.terminate()
        for oracle in oracles:
            oracle.wait(timeout=60)


def address_of(name: str, status: dict[str, Any]) -> str:
    """Where others find the peer with this name."""
    peer = next(peer for peer in status["peers"] if peer["name"] == name)
    return f"{peer['addresses'][0]}/p2p/{peer['peer_id']}"


def test_volunteers_type_nothing_but_an_address(offering: Path, tmp_path: Path) -> None:
    """They train on the swarm's text, and average; who comes when the first peer is gone does so too."""
    listed, (ada, bob, late) = list_of(offering), (tmp_path / name for name in ("ada", "bob", "late"))
    with first_peer(offering, tmp_path / "first") as about:
        assert about["join"].endswith(f"--swarm {about['swarm_id']}")
        with joined(about["address"], ada, bob) as oracles:
            for oracle in oracles:
                wait_for_line(oracle, "The library (PSF-2.0): ")
                wait_for_line(oracle, "last round averaged with 1 other")
            table = dupt_peer("status", "--initial-peers", about["address"])
            found = dupt_peer("status", "--initial-peers", about["address"], "--json")
            about["process"].terminate()
            about["process"].wait(timeout=60)
            with joined(address_of("ada", json.loads(found.stdout)), late) as [newcomer]:
                wait_for_line(newcomer, "last round averaged with 2 others")
    oracles.append(newcomer)
    summaries = [json.loads(oracle.communicate()[0]) for oracle in oracles]
    assert "text for all: The library (PSF-2.0), " in table.stdout
    assert "tokens, from https://example.org" in table.stdout
    assert [oracle.returncode for oracle in oracles] == [0, 0, 0]
    assert all(summary["rounds"] > 0 for summary in summaries)
    shards = {shard.digest for shard in listed.shards}
    for state in (ada, bob, late):
        assert held_by(state) >= {listed.digest, listed.held_out.digest}
        assert held_by(state) & shards
        assert held_by(state) <= {listed.digest, listed.held_out.digest} | shards


def test_a_corpus_of_ones_own_beside_it(offering: Path, text: Path, tmp_path: Path) -> None:
    """Both are trained on, by their weights; an evaluator then measures on what is held out for all."""
    with first_peer(offering, tmp_path / "first") as about:
        address = about["address"]
        oracle = join(
            address, tmp_path / "o", "--corpus", str(text), "--corpus", "swarm:0.5", "--rounds", "2"
        )
        _, errors = oracle.communicate(timeout=240)
        assert oracle.returncode == 0, errors
        assert f"{text}, swarm:0.5: " in errors
        options = ("--initial-peers", address, *LISTEN, "--state-dir", str(tmp_path / "e"))
        measured = dupt_peer("evaluate", *options, "--once", "--json")
        assert measured.returncode == 0, measured.stderr
    found = json.loads(measured.stdout)
    held_out = list_of(offering).held_out
    assert found["dataset"] == "held-out"
    assert 0.9 * held_out.tokens < found["tokens"] < held_out.tokens
    assert not held_by(tmp_path / "e") & {shard.digest for shard in list_of(offering).shards}


def test_an_empty_corpus_of_the_image_means_the_swarms_text(offering: Path, tmp_path: Path) -> None:
    """There /corpus is a folder whether something is mounted on it or not."""
    (tmp_path / "corpus").mkdir()
    with first_peer(offering, tmp_path / "first") as about:
        corpus = str(tmp_path / "corpus")
        oracle = join(about["address"], tmp_path / "o", "--rounds", "4", corpus=corpus)
        output, errors = oracle.communicate(timeout=240)
    assert oracle.returncode == 0, errors
    assert "The library (PSF-2.0): " in errors
    summary = json.loads(output)
    assert summary["heldout_loss_after"] < summary["heldout_loss_before"]


def test_a_first_peer_without_the_text_says_so(offering: Path, tmp_path: Path) -> None:
    """Somebody copied the manifest and the tokenizer only: others must have the text."""
    for name in ("run.toml", "tokenizer.json"):
        (tmp_path / name).write_bytes(offering.with_name(name).read_bytes())
    process = start("bootstrap", str(tmp_path / "run.toml"), *LISTEN, "--state-dir", str(tmp_path / "state"))
    wait_for_line(
        process, f"note: this swarm offers text, and {tmp_path / 'offer'} lacks its list; copy there"
    )
    assert process.stdout is not None
    # Then it is there; earlier, Python may just be trying out the temporary folder.
    assert process.stdout.readline()
    process.terminate()
    process.communicate(timeout=30)


def test_half_of_a_copied_offer_is_found_out(offering: Path, tmp_path: Path) -> None:
    """By the list's digest, and by the sizes of shards."""
    folder, manifest = tmp_path / "offer", Manifest.load(offering)
    shutil.copytree(offering.with_name("offer"), folder)
    assert missing_in(folder, manifest) == ""
    shards = list_of(offering).shards
    (folder / shards[0].digest).write_bytes(b"half")
    (folder / shards[1].digest).unlink()
    assert missing_in(folder, manifest) == f"2 of its {len(shards) + 1} shards"
    (folder / manifest.offer.digest).write_bytes(b"{}")
    assert missing_in(folder, manifest) == "its list"


def test_new_leaves_nothing_in_the_way_of_the_next_try(text: Path, tmp_path: Path) -> None:
    """Too little text, or a title that is too long: what was wrong is said, and can be put right."""
    (tmp_path / "short.txt").write_text("bear")
    run = str(tmp_path / "run.toml")
    done = dupt_peer("new", run, "--corpus", str(text), "--offer", str(tmp_path / "short.txt"), *ABOUT)
    assert done.returncode == 1
    assert "give more text" in done.stderr
    long = ("--offer-title", "A" * 201, "--offer-licence", "CC0")
    done = dupt_peer("new", run, "--offer", str(text), *long)
    assert done.returncode == 2
    assert "at most 200 characters" in done.stderr
    assert not (tmp_path / "offer").exists()
    done = dupt_peer("new", run, "--offer", str(text), *ABOUT)
    assert done.returncode == 0, done.stderr


def test_a_swarm_that_offers_nothing_says_what_corpus_takes(
    bootstrap: dict[str, Any], tmp_path: Path
) -> None:
    """One line, exit code 2, and nothing is left on the disk."""
    options = ("--initial-peers", bootstrap["address"], *LISTEN, "--state-dir", str(tmp_path / "o"))
    for command in ("join", "evaluate"):
        done = dupt_peer(command, *options)
        assert done.returncode == 2
        assert "offers no text; give your own: a file, folder or glob of .txt" in done.stderr
        assert "(--corpus)" in done.stderr
        assert not (tmp_path / "o").exists()


def test_check_tells_what_there_is_to_train_on(offering: Path, manifest: Path, tmp_path: Path) -> None:
    """What the swarm offers, or that it offers nothing; without a swarm nobody can know."""
    state = ("--state-dir", str(tmp_path))
    for options, said in (
        (("--manifest", str(offering)), "the swarm's text: The library (PSF-2.0), "),
        (("--manifest", str(manifest)), "none of your own, and this swarm offers none"),
        ((), "none of your own"),
    ):
        assert said in dupt_peer("check", *options, *LISTEN, *state).stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--offer", "{text}"), "say under which licence they may"),
        (("--offer-title", "A", "--corpus", "{text}"), "it takes text to offer"),
        (("--offer", "{text}/none", *ABOUT), "no such file"),
        (("--offer", "{text}", *ABOUT, "--task", "classification"), "labelled examples"),
        ((), "or to offer"),
    ],
)
def test_new_refuses_what_cannot_be_offered(
    options: tuple[str, ...], said: str, text: Path, tmp_path: Path
) -> None:
    """Before anything is written."""
    run = tmp_path / "run" / "run.toml"
    done = dupt_peer("new", str(run), *(option.format(text=text) for option in options))
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert not run.parent.exists()
