"""Beam search finds what looking at everything finds, and greedily what one would write without a cache."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.generation.beam import BeamSearch, Output, write
from dupt_swarm.learning.transformer.attention import Cache
from dupt_swarm.learning.transformer.encoder_decoder import EncoderDecoder
from tests.learning.transformer.test_encoder_decoder import model

END = 0
SOURCES = [[5, 7, 9], [8], [4, 4, 6, 2]]


def logp(
    ours: EncoderDecoder, source: list[int], output: list[int], vocabulary_size: int | None
) -> list[float]:
    """Of each token of an output, without a cache or other sources beside it."""
    with torch.no_grad():
        memories = ours.encode(torch.tensor([source]))
        h = ours.hidden(torch.tensor([[END, *output[:-1]]]), memories)[0]
        found = (h @ ours.output_weight.T)[:, :vocabulary_size].log_softmax(-1)
    return [float(row[token]) for row, token in zip(found, output, strict=True)]


def exhaustive(ours: EncoderDecoder, source: list[int], search: BeamSearch, V: int, most: int) -> Output:
    """The best of all outputs of V tokens, one of which ends them."""
    words = [token for token in range(V) if token != END]
    outputs = [[*body, END] for n in range(most) for body in product(words, repeat=n)]
    outputs += [list(body) for body in product(words, repeat=most)]
    scored = [
        Output([t for t in each if t != END], sum(logp(ours, source, each, V)) / ((5 + len(each)) / 6) ** 0.6)
        for each in outputs
    ]
    assert search.length_penalty == 0.6
    return max(scored, key=lambda one: one.score)


@pytest.mark.parametrize(("beams", "context"), [(4, 2), (64, 4)])
def test_it_finds_what_looking_at_all_outputs_finds(beams: int, context: int) -> None:
    """With as many beams as nothing is lost, the output and its score are those of an exhaustive search."""
    search = BeamSearch(beams)
    for seed in range(4):
        ours = model(context_length=context)
        ours.init_weights(seed)
        sources = [source[:context] for source in SOURCES]
        found = write(ours, sources, search, end=END, vocabulary_size=3)
        for source, one in zip(sources, found, strict=True):
            best = exhaustive(ours, source, search, 3, context)
            assert one.tokens == best.tokens
            assert one.score == pytest.approx(best.score, abs=1e-5)


def naive(ours: EncoderDecoder, source: list[int], K: int, most: int) -> list[int]:
    """Beam search by sorting all that may come next, each read anew."""
    alive, ended = [([], 0.0)], []  # type: ignore[var-annotated]
    for length in range(1, most + 1):
        nexts = []
        for tokens, total in alive:
            with torch.no_grad():
                h = ours.hidden(torch.tensor([[END, *tokens]]), ours.encode(torch.tensor([source])))[0, -1]
                found = (h @ ours.output_weight.T).log_softmax(-1).tolist()
            nexts += [([*tokens, token], total + each) for token, each in enumerate(found)]
        nexts.sort(key=lambda one: -one[1])
        ended += [(t[:-1], p / ((5 + length) / 6) ** 0.6) for t, p in nexts[:K] if t[-1] == END]
        alive = [one for one in nexts if one[0][-1] != END][:K]
        if len(ended) >= K:
            break
    else:
        ended += [(tokens, p / ((5 + most) / 6) ** 0.6) for tokens, p in alive]
    return max(ended, key=lambda one: one[1])[0]


@pytest.mark.parametrize("beams", [1, 4])
def test_the_cache_and_other_sources_change_nothing(beams: int) -> None:
    """Greedily and with four beams: what is written is what reading everything anew gives, one by one."""
    for seed in range(3):
        ours = model(context_length=8, init_std=0.5)
        ours.init_weights(seed)
        with torch.no_grad():
            ours.wte.weight[END] *= 3  # or nothing ever ended
        found = write(ours, SOURCES, BeamSearch(beams), end=END)
        assert [one.tokens for one in found] == [naive(ours, source, beams, 8) for source in SOURCES]


def test_a_beam_goes_on_as_a_copy_of_another() -> None:
    """What follows is what reading anew all that the other has read gives."""
    ours, rows = model(), torch.tensor([1, 0, 1])
    read, following = torch.tensor([[END, 4, 6], [END, 9, 3], [END, 2, 2]]), torch.tensor([[5], [7], [8]])
    cache = Cache(ours.config, 3, torch.device("cpu"))
    with torch.no_grad():
        memories = ours.encode(torch.tensor([[5, 7]] * 3))
        ours.hidden(read, memories, cache)
        cache.reorder(rows)
        found = ours.hidden(following, memories, cache)
        expected = ours.hidden(torch.cat([read[rows], following], 1), memories)[:, -1:]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_one_beam_takes_the_likeliest_token() -> None:
    """Greedy: each token is the likeliest one after those before it, until the end or the limit."""
    ours = model()
    [output] = write(ours, SOURCES[:1], BeamSearch(1), end=END)
    with torch.no_grad():
        h = ours.hidden(torch.tensor([[END, *output.tokens]])[:, :12], ours.encode(torch.tensor(SOURCES[:1])))
    likeliest = (h[0] @ ours.output_weight.T).argmax(-1).tolist()
    assert output.tokens == likeliest[: len(output.tokens)]
    assert len(output.tokens) == 12 or likeliest[len(output.tokens)] == END


def test_what_it_cannot_search_is_refused() -> None:
    """No beams, a penalty that none would want, and a source without tokens; nothing is written for none."""
    with pytest.raises(UsageError, match="use at least 1"):
        BeamSearch(0)
    with pytest.raises(UsageError, match="use 0 to 10"):
        BeamSearch(length_penalty=-1)
    with pytest.raises(UsageError, match="a source is empty"):
        write(model(), [[1], []], BeamSearch(), end=END)
    assert write(model(), [], BeamSearch(), end=END) == []
