"""`dupt-model verify`, as people run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dupt_swarm.disk.folders import CHAIN_FILE
from dupt_swarm.learning.objectives import first_model
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.signed_words import Words
from dupt_swarm.replica.storage import save_state
from tests.support.kept_rounds import TOKENS, KeptRounds
from tests.support.programs import dupt_model
from tests.support.saved_models import write_model
from tests.support.signed_records import fresh_keys


@pytest.fixture
def kept(tmp_path: Path) -> KeptRounds:
    """A model folder of two rounds, the second of which is strong."""
    manifest = write_model(tmp_path / "model").manifest
    first = first_state(manifest, list(first_model(manifest).parameters()))
    rounds = KeptRounds.from_round_0(manifest, fresh_keys(1), first).go_on(1)
    save_state(rounds.states[-1], tmp_path / "model" / "replica.safetensors")
    put(tmp_path, rounds, rounds.chain())
    return rounds


def put(folder: Path, kept: KeptRounds, chain: Chain) -> None:
    """The model's chain."""
    ChainFile(folder / "model" / CHAIN_FILE, Words(kept.manifest.swarm_id)).write(chain)


def test_a_sound_model(kept: KeptRounds, tmp_path: Path) -> None:
    """What it is, for people and for programs; exported too."""
    told = dupt_model("verify", str(tmp_path / "model"))
    assert (told.returncode, told.stderr) == (0, "")
    [peer] = kept.ids
    assert told.stdout.splitlines() == [
        f"{tmp_path / 'model'}: verified, of swarm {kept.manifest.swarm_id}",
        "  rounds   0 to 2",
        "  links    1 strong, 1 weak (to round 1)",
        f"  tokens   {2 * TOKENS}",
        f"  state    {kept.states[-1].digest}",
        "  peers    1 peer contributed",
        f"    {peer}: 2 rounds, {2 * TOKENS} tokens",
    ]
    ended = dupt_model("export", str(tmp_path / "model"), str(tmp_path / "out"))
    assert "chain.jsonl" in ended.stderr
    told = dupt_model("verify", str(tmp_path / "out"), "--json")
    assert (told.returncode, told.stderr) == (0, "")
    assert json.loads(told.stdout) == {
        "model": str(tmp_path / "out"),
        "swarm_id": kept.manifest.swarm_id,
        "state_digest": kept.states[-1].digest,
        "round": 2,
        "tokens": 2 * TOKENS,
        "begins": 0,
        "weak_rounds": [1],
        "contributors": [
            {
                "peer_id": peer,
                "rounds": 2,
                "tokens": 2 * TOKENS,
                "dropped": 0,
                "first_round": 1,
                "last_round": 2,
            }
        ],
        "unchecked": [],
    }


def test_what_is_not_known_is_said(kept: KeptRounds, tmp_path: Path) -> None:
    """On stderr, while what is known of it is sound."""
    put(tmp_path, kept, kept.chain().copied_from(kept.states[1].digest))
    told = dupt_model("verify", str(tmp_path / "model"))
    assert told.returncode == 0
    assert "warning: not checked: the rounds up to round 1, with whose state the chain begins" in told.stderr
    assert "  rounds   1 to 2\n" in told.stdout


def test_what_is_wrong_has_its_exit_code(kept: KeptRounds, tmp_path: Path) -> None:
    """A message with a remedy, nothing on stdout, and no success."""
    put(tmp_path, kept, kept.chain(1))
    told = dupt_model("verify", str(tmp_path / "model"))
    assert (told.returncode, told.stdout) == (1, "")
    assert "error: " in told.stderr and "it ends at round 1, and the model is of round 2" in told.stderr
    assert "take the model from its swarm again with `dupt-model pull`" in told.stderr
    for given, message in (("1" * 64, "begins with the state"), ("1", "not a digest: 64 hexadecimal digits")):
        put(tmp_path, kept, kept.chain())
        told = dupt_model("verify", str(tmp_path / "model"), "--initial-digest", given)
        assert told.returncode == (1 if len(given) == 64 else 2)
        assert message in told.stderr
    told = dupt_model("verify", str(tmp_path / "nowhere"))
    assert told.returncode == 1
    assert "nowhere: no folder there; give a folder that `dupt-model pull` or `export` wrote" in told.stderr
