"""A folder in Hugging Face's format as a model of ours."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from dupt_swarm.errors import DuptError
from dupt_swarm.models.foreign import load_model
from tests.support.foreign_models import write_foreign


def test_more_rows_than_the_tokenizer_has_ids(tmp_path: Path) -> None:
    """Many models have them, so that their matrices have handy shapes."""
    write_foreign(tmp_path / "padded", vocab_size=320)
    saved = load_model(tmp_path / "padded")
    assert (saved.manifest.model.vocabulary_size, saved.manifest.tokenizer.vocabulary_size) == (320, 300)
    assert saved.described


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    """One that has more ids than the model has rows is refused, with both numbers."""
    write_foreign(tmp_path / "small", vocab_size=290)
    with pytest.raises(DuptError, match=r"model.vocabulary_size = 290 is less than .*300"):
        load_model(tmp_path / "small")


def test_absurd_sizes_take_no_memory(tmp_path: Path) -> None:
    """A config.json that tells of terabytes is found out before any of them is allocated."""
    write_foreign(tmp_path / "huge")
    path = tmp_path / "huge" / "config.json"
    sizes = {"vocab_size": 1 << 24, "hidden_size": 1 << 16, "intermediate_size": 1 << 18, "head_dim": None}
    path.write_text(json.dumps(json.loads(path.read_text()) | sizes | {"num_hidden_layers": 64}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DuptError, match="is missing"):
        load_model(tmp_path / "huge")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    """It is named, with what may be given."""
    with pytest.raises(DuptError, match="no model there"):
        load_model(tmp_path)
