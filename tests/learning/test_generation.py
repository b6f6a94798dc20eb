"""A decoder continues tokens as transformers' decoders do, by a cache that changes nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.architectures.cohere import COHERE
from dupt_swarm.learning.architectures.llama import LLAMA
from dupt_swarm.learning.generation.generate import generate, lay_out_for_writing
from dupt_swarm.learning.generation.sampling import Sampling
from dupt_swarm.learning.transformer.attention import Cache
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.models.saved_model import SavedModel
from tests.support.hugging_face import as_transformers
from tests.support.saved_models import write_model

CPU = torch.device("cpu")
CONTEXT = 24
PROMPT = [5, 77, 130, 9]
GREEDY = Sampling(tokens=15, temperature=0)

PARTS: dict[str, dict[str, object]] = {
    "gpt2": {"placement": "pre"},
    "gpt1": {"placement": "post"},
    "llama": {**LLAMA.parts, "heads": 4, "kv_heads": 2, "tie_embeddings": False},
    "palm": {**COHERE.parts, "heads": 4, "kv_heads": 1},
}


@pytest.fixture(scope="module", params=PARTS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    shape = {**PARTS[request.param], "context_length": CONTEXT, "layers": 3, "hidden_width": 128}
    return write_model(tmp_path_factory.mktemp("model"), model=shape)


@pytest.fixture
def model(saved: SavedModel) -> GPT:
    built = saved.build(CPU)
    assert isinstance(built, GPT)
    return built


def cached(model: GPT, tokens: torch.Tensor, cuts: list[int]) -> torch.Tensor:
    """The logits of tokens that are read in parts."""
    cache = Cache(model.config, len(tokens), CPU)
    parts = [model.hidden(tokens[:, start:end], cache) for start, end in pairwise(cuts)]
    assert cache.length == cuts[-1]
    return F.linear(torch.cat(parts, dim=1), model.output_weight)


@pytest.mark.parametrize(
    "cuts", [[0, CONTEXT], list(range(CONTEXT + 1)), [0, 7, 8, 9, 20, CONTEXT]], ids=["all", "each", "parts"]
)
@torch.no_grad()
def test_the_cache_changes_no_logits(model: GPT, cuts: list[int]) -> None:
    """Read at once, token by token or in parts, the logits are those without a cache."""
    tokens = torch.randint(300, (2, CONTEXT), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(cached(model, tokens, cuts), model(tokens), rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_cleared_cache_is_a_new_one(model: GPT) -> None:
    """What was read before `clear` has no influence."""
    first, second = torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[9, 8, 7]])
    cache = Cache(model.config, 1, CPU)
    model.hidden(first, cache)
    cache.clear()
    torch.testing.assert_close(model.hidden(second, cache), model.hidden(second), rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_full_cache_refuses_more(model: GPT) -> None:
    """One token more than the context is an error, whatever came in before."""
    cache = Cache(model.config, 1, CPU)
    model.hidden(torch.zeros(1, CONTEXT, dtype=torch.int64), cache)
    with pytest.raises(UsageError, match=f"{CONTEXT + 1} tokens are more than the context of {CONTEXT}"):
        model.hidden(torch.zeros(1, 1, dtype=torch.int64), cache)


@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_greedy_tokens_are_those_of_transformers(saved: SavedModel, model: GPT, penalty: float) -> None:
    """Taking the likeliest token, both write the same, for several prompts."""
    twin = as_transformers(saved.manifest, model)
    for prompt in (PROMPT, [1], [8, 8, 8], list(range(100, 109))):
        ids = torch.tensor([prompt])
        expected = twin.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=15,
            do_sample=False,
            repetition_penalty=penalty,
            eos_token_id=None,
        )[0, len(prompt) :].tolist()
        sampling = Sampling(tokens=15, temperature=0, repetition_penalty=penalty)
        assert list(generate(model, prompt, sampling)) == expected
        assert len(set(expected)) > 1


@torch.no_grad()
def test_beyond_the_context_the_last_half_of_it_goes_on(model: GPT) -> None:
    """Each token is the likeliest after what is in the window: when full, it keeps its last half."""
    for prompt in (PROMPT, list(range(100, 100 + CONTEXT)), list(range(100, 130 + CONTEXT))):
        tokens = list(generate(model, prompt, Sampling(tokens=3 * CONTEXT, temperature=0)))
        assert len(tokens) == 3 * CONTEXT
        window = prompt[-CONTEXT:]
        for token in tokens:
            assert token == int(model(torch.tensor([window]))[0, -1].argmax())
            window = [*window, token]
            if len(window) > CONTEXT:
                window = window[-CONTEXT // 2 :]


@torch.no_grad()
def test_the_order_in_memory_changes_no_logits(model: GPT) -> None:
    """Laid out for writing, the wide matrices lie column by column, and the logits are the same."""
    tokens = torch.randint(300, (2, CONTEXT), generator=torch.Generator().manual_seed(1))
    before, written = model(tokens), list(generate(model, PROMPT, GREEDY))
    lay_out_for_writing(model)
    turned = {name for name, parameter in model.named_parameters() if not parameter.is_contiguous()}
    ends = ("wte.weight", "lm_head.weight", "c_attn.weight", "c_gate.weight", "c_fc.weight")
    assert turned == {name for name, _ in model.named_parameters() if name.endswith(ends)}
    torch.testing.assert_close(model(tokens), before, rtol=0, atol=1e-5)
    assert list(generate(model, PROMPT, GREEDY)) == written


def test_a_seed_decides_all_tokens(model: GPT) -> None:
    """The same seed gives the same tokens, another one others, and PyTorch's own generator has no say."""
    state = torch.get_rng_state()
    first, again, other = (list(generate(model, PROMPT, Sampling(30, seed=seed))) for seed in (1, 1, 2))
    assert first == again != other
    assert torch.equal(state, torch.get_rng_state())
    assert list(generate(model, PROMPT, Sampling(30))) != list(generate(model, PROMPT, Sampling(30)))


