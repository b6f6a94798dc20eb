"""An encoder that is exported is the same one in `transformers`, which fills in masked words with it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from tokenizers.processors import TemplateProcessing

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.export.card import render_card
from dupt_swarm.learning.export.export import FORMATS, choose_format
from dupt_swarm.learning.export.hugging_face import _with_template
from dupt_swarm.learning.tokenizer import ENCODER_SPECIAL, Tokenizer, train_tokenizer
from dupt_swarm.learning.transformer.bert import Bert
from dupt_swarm.models.exporting import _learned, export
from dupt_swarm.models.saved_model import SavedModel, load_model
from tests.learning.export.test_card import code_of, front_matter
from tests.support.encoders import encoder_tokenizer
from tests.support.foreign_tokenizers import bert_cased, bert_uncased
from tests.support.hugging_face import load_model as load_theirs
from tests.support.hugging_face import load_tokenizer
from tests.support.saved_models import TEXT, write_model

TOKENIZERS = {
    "ours": train_tokenizer([TEXT], 320, ENCODER_SPECIAL),
    "cased": Tokenizer.from_foreign(*bert_cased()),
    "uncased": Tokenizer.from_foreign(*bert_uncased()),
}
SHAPE = {**ARCHITECTURES["bert"].parts, "layers": 2, "hidden_width": 48, "context_length": 32, "dropout": 0.1}
MASKED = {"kind": "mlm", "nsp": True}
each_tokenizer = pytest.mark.parametrize("kind", TOKENIZERS)


def encoder(folder: Path, kind: str = "ours", **shape: Any) -> SavedModel:
    """A model folder of a small one with this tokenizer."""
    return write_model(folder, TOKENIZERS[kind], model=SHAPE | shape, objective=MASKED)


def built(model: SavedModel) -> Bert:
    """The encoder with its weights."""
    found = model.build(torch.device("cpu"))
    assert isinstance(found, Bert)
    return found


@pytest.fixture(scope="module", params=TOKENIZERS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model with each tokenizer, and the folder that it was exported into."""
    folder = tmp_path_factory.mktemp(request.param)
    model = encoder(folder / "model", request.param)
    assert export(model, folder / "out").name == "bert"
    return model, folder / "out"


def test_a_text_and_a_pair(exported: tuple[SavedModel, Path]) -> None:
    """The tokenizer there puts them as we do, and both heads say what ours say, beside padding too."""
    model, folder = exported
    theirs, tokenizer = load_theirs(folder, "AutoModelForPreTraining"), load_tokenizer(folder)
    ours = built(model)
    assert type(theirs).__name__ == "BertForPreTraining"
    first, second = "The bear walks", "over the bridge, the river."
    texts = [first, second]
    batch = tokenizer(texts, [second, first[:3]], return_tensors="pt", padding=True)
    special, encode = model.tokenizer.encoder_tokens, model.tokenizer.encode
    ids = [special.first, *encode(first), special.last, *encode(second), special.last]
    assert batch["input_ids"][0, : len(ids)].tolist() == ids
    of_first = len(encode(first)) + 2
    assert batch["token_type_ids"][0, : len(ids)].tolist() == of_first * [0] + (len(ids) - of_first) * [1]
    lengths = batch["attention_mask"].sum(1)
    with torch.no_grad():
        found, h = theirs(**batch), ours.hidden(batch["input_ids"], lengths)
        seen = batch["attention_mask"].bool()
        torch.testing.assert_close(
            ours.masked_logits(h)[seen], found.prediction_logits[seen], rtol=0, atol=1e-5
        )
        torch.testing.assert_close(ours.follow_logits(h), found.seq_relationship_logits, rtol=0, atol=1e-5)
        alone = tokenizer(first, return_tensors="pt")
        h = ours.hidden(torch.tensor([[special.first, *encode(first), special.last]]))
        states = transformers.AutoModel.from_pretrained(folder)(**alone)  # says what it has no use for
        torch.testing.assert_close(h, states.last_hidden_state, rtol=0, atol=1e-5)
        torch.testing.assert_close(ours.summary(h), states.pooler_output, rtol=0, atol=1e-5)


def test_what_is_masked_is_filled_in(exported: tuple[SavedModel, Path]) -> None:
    """The pipeline gives our probabilities; the space before [MASK] is masked with its word."""
    model, folder = exported
    tokenizer = load_tokenizer(folder)
    fill = transformers.pipeline(
        "fill-mask", model=transformers.AutoModelForMaskedLM.from_pretrained(folder), tokenizer=tokenizer
    )
    special, encode = model.tokenizer.encoder_tokens, model.tokenizer.encode
    [dot] = encode("a.")[len(encode("a")) :]
    ids = [special.first, *encode("The bear"), special.mask, dot, special.last]
    assert tokenizer("The bear [MASK].")["input_ids"] == ids
    ours = built(model)
    with torch.no_grad():
        logits = ours.masked_logits(ours.hidden(torch.tensor([ids])))[0, ids.index(special.mask)]
    best = logits.softmax(0).topk(3)
    found = fill("The bear [MASK].", top_k=3)
    assert [each["token"] for each in found] == best.indices.tolist()
    assert [each["score"] for each in found] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_special_tokens(exported: tuple[SavedModel, Path], tmp_path: Path) -> None:
    """Each has its part, also when somebody saves the tokenizer again; the model's padding is its own."""
    model, folder = exported
    special = model.tokenizer.encoder_tokens
    load_tokenizer(folder).save_pretrained(tmp_path)
    for theirs in (load_tokenizer(folder), load_tokenizer(tmp_path)):
        found = (theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id, theirs.pad_token_id)
        assert found == (special.first, special.last, special.mask, special.pad)
        assert len(theirs) == model.tokenizer.vocabulary_size
        assert theirs.model_max_length == 32
        assert theirs.decode(theirs("The bear")["input_ids"], skip_special_tokens=True).lower() == "the bear"
        assert theirs("bear [MASK]")["input_ids"] == load_tokenizer(folder)("bear [MASK]")["input_ids"]
    assert json.loads((folder / "config.json").read_text())["pad_token_id"] == special.pad


