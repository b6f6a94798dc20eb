"""A private oracle among real peers."""

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from dupt_swarm.privacy.accountant import epsilon
from dupt_swarm.privacy.ledger import Ledger
from dupt_swarm.settings import PrivacySettings
from tests.support.loopback import free_port
from tests.support.programs import LISTEN, dupt_peer, start, wait_for_line

pytestmark = pytest.mark.usefixtures("nothing_left")

NOISE = PrivacySettings.noise


def test_a_private_oracle_averages_and_says_what_it_told(
    bootstrap: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    """Log, health, metrics and summary have ε; the others see no losses of it; a restart counts on."""
    metrics = f"127.0.0.1:{free_port()}"

    def join(name: str, *more: str) -> list[str]:
        command = ["join", "--initial-peers", bootstrap["address"], "--corpus", str(text), *LISTEN]
        return [*command, "--state-dir", str(tmp_path / name), "--name", name, "--json", *more]

    oracles = [start(*join("open")), start(*join("private", "--private", "--metrics-addr", metrics))]
    for oracle in oracles:
        wait_for_line(oracle, "last round averaged with 1 other")
    wait_for_line(oracles[1], "private ε")
    health = dupt_peer("status", "--health", "--state-dir", str(tmp_path / "private"))
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=5) as response:
        scrape = response.read().decode()
    shown = dupt_peer("status", "--json", "--initial-peers", bootstrap["address"])
    for oracle in oracles:
        oracle.terminate()
    openly, privately = (json.loads(oracle.communicate(timeout=30)[0]) for oracle in oracles)

    assert [oracle.returncode for oracle in oracles] == [0, 0]
    assert "; ε " in health.stdout
    assert " at δ 1e-05 after " in health.stdout
    assert re.search(r"^dupt_peer_privacy_epsilon [\d.]*[1-9]", scrape, re.MULTILINE)
    assert "dupt_peer_privacy_delta 1e-05" in scrape
    assert re.search(r"^dupt_peer_private_contributions_total [1-9]", scrape, re.MULTILINE)
    records = {peer["name"]: peer for peer in json.loads(shown.stdout)["peers"]}
    assert records["open"]["loss"] is not None
    assert records["open"]["heldout_loss"] is not None
    unsaid = ("loss", "heldout_loss", "heldout_bits_per_byte", "heldout_accuracy")
    assert {records["private"].get(name) for name in unsaid} == {None}

    [ledger] = (tmp_path / "private").glob("*/privacy.json")
    made = Ledger(ledger).made
    assert made[NOISE] >= privately["rounds"] >= 1
    assert privately["epsilon"] == epsilon(made, 1e-5)
    assert openly["epsilon"] is None

    refused = dupt_peer(*join("private"))
    assert refused.returncode == 2
    assert "were private so far" in refused.stderr
    limit = epsilon({NOISE: made[NOISE] + 2}, 1e-5) + 1e-6
    again = dupt_peer(*join("private", "--private", "--private-epsilon", str(limit)))
    assert again.returncode == 0, again.stderr
    assert "the privacy budget is spent" in again.stderr
    assert Ledger(ledger).made == {NOISE: made[NOISE] + 2}
    assert json.loads(again.stdout)["epsilon"] <= limit
