"""How likely an encoder finds a text: each token in turn is masked, and predicted from all the others.

That is the pseudo-log-likelihood of Salazar et al. 2020 (arXiv:1910.14659), section 2. It is not comparable
with a decoder's: there each token is predicted from those before it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from dupt_swarm.learning.documents import Piece
from dupt_swarm.learning.evaluation import Evaluation
from dupt_swarm.learning.interruptible import Look, parameter_count, sequences_at_once
from dupt_swarm.learning.rolling import EncodedText, Predicted, evaluate_encoded
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.bert import Bert


@torch.no_grad()
def evaluate_masked_pieces(
    model: Bert,
    tokenizer: Tokenizer,
    pieces: Iterable[Piece],
    *,
    batch_size: int,
    device: torch.device,
    look: Look = lambda *_: None,
) -> Evaluation:
    """The mean over all tokens of all documents, in fp32, summed up in fp64; restores the model's mode.

    A document that is longer than the context is cut, and each part is a text of its own. It takes as many
    passes as there are tokens.

    Args:
        model: on ``device``.
        tokenizer: the model's.
        pieces: the documents; see `read_pieces`.
        batch_size: passes at once at most.
        device: where to compute.
        look: called before each batch with the bytes of text that are predicted, and read, so far; it may
            raise `Abandoned`.

    Raises:
        CorpusError: there is no text.
    """
    special, context = tokenizer.encoder_tokens, model.config.context_length
    at_once = sequences_at_once(batch_size, parameter_count(model), context, device)
    text = EncodedText(tokenizer, pieces)
    wholes = (torch.tensor([special.first, *ids, special.last]) for ids in _parts(text, context - 2))
    batches = (
        (whole, places)
        for whole in wholes
        for places in torch.split(torch.arange(1, len(whole) - 1), at_once)
    )

    def predict(batch: tuple[Tensor, Tensor]) -> Predicted:
        whole, places = batch
        rows = whole.expand(len(places), -1).scatter(1, places[:, None], special.mask)
        h = model.hidden(rows.to(device))[torch.arange(len(places)), places]
        logits, true = model.masked_logits(h).float(), whole[places]
        return F.cross_entropy(logits, true.to(device), reduction="sum").item(), true

    return evaluate_encoded(model, tokenizer, text, batches, predict, look)


def _parts(text: EncodedText, most: int) -> Iterator[list[int]]:
    """The tokens of each document, ``most`` at a time."""
    held: list[int] = []
    for ids, last in text:
        held += ids
        while len(held) >= most or (last and held):
            yield held[:most]
            del held[:most]