def test_it_comes_back(exported: tuple[SavedModel, Path]) -> None:
    """Exported and loaded it has the same weights, and learns the same."""
    model, folder = exported
    again = load_model(folder)
    assert torch.equal(again.state.anchor, model.state.anchor)
    assert again.manifest.model == model.manifest.model
    assert again.manifest.objective == model.manifest.objective
    assert again.tokenizer.encoder_tokens == model.tokenizer.encoder_tokens
    if model.tokenizer.template[0]:
        assert again.tokenizer.sha256 == model.tokenizer.sha256


@pytest.mark.parametrize(("activation", "theirs"), [("gelu", "gelu_new"), ("gelu_erf", "gelu")])
def test_both_forms_of_gelu(activation: str, theirs: str, tmp_path: Path) -> None:
    """Each has its name there."""
    export(encoder(tmp_path / "model", feed_forward=activation), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["hidden_act"] == theirs


def test_formats_for_decoders(tmp_path: Path) -> None:
    """They do not hold it; what does is said. Our own holds every encoder."""
    model = encoder(tmp_path / "model").manifest.model
    for name in ("openai-gpt", "gpt2", "llama", "cohere"):
        with pytest.raises(UsageError, match=r"has bidirectional = false, the model true; export it as bert"):
            choose_format(name, model)
    with pytest.raises(UsageError, match=r"with a decoder, and .* an encoder; export it as bert"):
        choose_format("gguf", model)
    odd = model.model_copy(update={"placement": "pre"})
    assert choose_format(None, odd).name == "safetensors"


def test_the_card(exported: tuple[SavedModel, Path]) -> None:
    """What it is, and for what the hub lists it."""
    model, folder = exported
    card = render_card(_learned(model), FORMATS["bert"])
    assert card == (folder / "README.md").read_text()
    assert front_matter(card)["pipeline_tag"] == "fill-mask"
    assert front_matter(card)["tags"] == ["dupt_swarm", "bert", "mlm"]
    assert "An encoder (BERT) with " in card and "2 heads, post layer norm" in card
    line = FORMATS["bert"].load_line("out", model.manifest)
    assert "AutoModelForPreTraining" in line


@pytest.mark.parametrize("format", ["bert", "safetensors"])
def test_the_example_runs(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The card's own code, in the folder."""
    export(encoder(tmp_path / "model"), tmp_path / "out", format)
    monkeypatch.chdir(tmp_path / "out")
    Path("example.py").write_text(code_of(Path("README.md").read_text()))
    names = runpy.run_path("example.py")
    if format == "bert":
        assert len(capsys.readouterr().out.splitlines()) == 5
    else:
        assert isinstance(names["model"], Bert)


TASKS: dict[str, dict[str, Any]] = {
    "BertForSequenceClassification": {"kind": "entailment", "labels": ["no", "yes", "ü"]},
    "BertForMultipleChoice": {"kind": "multiple-choice"},
    "BertForPreTraining": {"kind": "similarity"},
}
INPUTS = {
    "entailment": [("a premise", "a hypothesis")],
    "multiple-choice": [("a context", "one choice"), ("a context", "another")],
    "similarity": [("a text", "another"), ("another", "a text")],
}


@pytest.mark.parametrize("name", TASKS)
def test_a_task(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes the class that has its head, if there is one; the card's example answers as our model."""
    model = write_model(
        tmp_path / "model", TOKENIZERS["ours"], model=SHAPE, objective={"lm_weight": 0.0, **TASKS[name]}
    )
    export(model, tmp_path / "out")
    theirs = load_theirs(tmp_path / "out", name)
    assert theirs.config.architectures == [name] and theirs.config.classifier_dropout == 0.1
    if labels := TASKS[name].get("labels"):
        assert theirs.config.id2label == dict(enumerate(labels))

    special, encode = model.tokenizer.encoder_tokens, model.tokenizer.encode
    rows = [
        [special.first, *encode(first), special.last, *encode(second), special.last]
        for first, second in INPUTS[TASKS[name]["kind"]]
    ]
    lengths = torch.tensor([[len(row) for row in rows]])
    tokens = torch.tensor([[row + [0] * (int(lengths.max()) - len(row)) for row in rows]])
    ours = model.build(torch.device("cpu"))
    with torch.no_grad():
        expected = ours.logits(tokens, lengths)[0]  # type: ignore[operator]

    card = (tmp_path / "out" / "README.md").read_text()
    assert "hidden state at `[CLS]`, through pooler and tanh" in card and "<|" not in code_of(card)
    monkeypatch.chdir(tmp_path / "out")
    Path("example.py").write_text(code_of(card))
    answer = runpy.run_path("example.py")["answer"]
    torch.testing.assert_close(answer.flatten(), expected, rtol=0, atol=1e-5)


def test_a_template_that_marks_no_pairs_is_replaced() -> None:
    """The second text of a pair is in segment 1, as in training, whatever the tokenizer's template says."""
    backend = tokenizers.Tokenizer.from_str(encoder_tokenizer().to_bytes().decode())
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 0)]
    )
    found = tokenizers.Tokenizer.from_str(
        _with_template(Tokenizer.from_foreign(backend.to_str().encode(), 0)).decode()
    )
    assert backend.encode("a", "b").type_ids == [0, 0, 0, 0, 0]
    assert found.encode("a", "b").type_ids == [0, 0, 0, 1, 1]
