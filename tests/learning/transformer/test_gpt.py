"""The decoder is causal in every arrangement of its parts, and begins as its seed says."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.interruptible import parameter_count
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.transformer.attention import attend
from dupt_swarm.learning.transformer.cross_entropy import linear_cross_entropy
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.learning.transformer.positions import unturned
from dupt_swarm.manifest import Model
from dupt_swarm.presets import PRESETS, load_preset, manifest_from_preset, sizes_of

LLAMA = {
    "positions": "rotary",
    "norm": "rms",
    "feed_forward": "swiglu",
    "kv_heads": 2,
    "biases": False,
    "tie_embeddings": False,
}
PARTS: dict[str, dict[str, Any]] = {
    "gpt1": {"placement": "post"},
    "gpt2": {"placement": "pre"},
    "transformer": {"placement": "post", "positions": "sinusoidal", "feed_forward": "relu"},
    "llama": LLAMA,
    "palm": LLAMA | {"norm": "layer", "placement": "parallel", "kv_heads": 1, "tie_embeddings": True},
    "qk_norm": LLAMA | {"qk_norm": True, "placement": "post"},
}
each_arrangement = pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)


def small(**changes: Any) -> Model:
    shape = {
        "vocabulary_size": 300,
        "context_length": 12,
        "layers": 2,
        "heads": 4,
        "width": 32,
        "hidden_width": 128,
    }
    return Model(**(shape | changes))


def random_tokens(rows: int, columns: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(300, (rows, columns), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("preset", "size"), [(preset, size) for preset in PRESETS for size in (None, *sizes_of(preset))]
)
def test_the_manifest_declares_the_weights_of_every_preset(preset: str, size: str | None) -> None:
    """Names, shapes and order of the model's weights, and so their number, are those of the manifest."""
    rows = load_preset(preset, size)["model"]["vocabulary_size"]
    manifest = manifest_from_preset(
        preset, name="a", seed=0, size=size, tokenizer_sha256="0" * 64, vocabulary_size=rows
    )
    config = manifest.model
    with torch.device("meta"):
        model = build_model(manifest)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert list(shapes.items()) == list(config.parameter_shapes().items())
    assert parameter_count(model) == config.numel


@each_arrangement
@pytest.mark.parametrize("changes", [{}, {"biases": False}, {"norm": "rms"}, {"tie_embeddings": False}])
def test_the_manifest_declares_the_weights_of_every_arrangement(
    parts: dict[str, Any], changes: dict[str, Any]
) -> None:
    """The same for parts that no preset has together."""
    config = small(**(parts | changes))
    assert parameter_count(GPT(config)) == config.numel


def test_other_weights_than_declared_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder whose weights the manifest does not declare cannot be built."""
    monkeypatch.setattr(Model, "_norm", lambda _self, _name, _width: {})
    with pytest.raises(AssertionError, match="the manifest says otherwise"):
        GPT(small())


def test_the_gpt1_preset_has_the_papers_size() -> None:
    """The gpt1 preset has about 117 million parameters, counting the tied embedding once."""
    with torch.device("meta"):
        model = GPT(Model(**load_preset("gpt1")["model"]))
    blocks = 12 * (12 * 768**2 + 13 * 768)
    assert 40257 * 768 + 512 * 768 + blocks == parameter_count(model) == 116_365_056


@each_arrangement
def test_a_token_never_changes_earlier_predictions(parts: dict[str, Any]) -> None:
    """Changing token t leaves the logits before t as they are, and changes those from t on."""
    model = GPT(small(**parts)).eval()
    tokens = random_tokens(1, 12)
    before = model(tokens)
    tokens[0, 7] = (tokens[0, 7] + 1) % 300
    after = model(tokens)
    assert torch.equal(before[:, :7], after[:, :7])
    assert (before[:, 7:] != after[:, 7:]).any(dim=-1).all()


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_logits_are_the_last_layer_times_the_embedding(placement: str) -> None:
    """P(u) = softmax(h_n·W_eᵀ), with the W_e and W_p that h_0 = U·W_e + W_p was made with."""
    model = GPT(small(placement=placement)).eval()
    tokens = random_tokens(2, 5)
    one_hot = F.one_hot(tokens, 300).float()
    h = one_hot @ model.wte.weight + cast(Tensor, model.wpe.weight)[:5]
    for block in model.h:
        h = block(h, unturned)
    torch.testing.assert_close(model(tokens), model.ln_f(h) @ model.wte.weight.T)
    names = [name for name, _ in model.named_parameters()]
    assert not [name for name in names if "head" in name]


@each_arrangement
def test_initial_weights_follow_the_papers(parts: dict[str, Any]) -> None:
    """Weights are N(0, init_std), GPT-2's residual projections smaller, biases 0 and gains 1."""
    model = GPT(small(**parts, width=128, hidden_width=512, vocabulary_size=1000))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            assert torch.equal(parameter, torch.full_like(parameter, name.endswith("weight")))
            continue
        scaled = parts.get("placement", "pre") != "post" and "c_proj" in name
        expected = 0.02 / 2 if scaled else 0.02
        assert parameter.std().item() == pytest.approx(expected, rel=0.05), name


