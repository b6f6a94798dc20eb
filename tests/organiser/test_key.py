"""The organiser's key in its file."""

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from dupt_swarm.errors import FileError, UsageError
from dupt_swarm.organiser.key import load_key, load_key_of, make_key, public_hex
from tests.support.full_disk import full_disk
from tests.support.tiny import tiny_manifest


def test_a_key_is_its_owners(tmp_path: Path) -> None:
    """It is made once, readable by nobody else, and the same whenever it is asked for."""
    path = tmp_path / "organiser.key"
    key = make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    assert public_hex(make_key(path)) == public_hex(load_key(path)) == public_hex(key)
    assert path.read_bytes() == before


def test_what_is_no_key_is_refused_and_stays(tmp_path: Path) -> None:
    """A file of another kind is neither used nor written over, and the message says which."""
    path = tmp_path / "organiser.key"
    other = rsa.generate_private_key(65537, 2048)
    for data in (b"notes", other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())):
        path.write_bytes(data)
        with pytest.raises(UsageError, match=r"organiser\.key: not a"):
            make_key(path)
        assert path.read_bytes() == data


def test_a_key_that_is_missing_or_cannot_be_written(tmp_path: Path) -> None:
    """Both are told with the path."""
    with pytest.raises(UsageError, match="only who has the organiser's key"):
        load_key(tmp_path / "organiser.key")
    with pytest.raises(FileError, match="choose another folder"):
        make_key(tmp_path / "nowhere" / "organiser.key")


def test_a_full_disk_leaves_no_key(tmp_path: Path) -> None:
    """The key is whole or absent, so that the next attempt makes one; an empty file gets a remedy."""
    path = tmp_path / "organiser.key"
    with (
        full_disk(),
        pytest.raises(FileError, match=r"organiser\.key: cannot be written .* free space there"),
    ):
        make_key(path)
    assert list(tmp_path.iterdir()) == []
    assert public_hex(make_key(path)) == public_hex(load_key(path))
    path.write_bytes(b"")
    with pytest.raises(UsageError, match="empty; restore it from your copy, or remove it if there never was"):
        make_key(path)


def test_the_manifest_says_whose_key_counts(tmp_path: Path) -> None:
    """Another organiser's key neither invites nor revokes."""
    mine = make_key(tmp_path / "mine")
    manifest = tiny_manifest(admission={"kind": "invite", "organiser": public_hex(mine)})
    assert public_hex(load_key_of(manifest, tmp_path / "mine")) == public_hex(mine)
    make_key(tmp_path / "other")
    with pytest.raises(UsageError, match=r"not the key of `admission\.organiser`"):
        load_key_of(manifest, tmp_path / "other")
