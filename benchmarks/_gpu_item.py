"""One arm of `gpu.py`'s items, in a process of its own, as compiled code outlives the model that it is of.

    _gpu_item.py PRESET SIZE SEQUENCES FOLDER DEVICE ITEM

It is told ``seconds`` (see `_child`), trains for so long, and answers with its tokens per second.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from _child import orders, say
from _gpu_loops import Loop, Shape, nanogpt_loop, own_loop, tokens_file
from torch import nn
from torch._inductor import config as inductor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from dupt_swarm.learning.device import choose_device, free_memory
from dupt_swarm.learning.room import NOTHING, Saving
from dupt_swarm.learning.transformer import cross_entropy, norms
from dupt_swarm.learning.transformer.dropout import Dropout
from dupt_swarm.learning.transformer.feed_forward import ACTIVATIONS

AS_IT_SHIPS, AS_WRITTEN = "as it ships", "not compiled"
NANOGPT = "in nanoGPT's manner"
SAVINGS = {
    "moments in the main memory": Saving(offload=True),
    "activations computed again": Saving(checkpointing=True),
}
TANH_GELU = partial(F.gelu, approximate="tanh")
# PyTorch takes flash attention first on a Hopper, though cuDNN has kernels for that card.
CUDNN_FIRST = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
ITEMS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    AS_IT_SHIPS: nullcontext,
    AS_WRITTEN: nullcontext,
    "PyTorch's dropout": lambda: patch.object(Dropout, "forward", nn.Dropout.forward),
    "PyTorch's GELU": lambda: patch.dict(ACTIVATIONS, gelu=TANH_GELU),
    "cuDNN's attention": lambda: sdpa_kernel(CUDNN_FIRST, set_priority=True),
    "softmax with its maximum first": lambda: inductor.patch(online_softmax=False),
    "small kernels together": lambda: inductor.patch(combo_kernels=True),
    "norms in fp32": lambda: patch.object(norms, "narrowed", lambda x: x),
    "vocabulary as it is": lambda: patch.object(cross_entropy, "_padded", lambda *weights: weights),
    **dict.fromkeys(SAVINGS, nullcontext),
    NANOGPT: nullcontext,
}


def main() -> None:
    """Warm up, then obey."""
    preset, size, sequences, folder, name, item = sys.argv[1:]
    device = choose_device(name)
    shape = Shape(preset, size or None, int(sequences))
    data = tokens_file(Path(folder), shape.manifest.model.vocabulary_size)
    with ITEMS[item]():
        if item == NANOGPT:
            step = nanogpt_loop(shape, data, device).step
        else:
            compiled, saving = False if item == AS_WRITTEN else None, SAVINGS.get(item, NOTHING)
            trainer = own_loop(shape, data, device, compiled=compiled, saving=saving)
            step = lambda: trainer.step().tokens  # noqa: E731
        loop = Loop(step, device)
        free_memory(device)  # the others need it
        say(peak_gib=loop.peak_bytes / 2**30)
        for order in orders():
            loop.run(order["seconds"])
            free_memory(device)
            say(rate=loop.rates[-1])


if __name__ == "__main__":
    main()
