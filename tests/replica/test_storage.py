import json
import struct
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from dupt_swarm.errors import CheckpointError
from dupt_swarm.replica import storage
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import load_state, save_state, saved_digest


@pytest.fixture
def state(state) -> ReplicaState:
    """One at which somebody decides."""
    return replace(state, electorate=Electorate(2).after(["a"], weak=True))


@pytest.fixture
def path(tmp_path, state):
    """A saved state."""
    save_state(state, tmp_path / "replica.safetensors")
    return tmp_path / "replica.safetensors"


def test_round_trip(path, state) -> None:
    """A saved state is read back bit for bit, and no other file is left."""
    copy = load_state(path)
    assert (copy.digest, copy.electorate) == (state.digest, state.electorate)
    assert (copy.round, copy.swarm_tokens, copy.layout) == (3, 4711, state.layout)
    assert torch.equal(copy.anchor, state.anchor)
    assert torch.equal(copy.buffers["velocity"], state.buffers["velocity"])
    assert list(path.parent.iterdir()) == [path]


def test_the_digest_alone_is_read_without_the_state(path, state) -> None:
    """What is no saved state has none."""
    assert saved_digest(path) == state.digest
    path.write_bytes(b"not a state")
    assert saved_digest(path) == saved_digest(path.with_name("missing")) == ""


def test_overwriting(path, state) -> None:
    """Saving again replaces the file, while a state read before stays usable."""
    before = load_state(path)
    digest = before.digest
    state.anchor.zero_()
    later = type(state)(4, 5000, state.layout, state.anchor, state.buffers, state.electorate.after(["a"]))
    save_state(later, path)
    assert load_state(path).digest == later.digest
    del before.__dict__["blob"]
    assert before.digest == digest


@pytest.mark.parametrize("length", [0, 1, 7, 8, 100, -100, -1])
def test_truncated_file(path, length: int) -> None:
    """A file that is cut off anywhere is a CheckpointError with the remedy."""
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"not a valid replica state .*; remove it to fetch"):
        load_state(path)


def test_every_tampered_byte_is_noticed(path) -> None:
    """Each single byte of the file, when changed, makes it unreadable."""
    data = path.read_bytes()
    # JSON's padding may change without any effect on what is read.
    header_end = 8 + struct.unpack("<Q", data[:8])[0]
    padding = len(data[:header_end]) - len(data[:header_end].rstrip(b" "))
    places = [*range(header_end - padding), *range(header_end, len(data), 5)]
    unnoticed = []
    for place in places:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            load_state(path)
            unnoticed.append(place)
        except CheckpointError:
            pass
    assert unnoticed == []


@pytest.mark.parametrize(
    "header",
    [None, "[]", "3", '"text"', "{}", "no json", '{"round":0,"tokens_total":0,"layout":3,"digest":""}'],
)
def test_foreign_files(tmp_path, header) -> None:
    """A safetensors file that is no replica state is a CheckpointError."""
    metadata = None if header is None else {"replica_state": header}
    save_file({"anchor": torch.zeros(3)}, tmp_path / "foreign", metadata)
    with pytest.raises(CheckpointError, match="not a valid replica state"):
        load_state(tmp_path / "foreign")


def test_tensors_of_another_type(tmp_path, state) -> None:
    """The same numbers in half precision are not the state that was saved."""
    header = {
        "round": 3,
        "tokens_total": 4711,
        "layout": state.layout,
        "electorate": state.electorate.to_json(),
        "digest": state.digest,
    }
    tensors = {"anchor": state.anchor.bfloat16(), "buffer.velocity": state.buffers["velocity"].bfloat16()}
    save_file(tensors, tmp_path / "halves", {"replica_state": json.dumps(header)})
    with pytest.raises(CheckpointError, match="not a valid replica state"):
        load_state(tmp_path / "halves")


def test_missing_file(tmp_path) -> None:
    """A missing file is a CheckpointError."""
    with pytest.raises(CheckpointError, match="not a valid replica state"):
        load_state(tmp_path / "none")


def test_unwritable_folder(tmp_path, state) -> None:
    """A folder that cannot be written is a CheckpointError with the remedy."""
    with pytest.raises(CheckpointError, match=r"cannot be written .*free space there"):
        save_state(state, tmp_path / "none" / "replica.safetensors")


def test_full_disk(path, state, monkeypatch) -> None:
    """A disk that fills up while writing is a CheckpointError, and the old state can still be read."""

    def fail(_tensors, temporary, _metadata) -> None:
        save_file({"a": torch.zeros(1)}, temporary)
        save_file({"a": torch.zeros(1)}, temporary / "no folder")  # fails as a full disk does

    monkeypatch.setattr(storage, "save_file", fail)
    with pytest.raises(CheckpointError, match="cannot be written"):
        save_state(state, path)
    assert load_state(path).digest == state.digest
    assert list(path.parent.iterdir()) == [path]
