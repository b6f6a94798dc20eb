"""Files without a name, by which processes share memory."""

from __future__ import annotations

import os
import tempfile


def anonymous_file() -> int:
    """A file descriptor of an empty file without a name; pass it to the child, then close it.

    Nothing is left in /dev/shm whichever process dies in whatever way, and a container's small /dev/shm does
    not matter.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dupt")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
