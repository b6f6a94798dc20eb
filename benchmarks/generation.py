"""How fast a model writes and is evaluated, as ratios of tokens per second between interleaved arms.

    generate/transformers  our `generate` ÷ transformers' `generate`, of the exported model: same weights,
                           prompt and greedy choice, on one CPU in fp32; both must write the same tokens
    eval/plain             our evaluation of whole documents ÷ a plain PyTorch loop over the same documents as
                           one stream, cut into blocks of the context's length: same model, batch, precision

Shapes: `tiny` as it is, which transformers runs as Cohere; that of `gpt2` in its size `tiny`; that of `gpt1`
with pre-norm, which transformers runs as GPT-2 too, with a cache as ours;
and `gpt1` as it is, which transformers runs as OpenAI GPT, for which it has no cache: it reads all tokens
again for each new one. Weights are random: speed does not depend on them. The text is the standard library.

The arms run in turns; the first slice of each is warm-up. How to read it: the median over all pairs of
adjacent slices, with minimum and maximum; above 1 means that ours is faster. On a shared machine run it
with OMP_NUM_THREADS=1, since waiting threads spin.

    python benchmarks/generation.py [--slices 5] [--file PATH]
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
import transformers
from _figures import ratio
from _manifest import manifest_of
from _runs import Run, append, file_option
from torch.nn import functional as F

from dupt_swarm.learning.export.export import choose_format
from dupt_swarm.learning.export.hugging_face import HuggingFace
from dupt_swarm.learning.generation.generate import generate, lay_out_for_writing
from dupt_swarm.learning.generation.sampling import Sampling
from dupt_swarm.learning.rolling import evaluate_documents
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import load_preset

CPU = torch.device("cpu")
PROMPT_TOKENS = 16
TEXT_BYTES = 200_000
BATCH_SIZE = 16

Arm = Callable[[], int]  # does some work; the number of its tokens


@click.command()
@click.option("--slices", type=click.IntRange(2), default=5, show_default=True, help="Slices of each arm.")
@file_option
def main(slices: int, file: Path | None) -> None:
    """Our tokens per second ÷ others'."""
    about = {"transformers": transformers.__version__, "threads": torch.get_num_threads()}
    click.echo(
        f"{slices} slices, torch {torch.__version__}, transformers {about['transformers']}, "
        f"{about['threads']} threads"
    )

    def show(question: str, arms: tuple[Arm, Arm]) -> None:
        found = {"question": question} | compare(*arms, slices)
        append(file, about | found)
        click.echo(f"{question}: {ratios(found)}")

    for name, (tables, tokens) in shapes().items():
        show(f"generate/transformers, {name}, {tokens} tokens", writers(tables, tokens))
    show("eval/plain, gpt2 of size tiny", judges())


def shapes() -> dict[str, tuple[dict[str, Any], int]]:
    """Tables of a manifest, and how many tokens are written."""
    gpt1 = load_preset("gpt1")
    pre_norm = gpt1 | {"model": gpt1["model"] | {"placement": "pre"}}
    return {
        "tiny": (load_preset("tiny"), 96),
        "gpt2 of size tiny": (load_preset("gpt2", "tiny"), 96),
        "gpt1 with pre-norm": (pre_norm, 96),
        "gpt1": (gpt1, 8),
    }


def compare(ours: Arm, theirs: Arm, slices: int) -> Run:
    """The speeds of both in each slice, by the clock and by CPU time; a first one of each is left out."""
    speeds: dict[Arm, list[tuple[float, float]]] = {ours: [], theirs: []}
    for number in range(slices + 1):
        for arm in (ours, theirs) if number % 2 else (theirs, ours):
            speeds[arm].append(tokens_per_second(arm))
    return {"ours": speeds[ours][1:], "theirs": speeds[theirs][1:]}


