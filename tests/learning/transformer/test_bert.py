"""The encoder."""

import pytest
import torch
from torch.nn import functional as F

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.transformer.attention import attend
from dupt_swarm.learning.transformer.bert import Bert, segments
from tests.learning.transformer.test_gpt import small

PARTS = {"bidirectional": True, "placement": "post", "feed_forward": "gelu_erf", "init_std": 0.2}


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def sequence(*texts: list[int]) -> list[int]:
    """[CLS] text [SEP] …"""
    return [1, *(token for text in texts for token in (*text, 0))]


def test_each_position_sees_all() -> None:
    """Another token anywhere changes what is predicted everywhere."""
    model = Bert(small(**PARTS)).eval()
    tokens = torch.arange(10)[None]
    h, changed = model.hidden(tokens), model.hidden(torch.cat((tokens[:, :-1], torch.tensor([[99]])), 1))
    assert ((h - changed).abs().amax(2) > 1e-4).all()


@pytest.mark.parametrize("placement", ["post", "pre", "parallel"])
def test_padding_changes_nothing(placement: str) -> None:
    """The loss of a batch is the same whether its sequences are filled up or not."""
    model = Bert(small(**PARTS | {"placement": placement})).double().eval()
    rows = [sequence([5, 2, 7], [8, 9]), sequence([2, 11], [12, 2, 14, 15, 16])]
    places, targets = torch.tensor([[2], [1]]), torch.tensor([[6], [10]])
    follows = torch.tensor([0, 1])
    losses = []
    for row in range(2):
        tokens, one = torch.tensor([rows[row]]), slice(row, row + 1)
        length = torch.tensor([len(rows[row])])
        losses.append(model(tokens, places[one], targets[one], length, follows[one]))
    padded = torch.tensor([row + [0] * (12 - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    torch.testing.assert_close(
        model(padded, places, targets, lengths, follows), torch.stack(losses).mean(), rtol=0, atol=1e-6
    )


def test_the_loss_is_that_of_the_paper() -> None:
    """By hand: the mean of −log softmax over a sequence's masked tokens; what fills up counts nothing."""
    model = Bert(small(**PARTS)).eval()
    tokens = torch.tensor([sequence([5, 2, 2, 8]), sequence([2, 6, 7, 8]), sequence([5, 6, 7, 8])])
    places, targets = torch.tensor([[2, 3], [1, 0], [0, 0]]), torch.tensor([[6, 7], [5, -1], [-1, -1]])
    logits = model.masked_logits(model.hidden(tokens))
    first = F.cross_entropy(logits[0, 2:4], torch.tensor([6, 7]))
    second = F.cross_entropy(logits[1, 1:2], torch.tensor([5]))
    torch.testing.assert_close(model(tokens, places, targets), (first + second) / 3)


def test_segments() -> None:
    """A sequence is divided by the token that ends it."""
    tokens = torch.tensor([sequence([5, 6], [7]), [*sequence([5, 6, 7]), 0]])
    assert segments(tokens, torch.tensor([6, 5])).tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 1]]


def test_a_sequence_that_is_not_there_does_no_harm() -> None:
    """As of an example with fewer choices: what it gives is finite."""
    model = Bert(small(**PARTS)).eval()
    assert torch.isfinite(model.read(torch.zeros(1, 5, dtype=torch.int64), torch.tensor([0]))).all()


def test_longer_than_the_context() -> None:
    model = Bert(small(**PARTS))
    with pytest.raises(UsageError, match="more than the context"):
        model.hidden(torch.zeros(1, model.config.context_length + 1, dtype=torch.int64))


def test_fast_attention_on_cpus_sees_what_is_no_padding() -> None:
    """The CPU's own bf16 path gives what PyTorch's kernel gives, but for bf16 rounding."""
    q, k, v = random(3, 2, 4, 33, 8).unbind(0)
    seen = (torch.arange(33) < torch.tensor([20, 33])[:, None])[:, None, None]
    expected = F.scaled_dot_product_attention(q, k, v, seen)
    actual = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), 0.0, seen=seen)
    torch.testing.assert_close(actual.float(), expected, rtol=0, atol=0.03)
