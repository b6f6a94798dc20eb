"""A folder in Hugging Face's format as a model of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dupt_swarm.disk.folders import CHAIN_FILE
from dupt_swarm.errors import DuptError
from dupt_swarm.learning.tokenizer import train_tokenizer
from dupt_swarm.models.beginning import begin_language
from dupt_swarm.models.saved_model import load_model
from tests.support.foreign_models import write_encoder, write_foreign
from tests.support.saved_models import small_tokenizer


def test_more_rows_than_the_tokenizer_has_ids(tmp_path: Path) -> None:
    """Many models have them, so that their matrices have handy shapes."""
    write_foreign(tmp_path / "padded", vocab_size=320)
    (tmp_path / CHAIN_FILE).touch()  # of whatever lies beside it
    saved = load_model(tmp_path / "padded")
    assert saved.chain is None
    assert (saved.manifest.model.vocabulary_size, saved.manifest.tokenizer.vocabulary_size) == (320, 300)
    assert saved.described


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    """One that has more ids than the model has rows is refused, with both numbers."""
    write_foreign(tmp_path / "small", vocab_size=290)
    with pytest.raises(DuptError, match=r"model.vocabulary_size = 290 is less than .*300"):
        load_model(tmp_path / "small")


LOADING = """
import resource, sys
from pathlib import Path
from dupt_swarm.disk.folders import CHAIN_FILE
from dupt_swarm.errors import DuptError
from dupt_swarm.models.saved_model import load_model
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20), resource.RLIM_INFINITY))
try:
    load_model(Path(sys.argv[1]))
except DuptError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_absurd_sizes_take_no_memory(tmp_path: Path) -> None:
    """A config.json that tells of terabytes is found out before any of them is allocated."""
    write_foreign(tmp_path / "huge")
    path = tmp_path / "huge" / "config.json"
    sizes = {"vocab_size": 1 << 24, "hidden_size": 1 << 16, "intermediate_size": 1 << 18, "head_dim": None}
    path.write_text(json.dumps(json.loads(path.read_text()) | sizes))
    command = [sys.executable, "-c", LOADING, str(tmp_path / "huge")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "has shape [300, 32], and by config.json [16777216, 65536]" in done.stdout


def test_an_encoder(tmp_path: Path) -> None:
    """A swarm that trains it on masks tokens, and predicts what follows if the model has learnt that."""
    write_encoder(tmp_path / "bert")
    saved = load_model(tmp_path / "bert")
    assert (saved.manifest.objective.kind, saved.manifest.objective.nsp) == ("mlm", True)
    assert saved.tokenizer.encoder_tokens.last == saved.manifest.tokenizer.end_of_text
    assert saved.described and saved.notes == ()
    begun, state = begin_language(saved, name="on", seed=3)
    assert begun.objective == saved.manifest.objective and begun.model == saved.manifest.model
    assert state.digest == begun.initial_digest == saved.state.digest


def test_an_encoder_that_has_not_learnt_what_follows(tmp_path: Path) -> None:
    """That is left out, and it is said that the weights for it are drawn."""
    write_encoder(tmp_path / "bert", "BertForMaskedLM")
    saved = load_model(tmp_path / "bert")
    assert not saved.manifest.objective.nsp
    assert saved.notes == (
        "pooler and follows are not in the folder: their weights are drawn, and know nothing yet",
    )


def test_an_encoder_with_a_decoders_tokenizer(tmp_path: Path) -> None:
    """Without [SEP] or [MASK] nothing can be masked: the file is named."""
    write_encoder(tmp_path / "bert")
    (tmp_path / "bert" / "tokenizer.json").write_bytes(small_tokenizer().to_bytes())
    with pytest.raises(DuptError, match=r"tokenizer.json: no token \[SEP\]"):
        load_model(tmp_path / "bert")
    (tmp_path / "bert" / "tokenizer.json").write_bytes(
        train_tokenizer([], 300, ("[SEP]", "[CLS]")).to_bytes()
    )
    with pytest.raises(DuptError, match=r"no special token \[MASK\]"):
        load_model(tmp_path / "bert")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    """It is named, with what may be given."""
    for path, said in ((tmp_path, "no model there"), (tmp_path / "nowhere", "no folder there")):
        with pytest.raises(DuptError, match=rf"{said}.*or a folder in Hugging Face's format \(config.json\)"):
            load_model(path)