def ratios(found: Run) -> str:
    """Of the speeds, by the clock and by CPU time: median, minimum and maximum."""
    by_clock, by_cpu = map(ratio, zip(*found["ours"], strict=True), zip(*found["theirs"], strict=True))
    return f"{by_clock} by the clock, {by_cpu} by CPU time"


def tokens_per_second(arm: Arm) -> tuple[float, float]:
    """The speed of one slice: by the clock, and by CPU time, which others on the machine change less."""
    started, used = time.perf_counter(), time.process_time()
    tokens = arm()
    return tokens / (time.perf_counter() - started), tokens / (time.process_time() - used)


def model_of(tables: dict[str, Any], tokenizer: Tokenizer | None = None) -> tuple[Manifest, GPT]:
    """A preset's shape, with random weights large enough for the model to have preferences."""
    manifest = manifest_of(tables, tokenizer)
    model = GPT(manifest.model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(3)
    return manifest, model


def writers(tables: dict[str, Any], tokens: int) -> tuple[Arm, Arm]:
    """Our generation and that of transformers, which write the same tokens."""
    manifest, model = model_of(tables)
    generator = torch.Generator().manual_seed(1)
    prompt = torch.randint(1, manifest.model.vocabulary_size, (1, PROMPT_TOKENS), generator=generator)
    twin = as_transformers(manifest, model)
    lay_out_for_writing(model)  # as `dupt-model generate` does

    def ours() -> list[int]:
        return list(generate(model, prompt[0].tolist(), Sampling(tokens, temperature=0)))

    def theirs() -> list[int]:
        written = twin.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=tokens,
            do_sample=False,
            use_cache=True,
            eos_token_id=None,
        )
        return list(map(int, written[0, PROMPT_TOKENS:]))

    assert ours() == theirs(), "both take the likeliest token, so they must write the same"
    return lambda: len(ours()), lambda: len(theirs())


def as_transformers(manifest: Manifest, model: GPT) -> transformers.PreTrainedModel:
    """The exported model, as transformers builds it."""
    form = choose_format(None, manifest.model)
    assert isinstance(form, HuggingFace)
    config = transformers.AutoConfig.for_model(**form.config(manifest))
    twin = transformers.AutoModelForCausalLM.from_config(config)
    twin.load_state_dict(form.architecture.names.to_theirs(model.state_dict(), model.config), strict=False)
    twin.tie_weights()
    return twin.eval()


def judges() -> tuple[Arm, Arm]:
    """Our evaluation, and a plain loop."""
    documents = texts()
    tables = load_preset("gpt2", "tiny")
    tokenizer = train_tokenizer(documents, tables["model"]["vocabulary_size"])
    _, model = model_of(tables, tokenizer)

    def ours() -> int:
        found = evaluate_documents(
            model, tokenizer, documents, stride=None, batch_size=BATCH_SIZE, device=CPU
        )
        return found.tokens

    return ours, lambda: plain_loop(model, tokenizer, documents)


@torch.no_grad()
def plain_loop(model: GPT, tokenizer: Tokenizer, documents: list[str]) -> int:
    """Evaluate as a script would; how many tokens were predicted."""
    context = model.config.context_length
    stream = [token for ids in tokenizer.encode_batch(documents) for token in [tokenizer.end_of_text, *ids]]
    blocks = (len(stream) - 1) // context
    inputs = torch.tensor(stream[: blocks * context]).view(blocks, context)
    targets = torch.tensor(stream[1 : blocks * context + 1]).view(blocks, context)
    nats = 0.0
    for x, y in zip(torch.split(inputs, BATCH_SIZE), torch.split(targets, BATCH_SIZE), strict=True):
        nats += F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").item()
    return targets.numel()


def texts() -> list[str]:
    """Modules of the standard library."""
    found: list[str] = []
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        if sum(map(len, found)) < TEXT_BYTES:
            found.append(path.read_text(encoding="utf-8", errors="replace"))
    return found


if __name__ == "__main__":
    main()
