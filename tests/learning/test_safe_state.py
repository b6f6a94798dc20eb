"""Trees survive their file exactly, and damage is noticed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from dupt_swarm.errors import CheckpointError
from dupt_swarm.learning import safe_state as tree_module
from dupt_swarm.learning.inner import build_inner
from dupt_swarm.learning.safe_state import pack, read_tree, write_packed, write_tree
from dupt_swarm.manifest import Inner


def assert_same(expected: Any, actual: Any) -> None:
    """Same types, dtypes, shapes and bits."""
    assert type(expected) is type(actual)
    if isinstance(expected, torch.Tensor):
        assert (expected.dtype, expected.shape) == (actual.dtype, actual.shape)
        assert torch.equal(expected, actual)
    elif isinstance(expected, dict):
        assert list(expected) == list(actual)
        for key in expected:
            assert_same(expected[key], actual[key])
    elif isinstance(expected, list | tuple):
        assert len(expected) == len(actual)
        for one, other in zip(expected, actual, strict=True):
            assert_same(one, other)
    else:
        assert expected == actual


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    """Containers, keys, numbers, strings and tensors of every kind keep type, dtype, shape and bits."""
    base = torch.arange(12.0)
    tree = {
        0: {"exp_avg": torch.randn(3, 4).bfloat16(), "step": torch.tensor(7.0)},
        "groups": [{"betas": (0.9, 0.1 + 0.2), "fused": True, "foreach": None, "lr": 1e-8, "params": [0, 1]}],
        "empty": [torch.empty(0, 3), torch.empty(0), {}, [], ()],
        "shared": (base, base, base[2:5], base.view(3, 4).T),
        "integers": [2**80, -1, torch.tensor([2**62]), torch.tensor([True, False])],
        "random": torch.get_rng_state(),
        "text": "θ → \"'\n",
        "limits": [math.inf, -math.inf],
    }
    write_tree(tmp_path / "tree", tree)
    assert_same(tree, read_tree(tmp_path / "tree"))


def test_a_leaf_is_a_tree_too(tmp_path: Path) -> None:
    """A single number or tensor can be written and read."""
    for tree in (3, None, torch.ones(2)):
        write_tree(tmp_path / "tree", tree)
        assert_same(tree, read_tree(tmp_path / "tree"))


def test_an_optimizer_goes_on_from_its_tree(tmp_path: Path) -> None:
    """The state of an optimizer survives the file: the next update is the same."""
    models = [torch.nn.Linear(3, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [
        build_inner(model.parameters(), Inner(optimizer="adamw", learning_rate=0.1)) for model in models
    ]
    for model, optimizer in zip(models, optimizers, strict=True):
        model(torch.ones(3)).sum().backward()
        optimizer.step()
    write_tree(tmp_path / "tree", optimizers[0].state_dict())
    optimizers[1].load_state_dict(read_tree(tmp_path / "tree"))
    for optimizer in optimizers:
        optimizer.step()
    assert torch.equal(models[0].weight, models[1].weight)


def test_writing_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    """A second tree takes the place of the first, with no temporary file left."""
    write_tree(tmp_path / "tree", 1)
    write_tree(tmp_path / "tree", 2)
    assert read_tree(tmp_path / "tree") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]


@pytest.mark.parametrize("error", [SafetensorError("No space left"), OSError(28, "No space left")])
def test_a_full_disk_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """When writing fails half-way, the error says so and the file is still the old one."""

    def fail(_tensors: object, path: Path, _metadata: object) -> None:
        path.write_bytes(b"half")
        raise error

    write_tree(tmp_path / "tree", "old")
    monkeypatch.setattr(tree_module, "save_file", fail)
    with pytest.raises(CheckpointError, match=r"cannot be written.*No space left.*free space"):
        write_tree(tmp_path / "tree", "new")
    assert read_tree(tmp_path / "tree") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """Reading what is not there gives an error with the path and a remedy."""
    with pytest.raises(CheckpointError, match=r"tree: missing or damaged.*another checkpoint"):
        read_tree(tmp_path / "tree")


def test_damage_anywhere_is_noticed(tmp_path: Path) -> None:
    """A file cut off or with any one byte changed is refused, never read as another tree."""
    path = tmp_path / "tree"
    write_tree(path, {"a": torch.arange(9.0), "b": [1, "x"]})
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(0, len(whole), 7)]
    damaged += [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in range(len(whole))]
    for content in damaged:
        path.write_bytes(content)
        try:
            tree = read_tree(path)
        except CheckpointError:
            continue
        assert_same({"a": torch.arange(9.0), "b": [1, "x"]}, tree)  # white space of the header


def test_a_foreign_safetensors_file_is_refused(tmp_path: Path) -> None:
    """A safetensors file that is no tree gives the error of a damaged one."""
    save_file({"weight": torch.ones(2)}, tmp_path / "model")
    with pytest.raises(CheckpointError):
        read_tree(tmp_path / "model")


@pytest.mark.parametrize("tree", [{1.5: 0}, {"x": {1, 2}}, [object()], {True: 1}])
def test_what_cannot_be_stored_is_refused(tmp_path: Path, tree: object) -> None:
    """Other keys and other values give a TypeError, and nothing is written."""
    with pytest.raises(TypeError, match="tree"):
        write_tree(tmp_path / "tree", tree)
    assert not list(tmp_path.iterdir())


def test_a_copy_stays_as_it_is(tmp_path: Path) -> None:
    """What becomes of its tensors afterwards does not come into the file."""
    tree = {"weights": torch.arange(6.0).view(2, 3).T, "steps": torch.tensor(3)}
    packed = pack(tree, copy=True)
    for tensor in tree.values():
        tensor.zero_()
    write_packed(tmp_path / "tree", packed)
    assert_same(
        {"weights": torch.arange(6.0).view(2, 3).T, "steps": torch.tensor(3)}, read_tree(tmp_path / "tree")
    )
