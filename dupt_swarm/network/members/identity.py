"""A peer's identity: one Ed25519 key, which makes the libp2p peer id and signs the records."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind.proto import crypto_pb2

from dupt_swarm.disk.files import create_secret
from dupt_swarm.disk.folders import default_state_dir
from dupt_swarm.disk.locks import lock_file
from dupt_swarm.errors import UsageError
from dupt_swarm.replica.signed import public_of
from dupt_swarm.settings import NodeSettings

SEED_BYTES = 32  # of a private key, which libp2p keeps with the public one after it


def load_identity(path: Path) -> Ed25519PrivateKey:
    """The key at ``path``, in libp2p's format; created if there is none.

    Raises:
        UsageError: what is there is no key, or cannot be read.
        FileError: it cannot be written.
    """
    try:
        if not path.exists():
            with contextlib.suppress(FileExistsError):  # another process was faster
                create_secret(path, as_identity(Ed25519PrivateKey.generate()))
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); make it readable for you") from error
    try:
        seed = crypto_pb2.PrivateKey.FromString(data).data[:SEED_BYTES]
        key = Ed25519PrivateKey.from_private_bytes(seed)
        if as_identity(key) != data:  # or the daemon would have another one
            raise ValueError("no Ed25519 key")
        return key
    except Exception as error:  # protobuf and cryptography have their own for a damaged file
        raise UsageError(f"{path}: not an identity ({error}); remove it to get a new one") from error


def as_identity(key: Ed25519PrivateKey) -> bytes:
    """``key`` as libp2p keeps it: a protobuf message of both halves."""
    halves = key.private_bytes_raw() + public_of(key)
    return bytes(crypto_pb2.PrivateKey(key_type=crypto_pb2.Ed25519, data=halves).SerializeToString())


FOLDER = "looking"  # in the platform's state folder


def with_identity(settings: NodeSettings, run_dir: Path, stack: AsyncExitStack | ExitStack) -> NodeSettings:
    """``settings`` with an identity if they have none; it is this process' until ``stack`` is closed."""
    if settings.identity_path is not None:
        return settings
    path = run_dir / "identity"
    if settings.invitation:
        path = _kept_identity(default_state_dir() / FOLDER, stack) or path
    load_identity(path)
    return replace(settings, identity_path=path)


def _kept_identity(folder: Path, stack: AsyncExitStack | ExitStack) -> Path | None:
    """That of this machine; None if another process may have it: each would hear what is meant for both."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = stack.enter_context((folder / "lock").open("a"))
    except OSError:  # nothing can be kept here
        return None
    return folder / "identity" if lock_file(lock) else None


NAME_BYTES = 8
NAMES_MAX = 8192  # are remembered, as the same ones come again and again


@functools.lru_cache(maxsize=NAMES_MAX)
def short_name(peer_id: str) -> bytes:
    """`NAME_BYTES` that stand for a peer where many are named."""
    return hashlib.sha256(peer_id.encode()).digest()[:NAME_BYTES]
