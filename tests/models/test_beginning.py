"""How a swarm begins from weights that are there already."""

from pathlib import Path

import pytest
import torch

from dupt_swarm.errors import CheckpointError, ManifestError, UsageError
from dupt_swarm.learning.objectives import build_model, decoder_of
from dupt_swarm.learning.strategies.flat import unflatten
from dupt_swarm.manifest import Manifest, Objective
from dupt_swarm.models.beginning import begin_language, begin_task, write_beginning
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.storage import load_state
from dupt_swarm.swarm import INITIAL_FILE, Swarm
from tests.support.saved_models import small_tokenizer, write_model
from tests.support.tiny import settings

TASK = Objective(kind="classification", labels=["a", "b", "c"])


def test_a_task_begins_with_the_pretrained_weights(tmp_path: Path) -> None:
    """The decoder's are those of the model; start, delimiter, extract and W_y are drawn with the seed."""
    base = write_model(tmp_path)
    manifest, state = begin_task(base, TASK, name="tuning", seed=7)
    assert (state.round, state.swarm_tokens, manifest.initial_digest) == (0, 0, state.digest)
    assert sorted(state.buffers) == sorted(build_outer(manifest).buffer_names)
    model = build_model(manifest)
    assert state.layout == tuple(tuple(parameter.shape) for parameter in model.parameters())
    unflatten(state.anchor, list(model.parameters()))
    theirs = dict(base.build(torch.device("cpu")).named_parameters())
    for name, parameter in decoder_of(model).named_parameters():
        assert torch.equal(parameter[: len(theirs[name])], theirs[name])
    again, same = begin_task(base, TASK, name="tuning", seed=7)
    assert (again, same.digest) == (manifest, state.digest)
    _, other = begin_task(base, TASK, name="tuning", seed=8)
    assert other.digest != state.digest


def test_rows_that_no_token_uses(tmp_path: Path) -> None:
    """Start, delimiter and extract are drawn where the model had rows without a token, and those go."""
    size = small_tokenizer().vocabulary_size
    base = write_model(tmp_path, model={"vocabulary_size": size + 3})
    manifest, state = begin_task(base, TASK, name="tuning", seed=7)
    model = build_model(manifest)
    unflatten(state.anchor, list(model.parameters()))
    ours, theirs = decoder_of(model).wte.weight, decoder_of(base.build(torch.device("cpu"))).wte.weight
    assert manifest.model.vocabulary_size == len(ours) == size + 3
    assert torch.equal(ours[:size], theirs[:size])
    assert not torch.isclose(ours[size:], theirs[size:]).any()


def test_the_manifest_is_that_of_a_fine_tuning(tmp_path: Path) -> None:
    """Shape and time limits are the model's; the optimisation is GPT-1's, in examples of a context each."""
    base = write_model(tmp_path)
    manifest, _ = begin_task(base, TASK, name="tuning", seed=7)
    assert (manifest.name, manifest.seed, manifest.objective) == ("tuning", 7, TASK)
    assert manifest.tokenizer == base.manifest.tokenizer
    shape = base.manifest.model.model_dump()
    assert manifest.model.model_dump() == shape | {"vocabulary_size": shape["vocabulary_size"] + 3}
    assert manifest.inner.learning_rate == 6.25e-5
    assert manifest.rounds.tokens_per_step == 32 * manifest.model.context_length
    assert manifest.rounds.growth == 1
    assert manifest.rounds.matchmaking_seconds == base.manifest.rounds.matchmaking_seconds


def test_what_the_models_swarm_offered_is_not_offered_again(tmp_path: Path) -> None:
    """Neither a swarm of a task nor one of language has the text: the model was taken without it."""
    base = write_model(tmp_path, offer={"digest": "0" * 64, "tokens": 5, "licence": "CC0-1.0"})
    for manifest, _ in (begin_task(base, TASK, name="a", seed=7), begin_language(base, name="a", seed=7)):
        assert not manifest.offer
        assert manifest.offer.licence == ""


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    """A context without room for two texts is too short for a task of two texts; a name may be wrong."""
    base = write_model(tmp_path / "short", model={"context_length": 4})
    with pytest.raises(UsageError, match="has no room for 2 texts"):
        begin_task(base, Objective(kind="similarity"), name="tuning", seed=0)
    with pytest.raises(ManifestError, match="`name`"):
        begin_task(write_model(tmp_path / "long"), TASK, name="no name", seed=0)


def test_what_is_written_is_what_a_first_peer_reads(tmp_path: Path) -> None:
    """Manifest, tokenizer and state come back; a folder that cannot be written to is named."""
    base = write_model(tmp_path / "base")
    manifest, state = begin_task(base, TASK, name="tuning", seed=7)
    (tmp_path / "new").mkdir()
    write_beginning(tmp_path / "new" / "run.toml", manifest, base.tokenizer, state)
    assert Manifest.load(tmp_path / "new" / "run.toml") == manifest
    assert (tmp_path / "new" / "tokenizer.json").read_bytes() == base.tokenizer.to_bytes()
    read = load_state(tmp_path / "new" / INITIAL_FILE)
    assert read.digest == state.digest
    for mine, shape in zip(read.parameters, state.layout, strict=True):
        assert tuple(mine.shape) == shape
    with pytest.raises((UsageError, CheckpointError), match="file"):
        write_beginning(tmp_path / "new" / "run.toml" / "file" / "run.toml", manifest, base.tokenizer, state)


@pytest.mark.usefixtures("nothing_left")
def test_a_first_peer_begins_with_no_other_weights(tmp_path: Path) -> None:
    """Parameters that are not those that the manifest names start no swarm, and leave no checkpoint."""
    base = write_model(tmp_path / "base")
    manifest, state = begin_task(base, TASK, name="tuning", seed=7)
    wrong = [parameter + 1 for parameter in state.parameters]
    tokenizer = base.tokenizer.to_bytes()
    with pytest.raises(ManifestError, match=r"`initial_digest` is .* but the state to begin with has"):
        Swarm.create(manifest, tokenizer, wrong, tmp_path / "state", settings("bootstrap"))
    with pytest.raises(UsageError, match="a new swarm needs a model: give its parameters"):
        Swarm.create(manifest, tokenizer, iter([]), tmp_path / "state", settings("bootstrap"))
    assert not list(tmp_path.glob("state/*/checkpoint-*"))
    right = state.parameters
    with Swarm.create(manifest, tokenizer, right, str(tmp_path / "state"), settings("bootstrap")) as swarm:
        assert swarm.state.digest == manifest.initial_digest
