"""What `dupt_swarm` offers to people who write Python: all that the programs do with a saved model."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dupt_swarm
from dupt_swarm import (
    GPT,
    Finetuner,
    LabelledFiles,
    LabelledTask,
    Sampling,
    SavedModel,
    Swarm,
    audit,
    continue_text,
    evaluate_documents,
    export,
    pull,
)
from dupt_swarm.errors import UsageError
from tests.support.saved_models import TEXT, write_model
from tests.support.tasks import two_languages, write_lines

CPU = torch.device("cpu")


def test_every_name_is_there() -> None:
    """Each is found when it is asked for, and nothing else is."""
    assert all(callable(getattr(dupt_swarm, name)) for name in dupt_swarm.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'train'"):
        _ = dupt_swarm.train


@pytest.mark.parametrize("look", [pull, audit, Swarm.join])
def test_one_address_outside_of_a_list(look: Callable[..., object], tmp_path: Path) -> None:
    """It is not taken for a list of letters, none of which is an address."""
    more = (tmp_path / "model",) if look is pull else ()
    with pytest.raises(UsageError, match=r"`/ip4/127.0.0.1/tcp/1` is one address and not a list; write \["):
        look("/ip4/127.0.0.1/tcp/1", *more)


def test_what_a_model_is_good_for(tmp_path: Path) -> None:
    """As in docs/models.md: measured, made to write, taught a task, exported."""
    saved = SavedModel.load(write_model(tmp_path / "model", model={"context_length": 32}).folder)
    model = saved.build(CPU)
    assert isinstance(model, GPT)
    found = evaluate_documents(model, saved.tokenizer, [TEXT], stride=None, batch_size=4, device=CPU)
    assert found.bytes == len(TEXT.encode())
    text = "".join(continue_text(model, saved.tokenizer, "The bear", Sampling(tokens=5, temperature=0)))
    assert text

    train = write_lines(tmp_path / "train.jsonl", two_languages(32, 1))
    valid = write_lines(tmp_path / "valid.jsonl", two_languages(16, 2))
    task = LabelledTask("classification", LabelledFiles(train, {}), LabelledFiles(valid, {}))
    assert Finetuner(saved, task, tmp_path / "tuned", device="cpu").run()
    tuned = SavedModel.load(tmp_path / "tuned")
    assert tuned.manifest.objective.labels == ["de", "en"]
    assert SavedModel.load(str(tmp_path / "tuned")).state.digest == tuned.state.digest, (
        "as docs/models.md has it"
    )

    assert export(saved, tmp_path / "hf").name == "gpt2"
    assert {"config.json", "README.md"} <= {path.name for path in (tmp_path / "hf").iterdir()}
    with pytest.raises(UsageError, match="there is no format onnx; choose one of openai-gpt, gpt2"):
        export(saved, tmp_path / "other", "onnx")
