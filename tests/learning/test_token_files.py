"""Shards read like one array."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupt_swarm.learning import token_files as files_module
from dupt_swarm.learning.token_files import Split, SplitWriter, id_bytes


@given(st.data())
def test_read_across_borders(data: st.DataObject) -> None:
    """Any range comes out as from one array, however many files it touches."""
    tokens = np.arange(data.draw(st.integers(1, 50)), dtype="<u2")
    size = data.draw(st.integers(1, 20))
    start = data.draw(st.integers(0, len(tokens) - 1))
    stop = data.draw(st.integers(start + 1, len(tokens)))
    split = Split([tokens[i : i + size] for i in range(0, len(tokens), size)])
    assert len(tokens) == len(split)
    assert tokens[start:stop].tolist() == split.read(start, stop).tolist()


@pytest.mark.parametrize("dtype", ["<u2", "<u4"])
def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Appended tokens come back from files of bounded size, and only as many as asked for."""
    synced: list[int] = []
    monkeypatch.setattr(files_module, "FILE_TOKENS", 8)
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    with SplitWriter(tmp_path, "train", dtype) as writer:
        for start in range(0, 30, 10):
            writer.append(range(start, start + 10))
        assert list(range(30)) == writer.flush().read(0, 30).tolist()
    item = np.dtype(dtype).itemsize
    sizes = [8 * item, 8 * item, 8 * item, 6 * item]
    assert sizes == [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert synced == sizes, "a power cut must not leave files of zeros"
    assert len(Split.open(tmp_path, "train", 20, 8, dtype)) == 20
    with pytest.raises(ValueError, match="mmap length"):
        Split.open(tmp_path, "train", 31, 8, dtype)


def test_the_smallest_numbers_for_all_ids() -> None:
    """Peers exchange shards of them, so they must agree."""
    assert [id_bytes(size) for size in (257, 1 << 16, (1 << 16) + 1)] == [2, 2, 4]
