"""The demo, as `make demo` runs it but shorter."""

import os
import subprocess
from pathlib import Path

import pytest

from dupt_swarm import SavedModel
from dupt_swarm.errors import UsageError
from dupt_swarm.learning.export.origin import ORIGIN_FILE, Origin
from peers import demo
from tests.support.programs import BIN, dupt_peer
from tests.support.saved_models import write_model


@pytest.mark.usefixtures("nothing_left")
def test_the_demo_shows_three_oracles_learning_and_leaves_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends by itself with a summary in which every oracle has learnt, and a line that can be pasted.

    What its user has set for peers of other swarms is none of its business.
    """
    monkeypatch.chdir(tmp_path)
    done = dupt_peer("demo", "--rounds", "2", DUPT_PEER_JOIN_SWARM="other-000000000000")
    output = done.stdout
    assert done.returncode == 0, done.stderr
    assert "the swarm's page: http://127.0.0.1:" in output
    rows = [line.split() for line in output.splitlines() if "→" in line]
    assert sorted(row[0] for row in rows) == ["library", "manual", "packages"]
    assert all(float(row[5]) < float(row[3]) for row in rows), "the held-out loss fell"
    assert all(float(row[8]) < float(row[6]) for row in rows), "and so did the bits per byte"

    model = SavedModel.load(tmp_path / "demo-model")
    assert model.state.round >= 1
    assert model.origin is not None
    assert model.origin.peers == ("library", "manual", "packages")
    line = output.splitlines()[-1]
    # Without drawing, lest the first words drawn end the text.
    line += " --temperature 0"
    pasted = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120)
    assert pasted.returncode == 0, pasted.stderr
    assert len(pasted.stdout) > 50


def test_only_an_earlier_demo_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything else that is there stays, and that is said before anything starts."""
    one = write_model(tmp_path / "peer")
    demo.check_place(tmp_path / "new" / "place")
    with pytest.raises(UsageError, match="not an empty folder"):
        demo.check_place(one.folder)  # a model, but of another swarm
    done = dupt_peer("demo", "--model", str(one.folder))
    assert (done.returncode, done.stdout) == (2, "")
    monkeypatch.setattr(demo, "SWARM_NAME", one.manifest.name)
    for _ in range(2):
        demo.check_place(tmp_path / "kept")
        demo.keep_model([one.folder], tmp_path / "kept")
    assert SavedModel.load(tmp_path / "kept").state.digest == one.state.digest


def test_an_earlier_demo_gives_way_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new model is where the link leads; the link stays."""
    one = write_model(tmp_path / "peer")
    monkeypatch.setattr(demo, "SWARM_NAME", one.manifest.name)
    demo.keep_model([one.folder], tmp_path / "kept")
    (tmp_path / "kept" / "chain.jsonl").unlink(missing_ok=True)
    (tmp_path / "kept" / "tokenizer.json").unlink()
    link = tmp_path / "link"
    link.symlink_to("kept")
    demo.check_place(link)
    demo.keep_model([one.folder], link)
    assert link.is_symlink()
    assert SavedModel.load(tmp_path / "kept").state.digest == one.state.digest


def test_nothing_goes_with_an_earlier_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what else lies in its folder, nor the model of somebody's own swarm with that name."""
    one = write_model(tmp_path / "peer")
    monkeypatch.setattr(demo, "SWARM_NAME", one.manifest.name)
    demo.keep_model([one.folder], tmp_path / "kept")
    (tmp_path / "kept" / "fine-tuned").mkdir()
    with pytest.raises(UsageError, match="not an empty folder"):
        demo.check_place(tmp_path / "kept")
    (tmp_path / "kept" / "fine-tuned").rmdir()
    demo.check_place(tmp_path / "kept")
    origin = tmp_path / "kept" / ORIGIN_FILE
    pulled = Origin.load(origin).model_copy(update={"peers": ("ada", "bob")})
    origin.write_bytes(pulled.to_bytes())
    with pytest.raises(UsageError, match="not an empty folder"):
        demo.check_place(tmp_path / "kept")


def test_the_line_suits_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name where that finds this program, else by its path; what a shell would split is quoted."""
    line = "generate 'a b' --prompt 'Python is'"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.defpath)
    assert demo.generate_line(Path("a b")) == f"{BIN / 'dupt-model'} {line}"
    monkeypatch.setenv("PATH", f"{BIN}:{os.defpath}")
    assert demo.generate_line(Path("a b")) == f"dupt-model {line}"
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.chdir(BIN.parents[1])
    assert demo.generate_line(Path("a b")) == f"{BIN.relative_to(BIN.parents[1])}/dupt-model {line}"
