"""A model in Hugging Face's format is the same model here, or is refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dupt_swarm.errors import DuptError
from dupt_swarm.learning.importing.hugging_face import Imported, read_hugging_face
from dupt_swarm.learning.strategies.flat import unflatten
from dupt_swarm.learning.transformer.bert import Bert
from dupt_swarm.learning.transformer.gpt import GPT
from tests.support.foreign_models import CONTEXT, SHAPES, write_encoder, write_foreign
from tests.support.foreign_tokenizers import bert_uncased, openai_gpt
from tests.support.saved_models import small_tokenizer

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def built(imported: Imported, kind: type[Any] = GPT) -> Any:
    """The model with its weights."""
    model = kind(imported.model)
    unflatten(torch.cat([values.flatten() for values in imported.parameters]), list(model.parameters()))
    return model.eval()


def logits(model: Any) -> torch.Tensor:
    """Of some tokens."""
    tokens = torch.randint(0, 300, (2, CONTEXT), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = model(tokens)
    return found if isinstance(found, torch.Tensor) else found.logits


def change(folder: Path, **settings: Any) -> None:
    """Change config.json."""
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | settings))


@pytest.mark.parametrize("kind", SHAPES)
def test_the_same_logits(kind: str, tmp_path: Path) -> None:
    """What transformers computes of the folder, the decoder computes; tokenizer and its end come along."""
    theirs = write_foreign(tmp_path, kind)
    imported = read_hugging_face(tmp_path)
    torch.testing.assert_close(logits(built(imported)), logits(theirs), rtol=0, atol=1e-5)
    assert imported.end_of_text == 0
    assert imported.tokenizer == small_tokenizer().to_bytes()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_weights_are_widened(dtype: torch.dtype, tmp_path: Path) -> None:
    """bf16 and fp16 become the fp32 values that they stand for, bit for bit."""
    theirs = write_foreign(tmp_path, dtype=dtype)
    parameters = read_hugging_face(tmp_path).parameters
    assert {values.dtype for values in parameters} == {torch.float32}
    assert torch.equal(parameters[0], theirs.get_input_embeddings().weight.float())


def test_several_files_with_an_index(tmp_path: Path) -> None:
    """Large models lie in several files; an index says which tensor is where."""
    theirs = write_foreign(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert not (tmp_path / WEIGHTS).exists() and len(list(tmp_path.glob("*.safetensors"))) > 2
    torch.testing.assert_close(logits(built(read_hugging_face(tmp_path))), logits(theirs), rtol=0, atol=1e-5)


def test_names_of_old_files(tmp_path: Path) -> None:
    """GPT-2 as it was published: no prefix, and masks among the tensors."""
    theirs = write_foreign(tmp_path, "gpt2")
    tensors = {
        name.removeprefix("transformer."): each for name, each in load_file(tmp_path / WEIGHTS).items()
    }
    save_file(tensors | {"h.0.attn.bias": torch.ones(1, 1, CONTEXT, CONTEXT)}, tmp_path / WEIGHTS)
    torch.testing.assert_close(logits(built(read_hugging_face(tmp_path))), logits(theirs), rtol=0, atol=1e-5)


def test_gpt1_names_no_end_of_a_text(tmp_path: Path) -> None:
    """As published, config.json has no `eos_token_id`; the end of a line is a token that text never has."""
    write_foreign(tmp_path, "openai-gpt", vocab_size=1000)
    change(tmp_path, eos_token_id=None)
    with pytest.raises(DuptError, match="eos_token_id = None"):
        read_hugging_face(tmp_path)
    data, end = openai_gpt()
    (tmp_path / "tokenizer.json").write_bytes(data)
    assert read_hugging_face(tmp_path).end_of_text == end


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
def test_an_encoder(activation: str, tmp_path: Path) -> None:
    """Its logits of masked tokens and of what follows; [SEP] ends a text, whatever config.json says."""
    theirs = write_encoder(tmp_path, hidden_act=activation)
    change(tmp_path, eos_token_id=5)
    imported = read_hugging_face(tmp_path)
    ours, tokens = built(imported, Bert), torch.randint(5, 250, (2, CONTEXT))
    with torch.no_grad():
        found, h = theirs(tokens), ours.hidden(tokens)
    torch.testing.assert_close(ours.masked_logits(h), found.prediction_logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(ours.follow_logits(h), found.seq_relationship_logits, rtol=0, atol=1e-5)
    assert (imported.tokenizer, imported.end_of_text) == bert_uncased()
    assert imported.drawn == ()


def test_an_encoder_without_the_head_for_pairs(tmp_path: Path) -> None:
    """Files of a BertForMaskedLM lack two modules, which are drawn; any other is missing."""
    theirs = write_encoder(tmp_path, "BertForMaskedLM")
    imported = read_hugging_face(tmp_path)
    assert imported.drawn == ("pooler", "follows")
    ours, fresh, tokens = built(imported, Bert), Bert(imported.model), torch.randint(5, 250, (2, CONTEXT))
    with torch.no_grad():
        logits = ours.masked_logits(ours.hidden(tokens))
        torch.testing.assert_close(logits, theirs(tokens).logits, rtol=0, atol=1e-5)
    assert torch.equal(ours.pooler.weight, fresh.pooler.weight)
    tensors = load_file(tmp_path / WEIGHTS)
    half = tensors | {"bert.pooler.dense.bias": torch.zeros(32)}
    none = {name: each for name, each in tensors.items() if "transform" not in name}
    for given, missing in (
        (half, "bert.pooler.dense.weight"),
        (none, "cls.predictions.transform.dense.weight"),
    ):
        save_file(given, tmp_path / WEIGHTS)
        with pytest.raises(DuptError, match=f"`{missing}` is missing"):
            read_hugging_face(tmp_path)


def test_an_encoder_as_google_published_it(tmp_path: Path) -> None:
    """Gains and shifts of norms have other names, and copies lie beside the tied weights."""
    write_encoder(tmp_path)
    expected = read_hugging_face(tmp_path).parameters
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): each
        for name, each in load_file(tmp_path / WEIGHTS).items()
    }
    tensors["bert.embeddings.position_ids"] = torch.arange(CONTEXT)[None]
    for copied, of in (
        ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ):
        tensors[copied] = tensors[of].clone()
    save_file(tensors, tmp_path / WEIGHTS)
    found = read_hugging_face(tmp_path).parameters
    assert all(map(torch.equal, found, expected))
    tensors["cls.predictions.decoder.bias"] += 1
    save_file(tensors, tmp_path / WEIGHTS)
    with pytest.raises(DuptError, match=r"decoder.bias` differs from `cls.predictions.bias`"):
        read_hugging_face(tmp_path)


def test_positions_in_either_table(tmp_path: Path) -> None:
    """Their base may stand in `rope_scaling` too, as transformers reads it."""
    write_foreign(tmp_path)
    change(tmp_path, rope_parameters=None, rope_scaling={"rope_type": "default", "rope_theta": 77.0})
    assert read_hugging_face(tmp_path).model.rotary_base == 77.0


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_an_output_that_is_said_to_be_tied(kind: str, tmp_path: Path) -> None:
    """A copy of the embedding is passed over; one that differs is refused, as it would be lost."""
    write_foreign(tmp_path, kind, tie_word_embeddings=True)
    tensors = load_file(tmp_path / WEIGHTS)
    [embedding] = [
        each for name, each in tensors.items() if name.endswith(("embed_tokens.weight", "wte.weight"))
    ]
    save_file(tensors | {"lm_head.weight": embedding.clone()}, tmp_path / WEIGHTS)
    assert torch.equal(read_hugging_face(tmp_path).parameters[0], embedding)
    for other in (embedding + 0.01, embedding[:3].clone()):
        save_file(tensors | {"lm_head.weight": other}, tmp_path / WEIGHTS)
        with pytest.raises(DuptError, match=r"`lm_head.weight` differs from `.*(embed_tokens|wte).weight`"):
            read_hugging_face(tmp_path)


def test_a_folder_of_hugging_faces_cache(tmp_path: Path) -> None:
    """There the files are links to `blobs` beside the snapshots."""
    snapshot, blobs = tmp_path / "snapshots" / "0a1b", tmp_path / "blobs"
    write_foreign(blobs)
    snapshot.mkdir(parents=True)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(Path("../../blobs") / file.name)
    assert read_hugging_face(snapshot).parameters


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("llama", {"model_type": "mistral"}, "architecture 'mistral' cannot .* openai-gpt, gpt2, llama"),
        ("llama", {"model_type": ["llama"]}, "cannot be represented"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "scaled .*'linear'"),
        ("llama", {"rope_parameters": {"rope_type": "llama3"}}, "scaled .*'llama3'"),
        ("llama", {"attention_bias": True}, "attention_bias = True cannot be represented"),
        ("llama", {"mlp_bias": True}, "mlp_bias = True cannot be represented"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act = 'gelu' cannot be represented"),
        ("llama", {"head_dim": 16}, "head_dim = 16 is not"),
        ("llama", {"num_attention_heads": 0}, "num_attention_heads = 32 ÷ 0"),
        ("llama", {"hidden_size": "32"}, "hidden_size"),
        ("llama", {"hidden_size": None, "head_dim": None}, "lacks hidden_size"),
        ("llama", {"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000"),
        ("llama", {"num_hidden_layers": 3}, r"`model.layers.2.input_layernorm.weight` is missing"),
        ("llama", {"num_hidden_layers": 1}, "no place here for `model.layers.1"),
        ("llama", {"vocab_size": 1 << 24}, "has shape .* by config.json"),
        ("llama", {"eos_token_id": None}, "eos_token_id = None"),
        ("llama", {"eos_token_id": 10**6}, "eos_token_id = 1000000"),
        ("llama", {"tie_word_embeddings": True, "vocab_size": 299}, "has shape"),
        ("llama", {"head_dim": "x", "num_attention_heads": 3 * 10**9}, "head_dim = 'x' is no number"),
        ("llama", {"head_dim": [1], "num_attention_heads": 5 * 10**8}, r"head_dim = \[1\] is no number"),
        ("llama", {"hidden_size": "32" * 10**5}, "hidden_size = .{,130} is no number"),
        ("llama", {"hidden_act": "x" * 10**5}, "hidden_act = .{,130} cannot be represented"),
        ("llama", {"model_type": "x" * 10**5}, "architecture .{,130} cannot be represented"),
        ("llama", {"model_type": None}, "no model_type, so it is in another format"),
        ("cohere", {"logit_scale": 0.0625}, "logit_scale = 0.0625 cannot be represented"),
        ("cohere", {"logit_scale": None}, "logit_scale = 0.0625 cannot be represented"),
        ("cohere", {"use_qk_norm": True}, "use_qk_norm = True cannot be represented"),
        ("cohere", {"rope_parameters": None}, "lacks rope_theta"),
        ("cohere", {"rope_parameters": "x"}, "config.json is malformed"),
        ("llama", {"rms_norm_eps": 0}, "rms_norm_eps = 0: .*cannot be represented"),
        ("gpt2", {"n_embd": int("9" * 4300)}, "n_embd = a huge number is no number"),
        ("gpt2", {"num_attention_heads": 2}, "n_head and num_attention_heads differ"),
        ("gpt2", {"activation_function": "relu"}, "activation_function = 'relu' cannot be represented"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "cannot be represented"),
        ("gpt2", {"attn_pdrop": 0.3}, "embd_pdrop, attn_pdrop, resid_pdrop differ"),
        ("gpt2", {"tie_word_embeddings": False}, "tie_word_embeddings = False cannot be represented"),
        ("bert", {"hidden_act": "silu"}, "hidden_act = 'silu' cannot be represented here; only 'gelu' or"),
        ("bert", {"hidden_act": ["gelu"]}, r"hidden_act = \['gelu'\] cannot be represented"),
        ("bert", {"position_embedding_type": "relative_key"}, "'relative_key' cannot be represented"),
        ("bert", {"is_decoder": True}, "is_decoder = True cannot be represented"),
        ("bert", {"type_vocab_size": 1}, "type_vocab_size = 1 cannot be represented"),
        ("bert", {"hidden_dropout_prob": 0.3}, "hidden_dropout_prob, attention_probs_dropout_prob differ"),
    ],
)
def test_what_cannot_be_represented_is_named(
    kind: str, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """What config.json says that we have nothing for, or that the files lack, is an error that says it."""
    write_encoder(tmp_path) if kind == "bert" else write_foreign(tmp_path, kind)
    change(tmp_path, **settings)
    with pytest.raises(DuptError, match=message):
        read_hugging_face(tmp_path)


def test_tensors_that_are_wrong_are_named(tmp_path: Path) -> None:
    """Not finite, of another type, missing, or too many."""
    write_foreign(tmp_path)
    good = load_file(tmp_path / WEIGHTS)
    name = "model.layers.1.mlp.up_proj.weight"
    nan, infinite, integer = good[name].clone(), good[name].clone(), good[name].to(torch.int8)
    nan[3, 5], infinite[3, 5] = torch.nan, torch.inf
    for tensors, message in (
        (good | {name: nan}, f"`{name}` has values that are not finite"),
        (good | {name: infinite}, f"`{name}` has values that are not finite"),
        (good | {name: integer}, f"`{name}` is of type I8"),
        (good | {"model.layers.1.adapter.weight": nan}, r"no place here for `model.layers.1.adapter.weight`"),
        ({other: each for other, each in good.items() if other != name}, f"`{name}` is missing"),
        (good | {name: good[name].T.contiguous()}, r"has shape \[32, 48\], and by config.json \[48, 32\]"),
    ):
        save_file(tensors, tmp_path / WEIGHTS)
        with pytest.raises(DuptError, match=message):
            read_hugging_face(tmp_path)


def test_files_that_are_wrong_are_named(tmp_path: Path) -> None:
    """Damaged, cut off, missing, of absurd size, or only pickled: the file is named, and the remedy."""
    write_foreign(tmp_path)
    path, good = tmp_path / WEIGHTS, (tmp_path / WEIGHTS).read_bytes()
    huge = (1 << 60).to_bytes(8, "little") + good[8:]
    header = json.dumps({"x": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    for data in (b"", b"not safetensors", good[:-100], huge, len(header).to_bytes(8, "little") + header):
        path.write_bytes(data)
        with pytest.raises(DuptError, match=r"model.safetensors: not a safetensors file, or damaged"):
            read_hugging_face(tmp_path)
    path.unlink()
    with pytest.raises(DuptError, match=r"no model.safetensors and no"):
        read_hugging_face(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(DuptError, match=r"pickled weights can run any code .*save_pretrained"):
        read_hugging_face(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    for name in ("../../etc/passwd", "\0.safetensors", "\ud800.safetensors", "a/b.safetensors", "x" * 10_000):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(DuptError, match="names no files of this folder"):
            read_hugging_face(tmp_path)
    index.write_text(json.dumps({"weight_map": {str(n): f"{n}.safetensors" for n in range(1001)}}))
    with pytest.raises(DuptError, match="names no files of this folder"):
        read_hugging_face(tmp_path)
    (tmp_path / "0.safetensors").write_bytes(good)
    (tmp_path / "1.safetensors").write_bytes(good)
    (tmp_path / "2.safetensors").symlink_to("0.safetensors")
    for names, message in (((0, 1), "is in another file too"), ((0, 2), "the same as another")):
        index.write_text(json.dumps({"weight_map": {str(n): f"{n}.safetensors" for n in names}}))
        with pytest.raises(DuptError, match=message):
            read_hugging_face(tmp_path)
    (tmp_path / CONFIG).write_text("{}," * 400_000)
    with pytest.raises(DuptError, match=r"config.json: more than 1 MiB"):
        read_hugging_face(tmp_path)
    (tmp_path / CONFIG).write_text("[" * 100_000)
    with pytest.raises(DuptError, match=r"config.json: not valid JSON"):
        read_hugging_face(tmp_path)
    (tmp_path / CONFIG).unlink()
    with pytest.raises(DuptError, match=r"no config.json"):
        read_hugging_face(tmp_path)


def test_links_and_devices_are_refused(tmp_path: Path) -> None:
    """A link out of the folder is not followed, and nobody waits for a pipe."""
    model, private = tmp_path / "models" / "model", tmp_path / "private.json"
    blob = tmp_path / "blobs" / "x"  # these belong to folders in `snapshots` only
    blob.parent.mkdir()
    write_foreign(model)
    for file in (private, blob):
        file.write_text("{}")
    for make in (
        lambda path: path.symlink_to(private),
        lambda path: path.symlink_to(blob),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path.name),
        os.mkfifo,
        Path.mkdir,
    ):
        for name in (WEIGHTS, "tokenizer.json", CONFIG):
            kept = (model / name).rename(tmp_path / "kept")
            make(model / name)
            with pytest.raises(DuptError, match=f"{name}: (a link that leads out|cannot be read|not a file)"):
                read_hugging_face(model)
            (model / name).rmdir() if (model / name).is_dir() else (model / name).unlink()
            kept.rename(model / name)
    assert read_hugging_face(model).parameters
