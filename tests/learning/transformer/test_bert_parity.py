"""With the same weights the encoder computes what transformers' BERT computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.transformer.bert import Bert, segments
from dupt_swarm.manifest import Model
from tests.support.hugging_face import no_complaints
from tests.support.varied import varied

BERT = ARCHITECTURES["bert"]
V, T, PAD, CLS, SEP, MASK = 300, 12, 0, 1, 2, 3


def encoder(**parts: Any) -> Bert:
    """A small one, whose gains and biases matter."""
    shape = {"vocabulary_size": V, "context_length": T, "layers": 2, "heads": 4, "width": 32}
    model = Bert(Model(**(shape | dict(BERT.parts) | {"hidden_width": 48, "init_std": 0.2} | parts)))
    return varied(model)


def pairs() -> dict[str, Tensor]:
    """Three of different lengths, two tokens of each to be predicted."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(4, V, (3, T), generator=generator)
    lengths = torch.tensor([T, 7, 9])
    tokens[:, 0], tokens[torch.arange(3), torch.tensor([5, 2, 6])] = CLS, SEP
    tokens[torch.arange(3), lengths - 1] = SEP
    tokens[torch.arange(T) >= lengths[:, None]] = PAD
    places = torch.tensor([[3, 8], [1, 4], [2, 7]])
    targets = torch.randint(4, V, (3, 2), generator=generator)
    tokens[0].index_fill_(0, places[0], MASK)
    return {
        "tokens": tokens,
        "places": places,
        "targets": targets,
        "lengths": lengths,
        "followed": torch.tensor([0, 1, 1]),
    }


@pytest.mark.parametrize("activation", ["gelu", "gelu_erf"])
def test_it_computes_what_transformers_computes(activation: str) -> None:
    """Both heads' logits, the loss of both, and every gradient, of padded pairs."""
    model, batch = encoder(feed_forward=activation), pairs()
    with no_complaints():
        config = transformers.AutoConfig.for_model("bert", **BERT.settings(model.config))
        reference = transformers.BertForPreTraining(config).eval()
    left = reference.load_state_dict(BERT.names.to_theirs(model.state_dict(), model.config), strict=False)
    assert left == (["cls.predictions.decoder.weight", "cls.predictions.decoder.bias"], [])
    reference.tie_weights()

    tokens, lengths = batch["tokens"], batch["lengths"]
    seen = torch.arange(T) < lengths[:, None]
    theirs = reference(
        tokens,
        attention_mask=seen.long(),
        token_type_ids=segments(tokens, lengths) * seen,
        labels=torch.full_like(tokens, -100).scatter(1, batch["places"], batch["targets"]),
        next_sentence_label=batch["followed"],
    )
    h, loss = model.hidden(tokens, lengths), model(**batch)
    close: Any = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close(model.masked_logits(h)[seen], theirs.prediction_logits[seen], **close)
    torch.testing.assert_close(model.follow_logits(h), theirs.seq_relationship_logits, **close)
    torch.testing.assert_close(loss, theirs.loss, **close)

    theirs.loss.backward()
    loss.backward()
    gradients: dict[str, Any] = {name: parameter.grad for name, parameter in model.named_parameters()}
    ours = BERT.names.to_theirs(gradients, model.config)
    expected = {name: parameter.grad for name, parameter in reference.named_parameters()}
    assert ours.keys() == expected.keys()
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, expected[name], **close)


def test_one_text() -> None:
    """Without lengths all tokens are there, and of one text."""
    model, batch = encoder(), pairs()
    del batch["lengths"], batch["followed"]
    tokens, places = batch["tokens"], batch["places"]
    tokens[tokens == SEP] = 7
    tokens[:, -1] = SEP
    same = model.hidden(tokens, torch.full((3,), T))
    torch.testing.assert_close(model.hidden(tokens), same, rtol=0, atol=1e-6)
    torch.testing.assert_close(
        model(**batch), model.masked_loss(same, places, batch["targets"]), rtol=0, atol=1e-6
    )
