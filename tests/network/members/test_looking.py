"""The identity with which a machine only looks."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from dupt_swarm.network.members.identity import with_identity
from dupt_swarm.settings import NodeSettings
from tests.network.conftest import identities

__all__ = ["identities"]

INVITED = NodeSettings("observer", invitation="dupt-x")


@pytest.fixture(autouse=True)
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The platform's state folder is the test's."""
    monkeypatch.setattr("dupt_swarm.network.members.identity.default_state_dir", lambda: tmp_path / "state")
    return tmp_path / "state"


def identity_of(settings: NodeSettings, run_dir: Path, stack: ExitStack) -> bytes:
    run_dir.mkdir(exist_ok=True)
    path = with_identity(settings, run_dir, stack).identity_path
    assert path is not None
    return path.read_bytes()


def test_a_peer_that_is_invited_looks_as_the_same_peer_each_time(tmp_path: Path) -> None:
    """One after the other: so many looks are one use of an invitation."""
    seen = set()
    for name in ("a", "b", "c"):
        with ExitStack() as stack:
            seen.add(identity_of(INVITED, tmp_path / name, stack))
    assert len(seen) == 1


def test_two_at_once_are_two_peers(tmp_path: Path) -> None:
    """Else each would get what is meant for the other."""
    with ExitStack() as one, ExitStack() as two:
        assert identity_of(INVITED, tmp_path / "a", one) != identity_of(INVITED, tmp_path / "b", two)


@pytest.mark.usefixtures("without_locks")
def test_where_nobody_can_tell_each_look_is_another_peer(tmp_path: Path) -> None:
    """Two might look at once: without locks none has the identity that is kept."""
    with ExitStack() as stack:
        seen = {identity_of(INVITED, tmp_path / name, stack) for name in ("a", "b")}
    assert len(seen) == 2


def test_nobody_is_known_again_in_an_open_swarm(tmp_path: Path, platform: Path) -> None:
    """Whoever looks without an invitation is a new peer each time, and nothing is kept."""
    with ExitStack() as stack:
        open_swarm = NodeSettings("observer")
        assert identity_of(open_swarm, tmp_path / "a", stack) != identity_of(
            open_swarm, tmp_path / "b", stack
        )
    assert not platform.exists()


def test_an_identity_that_is_given_is_used(identities: list[Path], tmp_path: Path, platform: Path) -> None:
    """That of a peer's folder."""
    with ExitStack() as stack:
        settings = NodeSettings("oracle", invitation="dupt-x", identity_path=identities[0])
        assert with_identity(settings, tmp_path, stack) == settings
    assert not platform.exists()


def test_where_nothing_can_be_kept_it_is_a_new_one(tmp_path: Path, platform: Path) -> None:
    """A file where the folder should be keeps nobody from looking."""
    platform.write_text("")
    with ExitStack() as stack:
        assert identity_of(INVITED, tmp_path / "a", stack)
