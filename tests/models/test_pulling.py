"""Taking the model of a running swarm away: real peers on loopback, the puller an observer among them."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dupt_swarm import GPT, SavedModel, pull, verify
from dupt_swarm.errors import NodeError, UnreachableError, UsageError
from dupt_swarm.learning.objectives import first_model
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.messages import Downloading
from dupt_swarm.settings import NodeSettings
from tests.support.driven_swarm import Cluster
from tests.support.loopback import NOBODY
from tests.support.programs import dupt_model
from tests.support.saved_models import small_manifest
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")
EVIL, SHOWN = "\x1b[2J<b>\u202eeve", "�[2J<b>�eve"


def small() -> tuple[Manifest, list[Tensor]]:
    """The manifest of a very small model, and its first parameters."""
    manifest = small_manifest()
    return manifest, list(first_model(manifest).parameters())


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Cluster]:
    """Two oracles, before their first round."""
    with Cluster(tmp_path, *small(), names=("ada", EVIL)) as cluster:
        yield cluster


def test_the_newest_state_and_the_one_before(swarm: Cluster, tmp_path: Path) -> None:
    """The swarm's digest, weights that load, an origin with names; for other rounds, which can be had."""
    one, two = swarm.end_round(), swarm.end_round()
    peers = {peer.peer_id for peer in swarm.first.view.peers}
    model = pull(swarm.first.addresses, tmp_path / "model")
    assert model.state.digest == two.digest
    again = SavedModel.load(tmp_path / "model")
    assert (again.state.digest, again.origin) == (two.digest, model.origin)
    built = again.build(torch.device("cpu"))
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in built.parameters()])
    assert torch.equal(flat, swarm.oracles[0].anchor)
    assert not built.training
    assert again.origin is not None
    assert (again.origin.swarm_id, again.origin.round) == (swarm.first.manifest.swarm_id, 2)
    assert (again.origin.swarm_tokens, again.origin.peers) == (
        two.swarm_tokens,
        tuple(sorted(("ada", SHOWN))),
    )
    names = {"manifest.json", "tokenizer.json", "replica.safetensors", "origin.json", "chain.jsonl"}
    assert {path.name for path in (tmp_path / "model").iterdir()} == names
    assert {peer.peer_id for peer in swarm.first.view.peers} == peers, "nobody noticed"

    found = verify(tmp_path / "model")
    assert (found.state_digest, found.begins, found.links, found.unchecked) == (two.digest, 0, 2, ())
    assert {each.peer_id for each in found.contributors} == {each.peer_id for each in swarm.oracles}

    assert pull(swarm.first.addresses, tmp_path / "before", round=1).state.digest == one.digest
    assert verify(tmp_path / "before").state_digest == one.digest
    # The first one too, as the oracles have just asked for it.
    with pytest.raises(NodeError, match=r"state of round 9 is not to be had .*now of rounds: 0, 1, 2$"):
        pull(swarm.first.addresses, tmp_path / "future", round=9)
    assert not list(tmp_path.glob("*future*"))

    told = dupt_model(
        "pull", "--initial-peers", swarm.first.addresses[0], str(tmp_path / "by-hand"), "--json"
    )
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert (found["state_digest"], found["folder"]) == (two.digest, str(tmp_path / "by-hand"))
    assert "fetching the state: 100 %" in told.stderr
    assert "chain" not in told.stderr
    told = dupt_model("verify", str(tmp_path / "by-hand"))
    assert (told.returncode, told.stderr) == (0, "")


def test_a_donor_dies_in_the_middle(tmp_path: Path) -> None:
    """The others give what it owed."""
    shape = {"width": 256, "hidden_width": 1024, "layers": 4}
    manifest = small_manifest(model=shape)
    with Cluster(tmp_path, manifest, list(GPT(manifest.model).parameters())) as swarm:
        swarm.wait_for(swarm.first.state, at_work=0)
        wait_until(lambda: len(swarm.first.view.holders(swarm.first.state.digest)) == 3)
        victim = swarm.oracles[0]._node._link._process
        seen: list[Downloading] = []

        def on_download(now: Downloading) -> None:
            seen.append(now)
            if victim.poll() is None and now.bytes_done > 0:
                os.killpg(victim.pid, signal.SIGKILL)

        slowly = NodeSettings("observer", max_download=6e6)
        model = pull(swarm.first.addresses, tmp_path / "model", settings=slowly, on_download=on_download)
        died = next(now for now in seen if now.bytes_done > 0)
        assert died.bytes_done < died.bytes_total
        assert model.state.digest == swarm.first.state.digest


def test_what_is_refused(tmp_path: Path) -> None:
    """A folder that holds something stays as it is; who is out of reach has its exit code; nothing stays."""
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("precious")
    for place in (taken, taken / "mine.txt"):
        with pytest.raises(UsageError, match="not an empty folder; choose another"):
            pull([NOBODY], place)
    with pytest.raises(UsageError, match="at least one peer"):
        pull([], tmp_path / "model")
    with pytest.raises(UnreachableError):
        pull([NOBODY], tmp_path / "model")
    done = dupt_model("pull", "--initial-peers", NOBODY, str(tmp_path / "model"))
    assert done.returncode == 11
    assert "--initial-peers" in done.stderr
    done = dupt_model("pull", "--initial-peers", NOBODY, str(taken))
    assert (done.returncode, done.stdout) == (2, "")
    assert [path.name for path in tmp_path.iterdir() if path.name != "state"] == ["taken"]
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