def test_a_seed_decides_every_bit_of_the_weights() -> None:
    """The same seed gives the same bits, another one others; PyTorch's own generator has no say."""
    model = GPT(small())
    model.init_weights(5)
    torch.manual_seed(123)
    twin = GPT(small())
    twin.init_weights(5)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    twin.init_weights(6)
    assert not torch.equal(model.wte.weight, twin.wte.weight)


def test_inputs_longer_than_the_context_are_refused() -> None:
    """More tokens than the context give an error that says how many fit."""
    with pytest.raises(UsageError, match="13 tokens are more than the context of 12"):
        GPT(small())(random_tokens(1, 13))


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_the_loss_and_its_gradients_are_those_of_cross_entropy(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In chunks of any size, loss and gradients equal those of PyTorch's linear layer and cross-entropy."""
    monkeypatch.setattr("dupt_swarm.learning.transformer.cross_entropy._rows_at_a_time", lambda _: rows)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 16, generator=generator, requires_grad=True)
    weight = torch.randn(300, 16, generator=generator, requires_grad=True)
    targets = random_tokens(1, 20)[0]
    expected = F.cross_entropy(F.linear(x, weight), targets)
    actual = linear_cross_entropy(x, weight, targets)
    torch.testing.assert_close(actual, expected)
    # A factor stands for gradient accumulation.
    for mine, theirs in zip(
        torch.autograd.grad(actual * 0.25, (x, weight)),
        torch.autograd.grad(expected * 0.25, (x, weight)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@each_arrangement
def test_bf16_changes_the_loss_little(parts: dict[str, Any]) -> None:
    """Under bf16 autocast the loss is an fp32 number close to the fp32 loss, and gradients are fp32."""
    model = GPT(small(**parts, context_length=64))
    tokens = random_tokens(4, 65)
    exact = model(tokens[:, :-1], tokens[:, 1:])
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), abs=2e-3)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())


def test_attention_in_bf16_is_pytorchs_attention() -> None:
    """The CPU's own bf16 path gives what F.scaled_dot_product_attention gives, but for bf16 rounding."""
    q, k, v = torch.randn(3, 2, 4, 33, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    actual = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), dropout=0.0, causal=True)
    torch.testing.assert_close(actual.float(), expected, rtol=0, atol=0.03)


def test_dropout_acts_in_training_only() -> None:
    """With dropout the training loss is random, the evaluation loss is not."""
    model = GPT(small(placement="post", dropout=0.5))
    tokens = random_tokens(2, 13)
    losses = [model(tokens[:, :-1], tokens[:, 1:]).item() for _ in range(2)]
    assert losses[0] != losses[1]
    model.eval()
    losses = [model(tokens[:, :-1], tokens[:, 1:]).item() for _ in range(2)]
    assert losses[0] == losses[1]
