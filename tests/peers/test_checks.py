"""What `dupt-peer check` makes of what it finds."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dupt_swarm.disk.offered import TEXT_BYTES
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.room import Saving
from dupt_swarm.manifest import Objective
from dupt_swarm.manifest.tables import Offer
from dupt_swarm.node.messages import Answer, Checkup
from dupt_swarm.settings import OracleSettings, WeightedCorpus
from dupt_swarm.version import VERSION
from peers.checks import machine
from peers.checks.footprint import Footprint
from peers.checks.initial_peers import check_manifest, check_network, check_peers
from peers.checks.report import FAILURE, MISMATCH, UNREACHABLE, UNSUITABLE, Check, exit_code, to_json
from peers.screen.words import plural
from tests.support.invented import MANIFEST as INVENTED
from tests.support.tasks import small_task, two_languages, write_lines
from tests.support.tiny import tiny_manifest

MANIFEST = tiny_manifest()
ADDRESS, OTHER = "/ip4/10.0.0.1/tcp/1/p2p/Q", "/ip4/10.0.0.2/tcp/1/p2p/R"


def answer(**changes: object) -> Answer:
    """Of a peer with which all is well."""
    fields = {"version": VERSION, "manifest": MANIFEST.canonical_bytes(), "ahead_seconds": 0.0}
    return Answer("", **(fields | changes))  # type: ignore[arg-type]


def failing(*codes: int) -> list[Check]:
    return [Check("x", False, "", exit_code=code) for code in codes]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((), 0),
        ((FAILURE,), 1),
        ((FAILURE, UNSUITABLE), 13),
        ((UNSUITABLE, UNREACHABLE, FAILURE), 11),
        ((UNREACHABLE, MISMATCH), 10),
    ],
)
def test_the_gravest_problem_gives_the_exit_code(codes: tuple[int, ...], expected: int) -> None:
    """Manifest, then reachability, then device, then all else; what was not looked at counts for nothing."""
    assert exit_code([Check("a", True, ""), Check("b", None, ""), *failing(*codes)]) == expected


def test_each_check_is_a_line_with_a_remedy() -> None:
    """A mark, the name, what was found, and what to do about it; the same in JSON."""
    checks = [
        Check("disk", True, "20 GB free"),
        Check("clock", False, "5 s behind", "set it"),
        Check("a", None, "b"),
    ]
    assert [str(check) for check in checks] == ["✓ disk: 20 GB free", "✗ clock: 5 s behind; set it", "– a: b"]
    tree = json.loads(to_json(checks))
    assert tree["ok"] is False
    assert tree["checks"][1] == {"name": "clock", "ok": False, "detail": "5 s behind", "remedy": "set it"}


def test_a_dead_address_is_grave_only_if_no_other_answers() -> None:
    """Each address has its own verdict."""
    dead, alive = Answer("connection refused"), answer()
    alone = check_network(Checkup({}, "", {ADDRESS: dead}, {}))
    assert exit_code(alone) == UNREACHABLE
    assert "connection refused" in str(alone[-1])
    both = {
        check.name: check.ok for check in check_network(Checkup({}, "", {ADDRESS: dead, OTHER: alive}, {}))
    }
    assert both == {"libp2p": True, f"peer {ADDRESS}": None, f"peer {OTHER}": True, "reachable": None}


def test_a_peer_that_is_not_invited_is_rejected() -> None:
    """Where the swarm admits by invitation there is a line for it; a rejection has its own exit code."""
    answers = {ADDRESS: answer()}
    found = {
        rejection: {check.name: check for check in check_network(Checkup({}, "", answers, {}, rejection))}
        for rejection in (None, "", "it has expired")
    }
    assert "invitation" not in found[None]
    assert found[""]["invitation"].ok is True
    assert (found["it has expired"]["invitation"].ok, exit_code([*found["it has expired"].values()])) == (
        False,
        12,
    )
    assert "reachable" not in found["it has expired"]


def test_a_port_that_nobody_can_dial_is_no_failure() -> None:
    """Others relay; it is said which port, why, and what would help."""
    dialled = {"/ip4/0.0.0.0/tcp/5": "no answer within 4 s", "/ip4/0.0.0.0/tcp/6": ""}
    checks = check_network(Checkup({}, "", {ADDRESS: answer()}, dialled))
    assert exit_code(checks) == 0
    lines = [str(check) for check in checks]
    assert any(
        line.startswith("– reachable /ip4/0.0.0.0/tcp/5: no answer within 4 s; others reach")
        for line in lines
    )
    assert "✓ reachable /ip4/0.0.0.0/tcp/6: from outside" in lines


def test_a_taken_port_and_a_daemon_that_does_not_start_are_failures() -> None:
    """Each with its reason."""
    checks = check_network(
        Checkup({"/ip4/0.0.0.0/tcp/1": "taken", "/ip4/0.0.0.0/tcp/2": ""}, "no p2pd", {}, {})
    )
    assert [check.ok for check in checks] == [False, True, False]
    assert exit_code(checks) == FAILURE


@pytest.mark.parametrize(
    ("seconds", "ok", "words"),
    [
        (0.0, True, "within"),
        (2.9, True, "within"),
        (4.0, False, "4.0 s behind"),
        (-9.5, False, "9.5 s ahead of"),
    ],
)
def test_clocks_may_differ_by_three_seconds(seconds: float, ok: bool, words: str) -> None:
    """Beyond that peers refuse one another; the greatest difference counts."""
    clock = check_peers([answer(), answer(ahead_seconds=seconds)])[0]
    assert clock.ok is ok
    assert words in clock.detail


def test_a_peer_that_does_not_tell_the_time_is_no_failure() -> None:
    """Then the clock could not be looked at."""
    assert check_peers([answer(ahead_seconds=None)])[0].ok is None
    assert check_peers([]) == []


def test_another_version_is_named() -> None:
    """It is a mismatch, with the version to install."""
    version = check_peers([answer(), answer(version="9.9")])[1]
    assert (version.ok, version.exit_code) == (False, MISMATCH)
    assert str(version) == f"✗ version: `version` is {VERSION} here and 9.9 there; install dupt_swarm 9.9"


def test_another_manifest_is_named_by_the_key_that_differs() -> None:
    """Ours against theirs, theirs against one another, and the swarm that was expected."""
    other = tiny_manifest(inner={"learning_rate": 0.5})
    offer = answer(manifest=other.canonical_bytes())
    for check, known in (check_manifest(MANIFEST, [offer], ""), check_manifest(None, [answer(), offer], "")):
        assert (check.ok, check.exit_code, known) == (False, MISMATCH, MANIFEST)
        assert "inner.learning_rate" in check.detail
    check, _ = check_manifest(None, [answer()], "other-000000000000")
    assert (check.ok, check.remedy) == (False, "check --swarm")
    assert check_manifest(None, [answer()], "")[0].detail == MANIFEST.swarm_id
    assert check_manifest(None, [], "") == (
        Check("manifest", None, "not known", "give --manifest or --initial-peers"),
        None,
    )


def test_a_device_that_is_not_there_is_unsuitable() -> None:
    """With the remedy of `join`."""
    check, kind = machine.check_device("cuda:63")
    assert (check.ok, check.exit_code, kind) == (False, UNSUITABLE, "")
    assert "nvidia-smi" in check.detail


def test_a_model_that_does_not_fit_is_unsuitable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is needed and what there is are said, and that a smaller batch helps."""
    footprint = Footprint(device=16e9, node=9e9, disk=1e9)
    monkeypatch.setattr(machine, "free_memory", lambda: 20e9)
    [check] = machine.check_memory("cpu", [footprint])
    assert (check.ok, check.exit_code) == (False, UNSUITABLE)
    assert "about 25.6 GB needed, 20.0 GB free" in check.detail
    assert "--batch-size" in check.remedy
    monkeypatch.setattr(machine, "free_memory", lambda: 30e9)
    assert machine.check_memory("cpu", [footprint])[0].ok


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (24e9, "about 22.0 GB needed, 24.0 GB free"),
        (16e9, "about 14.0 GB needed, 16.0 GB free; moments wait"),
    ],
)
def test_what_gives_way_on_a_gpu_is_said(monkeypatch: pytest.MonkeyPatch, free: float, expected: str) -> None:
    """As `join` would have it on a card with so much memory, which is made up here."""
    footprints = [
        Footprint(device=22e9, node=9e9, disk=1e9),
        Footprint(device=14e9, node=17e9, disk=1e9, saving=Saving(offload=True)),
    ]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 80e9))
    monkeypatch.setattr(machine, "free_memory", lambda: 30e9)
    on_gpu, in_main = machine.check_memory("cuda:1", footprints)
    assert on_gpu.ok and in_main.ok
    assert on_gpu.detail.startswith(expected)
    assert ("17.6" in in_main.detail) == ("moments" in expected)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (8e9, 80e9))
    assert not machine.check_memory("cuda:1", footprints)[0].ok


