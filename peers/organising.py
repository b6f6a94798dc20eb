"""What `invite` and `revoke` take: a manifest that admits by invitation, and its organiser's key."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.errors import UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.organiser import KEY_FILE
from dupt_swarm.organiser.key import load_key_of


def open_organisers(path: Path) -> tuple[Manifest, Ed25519PrivateKey]:
    """The manifest at ``path``, and the key beside it.

    Raises:
        DuptError: the swarm admits everybody, or the key is not there, or another organiser's.
    """
    manifest = Manifest.load(path)
    if manifest.admission.kind == "open":
        raise UsageError(
            f"{path}: the swarm admits everybody; `dupt-peer new --admission invite` writes a manifest of "
            "one that does not"
        )
    return manifest, load_key_of(manifest, path.with_name(KEY_FILE))
