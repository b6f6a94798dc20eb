import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hivemind.proto import crypto_pb2

from dupt_swarm.errors import FileError, UsageError
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.replica.signed import peer_id_of_key
from tests.support.full_disk import full_disk


def openssh_of(path: Path) -> bytes:
    return bytes(load_identity(path).get_public_key().to_bytes())


def test_identity_is_made_once(tmp_path) -> None:
    """A missing identity is made, readable by its owner only, and the same key is loaded afterwards."""
    path = tmp_path / "identity"
    first = openssh_of(path)
    assert openssh_of(path) == first
    assert path.stat().st_mode & 0o077 == 0


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


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 100), (50, None)])
def test_damaged_identity(tmp_path, identities, start, end) -> None:
    """A damaged identity is a usage error that says to remove it."""
    path = tmp_path / "identity"
    path.write_bytes(identities[0].read_bytes()[start:end])
    with pytest.raises(UsageError, match=r"not an identity .*; remove it to get a new one"):
        load_identity(path)


@pytest.mark.parametrize(("bits", "exponent"), [(2048, 3), (2056, 65537), (3072, 65537), (1024, 65537)])
def test_other_keys_are_refused_unread(tmp_path, bits: int, exponent: int) -> None:
    """What takes longer to verify, or proves less, is no key here, and no identity."""
    private = rsa.generate_private_key(public_exponent=exponent, key_size=bits)
    openssh = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    with pytest.raises(ValueError, match="not a public key of 2048 bits"):
        peer_id_of_key(openssh)
    der = private.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    path = tmp_path / "identity"
    path.write_bytes(crypto_pb2.PrivateKey(key_type=crypto_pb2.RSA, data=der).SerializeToString())
    with pytest.raises(UsageError, match=r"not a public key of 2048 bits.*; remove it to get a new one"):
        load_identity(path)
