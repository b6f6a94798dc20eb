import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hivemind.proto import crypto_pb2

from dupt_swarm.errors import FileError, UsageError
from dupt_swarm.network.members.identity import as_identity, load_identity
from dupt_swarm.replica.signed import public_of
from tests.support.full_disk import full_disk
from tests.support.signed_records import fresh_key


def public_at(path: Path) -> bytes:
    return public_of(load_identity(path))


def test_identity_is_made_once(tmp_path) -> None:
    """A missing identity is made, readable by its owner only, and the same key is loaded afterwards."""
    path = tmp_path / "identity"
    first = public_at(path)
    assert public_at(path) == first
    assert path.stat().st_mode & 0o077 == 0


def test_an_identity_has_the_form_of_libp2p() -> None:
    """That of the example in its specification, a protobuf message of the seed and the public key."""
    data = bytes.fromhex(
        "080112407e0830617c4a7de83925dfb2694556b12936c477a0e1feb2e148ec9da60fee7d"
        "1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e"
    )
    assert as_identity(Ed25519PrivateKey.from_private_bytes(data[4:36])) == data


def test_a_full_disk_leaves_no_identity(tmp_path) -> None:
    """It is whole or absent, so that the next start makes one."""
    path = tmp_path / "identity"
    with full_disk(), pytest.raises(FileError, match="identity: cannot be written"):
        load_identity(path)
    assert list(tmp_path.iterdir()) == []
    load_identity(path)


def test_an_identity_was_never_anybody_elses(tmp_path, monkeypatch) -> None:
    """Whatever the umask, the file is its owner's before it has its name."""
    modes, link = [], os.link

    def noted(source, target) -> None:
        modes.append(stat.S_IMODE(source.stat().st_mode))
        link(source, target)

    monkeypatch.setattr(os, "link", noted)
    before = os.umask(0)
    try:
        load_identity(tmp_path / "identity")
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert stat.S_IMODE((tmp_path / "identity").stat().st_mode) == 0o600


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 60), (30, None)])
def test_damaged_identity(tmp_path, identities, start, end) -> None:
    """A damaged identity is a usage error that says to remove it."""
    path = tmp_path / "identity"
    path.write_bytes(identities[0].read_bytes()[start:end])
    with pytest.raises(UsageError, match=r"not an identity .*; remove it to get a new one"):
        load_identity(path)


@pytest.mark.parametrize("error", [IsADirectoryError, PermissionError])
def test_an_identity_that_cannot_be_read(tmp_path, monkeypatch, error: type[OSError]) -> None:
    """It may be whole: nobody is told to remove it."""
    path = tmp_path / "identity"
    if error is IsADirectoryError:
        path.mkdir()
    else:
        load_identity(path)

        def denied(_: Path) -> bytes:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(UsageError, match=r"cannot be read \(.*\); make it readable for you") as caught:
        load_identity(path)
    assert "remove" not in str(caught.value)


@pytest.mark.parametrize("kind", [crypto_pb2.RSA, crypto_pb2.Ed25519])
def test_other_keys_are_no_identity(tmp_path, kind: int) -> None:
    """One of another kind, as peers had before, and halves of two keys, of which a daemon would take both."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    data = key.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    if kind == crypto_pb2.Ed25519:
        data = fresh_key().private_bytes_raw() + public_of(fresh_key())
    path = tmp_path / "identity"
    path.write_bytes(crypto_pb2.PrivateKey(key_type=kind, data=data).SerializeToString())
    with pytest.raises(UsageError, match=r"no Ed25519 key.*; remove it to get a new one"):
        load_identity(path)
    assert crypto_pb2.PrivateKey.FromString(path.read_bytes()).data == data
