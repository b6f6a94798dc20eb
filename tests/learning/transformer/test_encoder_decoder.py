"""The Transformer of 2017 is that of the paper, and of `torch.nn.Transformer`."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.transformer.attention import Cache
from dupt_swarm.learning.transformer.encoder_decoder import EncoderDecoder
from dupt_swarm.manifest import Model
from tests.support.varied import varied

V, C, K = 300, 32, 12
PAPER = {"placement": "post", "positions": "sinusoidal", "feed_forward": "relu"}


def model(smoothing: float = 0.0, **changes: Any) -> EncoderDecoder:
    """A small one whose gains and biases matter."""
    shape: dict[str, Any] = {
        "vocabulary_size": V,
        "context_length": K,
        "layers": 2,
        "encoder_layers": 3,
        "heads": 4,
    }
    shape |= {"width": C, "hidden_width": 48, "init_std": 0.2}
    made = EncoderDecoder(Model(**(shape | PAPER | changes)), smoothing)
    return varied(made)


def batch(*pairs: tuple[int, int], seed: int = 1) -> tuple[Tensor, ...]:
    """Random pairs of these lengths, padded with anything."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(pairs)
    source, inputs, targets = (
        torch.randint(V, (len(pairs), int(most)), generator=generator)
        for most in lengths.max(0).values[[0, 1, 1]]
    )
    mean = lengths[:, 1] / lengths[:, 1].float().mean()
    return source, lengths[:, 0], inputs, targets, lengths[:, 1], mean


def logits(model: EncoderDecoder, source: Tensor, lengths: Tensor, inputs: Tensor) -> Tensor:
    return model.hidden(inputs, model.encode(source, lengths)) @ model.output_weight.T


THEIRS = {"attn.c_attn": "self_attn.in_proj", "attn.c_proj": "self_attn.out_proj", "ln_1": "norm1"}
THEIRS |= {"mlp.c_fc": "linear1", "mlp.c_proj": "linear2"}
OF_THE_ENCODER = THEIRS | {"ln_2": "norm2"}
OF_THE_DECODER = THEIRS | {
    "cross.c_attn": "multihead_attn.in_proj",
    "cross.c_proj": "multihead_attn.out_proj",
}
OF_THE_DECODER |= {"ln_cross": "norm2", "ln_2": "norm3"}


