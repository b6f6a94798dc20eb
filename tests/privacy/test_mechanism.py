"""A private oracle's way out: counted, clipped, and hidden by noise; and what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dupt_swarm.errors import FileError, UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.privacy.accountant import epsilon
from dupt_swarm.privacy.ledger import Ledger
from dupt_swarm.privacy.mechanism import Open, Private, build_mechanism
from dupt_swarm.privacy.scale import scale
from dupt_swarm.settings import PrivacySettings

NUMEL = 5000


@pytest.fixture
def manifest(make_manifest: Callable[..., Manifest]) -> Manifest:
    return make_manifest()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "privacy.json"


def private(manifest: Manifest, ledger: Path, **numbers: float) -> Private:
    return Private(PrivacySettings(**numbers), manifest, NUMEL, ledger)


def test_without_privacy_nothing_changes(manifest: Manifest, ledger: Path) -> None:
    """Contributions leave as they are, nobody counts, and no file is made."""
    mechanism, values = build_mechanism(None, manifest, NUMEL, ledger), torch.randn(NUMEL)
    given = values.clone()
    mechanism.release(values, 0)
    assert torch.equal(values, given)
    assert mechanism.spent is None
    assert not ledger.exists()


def test_every_contribution_counts(manifest: Manifest, ledger: Path) -> None:
    """ε is that of all so far, those of earlier sessions and of other noise included."""
    for number, noise in enumerate((10.0, 10.0, 3.0), start=1):
        mechanism = private(manifest, ledger, noise=noise)
        mechanism.release(torch.randn(NUMEL), 0)
        assert mechanism.spent.contributions == number
        assert mechanism.spent.epsilon == epsilon(Ledger(ledger).made, 1e-5) > 0


def test_the_bound_follows_the_manifest(manifest: Manifest, ledger: Path) -> None:
    """Norms are at most what the settings say of what the manifest lets expect in that round."""
    mechanism = private(manifest, ledger, clip=0.5, noise=1.0)
    for round in (0, 9):
        values = torch.randn(NUMEL)
        mechanism.release(values, round)
        assert float(values.norm()) == pytest.approx(0.5 * scale(manifest, round, NUMEL), rel=1e-4)


def test_nothing_leaves_that_is_not_counted(manifest: Manifest, tmp_path: Path) -> None:
    """Where the ledger cannot be written there is no contribution, and the error names the file."""
    folder = tmp_path / "folder"
    folder.mkdir()
    mechanism, values = private(manifest, folder / "privacy.json"), torch.ones(NUMEL)
    folder.rmdir()
    with pytest.raises(FileError, match=r"privacy\.json"):
        mechanism.release(values, 0)
    assert torch.equal(values, torch.ones(NUMEL))


def test_the_budget_is_never_exceeded(manifest: Manifest, ledger: Path) -> None:
    """It is exhausted when one more contribution would exceed it, and whoever comes again is refused."""
    mechanism = private(manifest, ledger, noise=10.0, epsilon=2.0)
    while not mechanism.spent.exhausted:
        mechanism.release(torch.randn(NUMEL), 0)
    made = mechanism.spent.contributions
    assert made > 1
    assert epsilon({10.0: made}, 1e-5) <= 2.0 < epsilon({10.0: made + 1}, 1e-5)
    with pytest.raises(UsageError, match=f"more than 2: it is .* after {made}; allow more"):
        private(manifest, ledger, noise=10.0, epsilon=2.0)
    assert not private(manifest, ledger, noise=100.0, epsilon=2.0).spent.exhausted


def test_a_budget_for_less_than_one_contribution_is_refused(manifest: Manifest, ledger: Path) -> None:
    """Before anything is trained, and nothing is written."""
    with pytest.raises(UsageError, match="add more noise"):
        private(manifest, ledger, noise=0.1, epsilon=1.0)
    assert not ledger.exists()


def test_privacy_is_not_undone_by_forgetting_the_option(manifest: Manifest, ledger: Path) -> None:
    """An oracle that was private joins no more without saying that it still is."""
    private(manifest, ledger).release(torch.randn(NUMEL), 0)
    with pytest.raises(UsageError, match=r"were private so far.*privacy\.json"):
        build_mechanism(None, manifest, NUMEL, ledger)
    ledger.unlink()
    assert isinstance(build_mechanism(None, manifest, NUMEL, ledger), Open)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["noise", "clip", "epsilon", "delta"])
def test_numbers_that_mean_nothing_are_refused(name: str, value: float) -> None:
    """The message says which one, and what to give."""
    with pytest.raises(UsageError, match=f"^{name} .*give a"):
        PrivacySettings(**{name: value})


def test_a_delta_is_a_probability() -> None:
    """One that is certain promises nothing."""
    with pytest.raises(UsageError, match="between 0 and 1"):
        PrivacySettings(delta=1.0)
