"""The order of a decoder's weights in memory."""

from __future__ import annotations

import torch

from dupt_swarm.learning.decoder.gpt import GPT


@torch.no_grad()
def lay_out_for_writing(model: GPT) -> None:
    """Turn the wide matrices of a model on a CPU in memory: each token is written in less time.

    Values, shapes and names stay. A token takes as long as reading all matrices does; those with more rows
    than columns are read up to twice as fast by columns, as transformers keeps those of its blocks.
    Whole batches gain nothing from it, and look up embeddings more slowly.
    """
    if model.wte.weight.device.type != "cpu":
        return
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and parameter.size(0) > parameter.size(1) and not name.startswith("wpe"):
            parameter.data = parameter.data.T.contiguous().T