def test_it_ends_before_the_token_of_the_end(model: GPT) -> None:
    """`end` is not among the tokens, nor is anything after it."""
    tokens = list(generate(model, PROMPT, GREEDY))
    end = tokens[5]
    assert list(generate(model, PROMPT, GREEDY, end=end)) == tokens[: tokens.index(end)]
    assert list(generate(model, PROMPT, Sampling(tokens=0))) == []


def test_ids_beyond_the_vocabulary_are_never_chosen(model: GPT) -> None:
    """A tokenizer of fewer tokens than the model has gets only ids that it knows."""
    tokens = list(generate(model, PROMPT, Sampling(100, temperature=2.0, seed=1), vocabulary_size=40))
    assert max(tokens) < 40
    assert max(generate(model, PROMPT, Sampling(100, temperature=2.0, seed=1))) >= 40


def test_it_leaves_the_mode_as_it_is(tmp_path: Path) -> None:
    """A model in training writes without dropout, and is in training between two tokens."""
    saved = write_model(tmp_path, model={"dropout": 0.5})
    model = saved.build(CPU)
    assert isinstance(model, GPT)
    expected = list(generate(model, PROMPT, GREEDY))
    model.train()
    tokens = []
    for token in generate(model, PROMPT, GREEDY):
        assert model.training
        assert not torch.is_inference_mode_enabled()
        tokens.append(token)
    assert tokens == expected


@pytest.mark.parametrize(
    ("prompt", "message"), [([], "nothing to continue"), ([5, 300], "beyond the model's 300")]
)
def test_a_prompt_that_cannot_be_continued_is_refused(model: GPT, prompt: list[int], message: str) -> None:
    """An empty prompt and one of another tokenizer are errors at once, before the first token."""
    with pytest.raises(UsageError, match=message):
        generate(model, prompt, GREEDY)