def test_a_gpu_has_no_more_memory_than_training_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --gpu-memory its part of all counts, and what is free where that is less; the remedy names it."""
    footprints = [Footprint(device=22e9, node=9e9, disk=1e9)]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (60e9, 80e9))
    whole, half, quarter = (machine.check_memory("cuda:1", footprints, part)[0] for part in (1, 0.5, 0.25))
    assert (whole.ok, half.ok, quarter.ok) == (True, True, False)
    assert [check.detail.rpartition(", ")[2] for check in (whole, half, quarter)] == [
        "60.0 GB free",
        "40.0 GB free",
        "20.0 GB free",
    ]
    assert "--gpu-memory" in quarter.remedy


def test_a_container_has_no_more_memory_than_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of its control group counts, where there is one; a corpus read once takes none of it."""
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    whole = machine.free_memory()
    (tmp_path / "memory.current").write_text("400000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.free_memory() > whole / 2
    (tmp_path / "memory.max").write_text("1000000\n")
    assert machine.free_memory() == 600_000
    (tmp_path / "memory.stat").write_text("anon 50000\ninactive_file 300000\nactive_file 50000\n")
    assert machine.free_memory() == 900_000
    (tmp_path / "memory.max").write_text(f"{10**18}\n")
    assert machine.free_memory() < 10**17, "nor more than the machine has"


def test_what_is_there_already_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints and tokens of this swarm take the place of those that its folder holds."""
    (tmp_path / "run-0").mkdir()
    (tmp_path / "run-0" / "file").write_bytes(b"x" * 1_000_000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    assert machine.check_disk(tmp_path, "run-0", 900_000.0, None).ok
    assert not machine.check_disk(tmp_path, "run-1", 900_000.0, None).ok


@pytest.mark.parametrize(("tokens", "size"), [(1000, 2000), (10**12, TEXT_BYTES)])
def test_offered_text_takes_what_it_has_or_its_limit(tokens: int, size: int) -> None:
    """Two bytes for each token of a small vocabulary, as far as they are kept."""
    offer = Offer(digest="0" * 64, tokens=tokens, title="t", source="s", licence="l")
    manifest = INVENTED.model_copy(update={"offer": offer})
    assert machine.offered_bytes(OracleSettings(), manifest) == size


def test_the_disk_is_held_against_what_will_be_kept(tmp_path: Path) -> None:
    """Checkpoints and tokens, what is there already, and --max-disk; nothing is made."""
    state_dir = tmp_path / "not" / "yet"
    assert machine.check_disk(state_dir, "s-0", 1e6, None).ok
    assert machine.check_disk(state_dir, "", None, None).ok
    assert not state_dir.exists()
    full = machine.check_disk(state_dir, "s-0", 1e18, None)
    assert (full.ok, full.exit_code) == (False, FAILURE)
    assert "free some space" in full.remedy
    limited = machine.check_disk(state_dir, "s-0", 2e6, 1_000_000)
    assert limited.ok is False
    assert "--max-disk is 1.0 MB" in limited.detail
    (tmp_path / "file").write_text("")
    assert machine.check_disk(tmp_path / "file" / "below", "", None, None).ok is False


def test_a_corpus_is_read_before_it_is_needed(tmp_path: Path) -> None:
    """Its size is known, and what cannot be read is a failure."""
    (tmp_path / "a.txt").write_text("some text")
    assert machine.check_corpus(TextFiles(str(tmp_path)))[0].detail == "1 file, 9 bytes"
    (tmp_path / "b.txt").write_text("more")
    assert machine.check_corpus(TextFiles(str(tmp_path))) == (Check("corpus", True, "2 files, 13 bytes"), 13)
    assert machine.check_corpus(TextFiles(str(tmp_path / "missing")))[0].ok is False
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "c.txt").write_text("")
    assert machine.check_corpus(TextFiles(str(tmp_path / "empty")))[0].ok is False
    assert machine.token_bytes(3000, MANIFEST) == 2000


def test_examples_are_checked_for_the_task(tmp_path: Path) -> None:
    """A table with the task's columns is fine; one without is a failure that names the column."""
    manifest, _ = small_task(Objective(kind="classification", labels=["de", "en"]))
    table = write_lines(tmp_path / "rows.jsonl", two_languages(3, seed=1))
    [found], text_bytes = machine.check_data(OracleSettings(table), manifest)
    assert (found.ok, text_bytes) == (True, 0)
    assert found.detail.startswith("1 table for classification, ")
    [without], _ = machine.check_data(OracleSettings(table, columns={"text": "review"}), manifest)
    assert without.ok is False
    assert "no column `review`" in without.detail
    [as_text], _ = machine.check_data(OracleSettings(table, field="label"), MANIFEST)
    assert as_text.ok is True


def test_each_of_several_corpora_is_checked(tmp_path: Path) -> None:
    """Under its own name; for a task, and twice the same, they are a failure."""
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "text.txt").write_text("some text")
    (tmp_path / "b" / "bad.txt").write_bytes(b"\xff")
    both = [WeightedCorpus(tmp_path / name) for name in "ab"]
    checks, text_bytes = machine.check_data(OracleSettings(both), None)
    assert [(check.name, check.ok) for check in checks] == [
        (f"corpus {tmp_path / 'a'}", True),
        (f"corpus {tmp_path / 'b'}", None),
    ]
    assert text_bytes == 18
    assert "1 unreadable file left out" in checks[1].detail
    [twice], _ = machine.check_data(OracleSettings([both[0], both[0]]), None)
    assert twice.ok is False and "given twice" in twice.detail
    manifest, _ = small_task(Objective(kind="classification", labels=["de", "en"]))
    [of_task], _ = machine.check_data(OracleSettings(both), manifest)
    assert of_task.ok is False and "put the tables into one folder" in of_task.detail


def test_one_file_is_one() -> None:
    """And thousands are divided."""
    assert [plural(count, "file") for count in (0, 1, 1234)] == ["0 files", "1 file", "1,234 files"]