def name_in_torch(name: str) -> str:
    """What `nn.Transformer` calls a weight of ours."""
    stack, table = ("encoder", OF_THE_ENCODER) if name.startswith("encoder.") else ("decoder", OF_THE_DECODER)
    name = name.removeprefix("encoder.")
    if name.startswith("ln_f"):
        return f"{stack}.{name.replace('ln_f', 'norm')}"
    _, layer, part = name.split(".", 2)
    module, kind = part.rsplit(".", 1)
    joint = "_" if table[module].endswith("in_proj") else "."
    return f"{stack}.layers.{layer}.{table[module]}{joint}{kind}"


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_it_computes_what_torch_computes(placement: str) -> None:
    """What `nn.Transformer` gives, and every gradient, to 1e-5; with padding, and norms in either place."""
    ours = model(placement=placement)
    reference = nn.Transformer(C, 4, 3, 2, 48, dropout=0.0, batch_first=True, norm_first=placement == "pre")
    if placement == "post":  # it normalises once more after the stacks, which the paper does not
        reference.encoder.norm = reference.decoder.norm = None
    blocks = {name: p for name, p in ours.named_parameters() if not name.startswith("wte")}
    reference.load_state_dict({name_in_torch(name): p for name, p in blocks.items()})
    source, lengths, inputs, *_ = batch((7, 5), (4, 9), (1, 2))

    h = ours.hidden(inputs, ours.encode(source, lengths))
    padding = torch.arange(source.size(1)) >= lengths[:, None]
    add = cast(Any, ours.wpe).add
    theirs = reference(
        add(ours.wte(source), 0),
        add(ours.wte(inputs), 0),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(inputs.size(1)),
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    torch.testing.assert_close(h, theirs, rtol=0, atol=1e-5)
    h.square().mean().backward()
    theirs.square().mean().backward(inputs=list(reference.parameters()))
    expected = {name: p.grad for name, p in reference.named_parameters()}
    for name, parameter in blocks.items():
        torch.testing.assert_close(parameter.grad, expected[name_in_torch(name)], rtol=0, atol=1e-5)


def test_embeddings_and_loss_are_the_papers() -> None:
    """√d_model · W_e + sines and cosines; the mean over tokens of the cross-entropy to smoothed labels."""
    ours = model(smoothing=0.1)
    tokens = torch.randint(V, (K,))
    x, _ = ours.embed(tokens[None])
    for position in range(K):
        angles = [position / 10000 ** (2 * i / C) for i in range(C // 2)]
        table = torch.tensor([[angle, angle] for angle in angles], dtype=torch.float64).flatten()
        table[::2], table[1::2] = table[::2].sin(), table[1::2].cos()
        expected = C**0.5 * ours.wte.weight[tokens[position]] + table
        torch.testing.assert_close(x[0, position].double(), expected.double(), rtol=0, atol=1e-5)

    source, source_lengths, inputs, targets, lengths, weights = batch((7, 5), (4, 9), (1, 2))
    logp = logits(ours, source, source_lengths, inputs).double().log_softmax(-1)
    losses = []
    for row, length in enumerate(lengths.tolist()):
        for t in range(length):
            smoothed = torch.full((V,), 0.1 / V, dtype=torch.float64)
            smoothed[targets[row, t]] += 0.9
            losses.append(-(smoothed * logp[row, t]).sum())
    loss = ours(source, source_lengths, inputs, targets, lengths, weights)
    torch.testing.assert_close(loss.double(), torch.stack(losses).mean(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"positions": "rotary", "kv_heads": 2}, {"placement": "pre"}])
def test_padding_changes_nothing(changes: dict[str, Any]) -> None:
    """Three pairs in one batch have the loss, and the gradients, of the three one by one."""
    ours = model(smoothing=0.1, **changes)
    source, source_lengths, inputs, targets, lengths, weights = batch((7, 5), (4, 9), (1, 2))
    together = ours(source, source_lengths, inputs, targets, lengths, weights)
    one_by_one = []
    for row in range(3):
        s, t = slice(int(source_lengths[row])), slice(int(lengths[row]))
        one = (
            source[row, s],
            source_lengths[row],
            inputs[row, t],
            targets[row, t],
            lengths[row],
            weights[row],
        )
        one_by_one.append(ours(*(tensor[None] for tensor in one)))
    torch.testing.assert_close(together, torch.stack(one_by_one).mean(), rtol=0, atol=1e-6)
    gradients = (
        torch.autograd.grad(loss, list(ours.parameters())) for loss in (together, sum(one_by_one) / 3)
    )
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-5)


def test_with_a_cache_it_reads_on() -> None:
    """A target read token by token gives what it gives at once."""
    ours = model(positions="rotary")
    source, lengths, inputs, *_ = batch((7, 5), (4, 5))
    with torch.inference_mode():
        memories, cache = ours.encode(source, lengths), Cache(ours.config, 2, torch.device("cpu"))
        steps = [ours.hidden(inputs[:, t : t + 1], memories, cache) for t in range(5)]
        torch.testing.assert_close(torch.cat(steps, 1), ours.hidden(inputs, memories), rtol=0, atol=1e-5)


def test_the_encoder_sees_all_and_the_decoder_what_came_before() -> None:
    """The last token of the source changes every position; an input changes none before it."""
    ours = model()
    source, lengths, inputs, *_ = batch((7, 5))
    before = logits(ours, source, lengths, inputs)
    changed = source.clone()
    changed[0, -1] = (changed[0, -1] + 1) % V
    assert (logits(ours, changed, lengths, inputs) != before).any(-1).all()
    changed = inputs.clone()
    changed[0, 3] = (changed[0, 3] + 1) % V
    differs = (logits(ours, source, lengths, changed) - before).abs().amax(-1)[0] > 1e-5
    assert differs.tolist() == [False, False, False, True, True]


def test_more_than_the_context_is_refused() -> None:
    """Of the source, and of the target."""
    ours = model()
    for pair in ((K + 1, 2), (2, K + 1)):
        with pytest.raises(UsageError, match="13 tokens are more than the context of 12"):
            ours(*batch(pair))
