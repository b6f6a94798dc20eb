"""``dupt-model``: one command per file of this folder, imported when it runs, so that --help is quick."""

from __future__ import annotations

import click

from dupt_swarm.disk.folders import keep_compiled_kernels
from dupt_swarm.version import VERSION
from peers.lazy_group import LazyGroup

COMMANDS = {
    "pull": "Take the newest model of a swarm, without training.",
    "inspect": "Say what a model folder or a manifest is.",
    "verify": "Check a model by the chain of its swarm's rounds, offline.",
    "eval": "Measure a model on a text, or on pairs: bits per byte, perplexity.",
    "generate": "Continue a text.",
    "fill": "Fill the gaps of a text, with an encoder.",
    "export": "Write a model for other programs.",
    "finetune": "Teach a model a task from labelled examples.",
    "predict": "Let a fine-tuned model answer.",
    "translate": "Let an encoder-decoder write a text for each of many.",
}


@click.group(
    cls=LazyGroup,
    package="peers.model",
    commands=COMMANDS,
    context_settings={"auto_envvar_prefix": "DUPT_MODEL"},
)
@click.version_option(VERSION)
def main() -> None:
    """Take the model of a swarm away: evaluate it, let it write, export and fine-tune it.

    MODEL is a folder that `dupt-model pull` or `finetune` wrote, or an oracle's checkpoint; for `inspect`,
    `eval`, `generate`, `fill` and `finetune` also a folder in Hugging Face's format.
    Every option can also be set by DUPT_MODEL_<COMMAND>_<OPTION>.
    """
    keep_compiled_kernels()
