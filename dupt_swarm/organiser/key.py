"""The organiser's private key (Ed25519): a file beside the manifest, which has its public half."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from dupt_swarm.disk.files import create_secret
from dupt_swarm.errors import UsageError
from dupt_swarm.manifest import Manifest


def make_key(path: Path) -> Ed25519PrivateKey:
    """The key at ``path``; a new one, readable by its owner only, if there is none.

    Raises:
        UsageError: what is there is no key.
        FileError: it cannot be written.
    """
    if path.exists():
        return load_key(path)
    key = Ed25519PrivateKey.generate()
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        create_secret(path, data)
    except FileExistsError:  # another process was faster
        return load_key(path)
    return key


def load_key(path: Path) -> Ed25519PrivateKey:
    """The key at ``path``.

    Raises:
        UsageError: it is not there, or is none.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); only who has the organiser's key invites and revokes"
        ) from error
    if not data:
        raise UsageError(
            f"{path}: empty; restore it from your copy, or remove it if there never was a key in it"
        )
    try:
        key = load_pem_private_key(data, password=None)
    except Exception as error:  # cryptography has several for what is no key
        raise UsageError(f"{path}: not a private key; restore it from your copy") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path}: not an Ed25519 key; restore it from your copy")
    return key


def load_key_of(manifest: Manifest, path: Path) -> Ed25519PrivateKey:
    """The key at ``path``, which must be that of the manifest's organiser.

    Raises:
        UsageError: it is not.
    """
    key = load_key(path)
    if public_hex(key) != manifest.admission.organiser:
        raise UsageError(
            f"{path}: not the key of `admission.organiser` in the manifest; use the one written with it"
        )
    return key


def public_hex(key: Ed25519PrivateKey) -> str:
    """The public half, 64 hexadecimal digits, as the manifest has it."""
    return key.public_key().public_bytes_raw().hex()
