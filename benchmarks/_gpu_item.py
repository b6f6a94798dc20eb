"""One arm of `gpu.py`'s items, in a process of its own, as compiled code outlives the model that it is of.

    _gpu_item.py PRESET SIZE SEQUENCES FOLDER DEVICE ITEM

It is told SECONDS, line by line, trains for so long, and answers with its tokens per second.
"""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
from _gpu_loops import Loop, Shape, own_loop, tokens_file

from dupt_swarm.learning.device import choose_device

AS_IT_SHIPS, AS_WRITTEN, SMALLER = "as it ships", "as written", "16 sequences at once"
SEQUENCES = 16  # of the smaller
ITEMS: dict[str, AbstractContextManager[Any]] = {
    AS_IT_SHIPS: nullcontext(),
    AS_WRITTEN: nullcontext(),
    SMALLER: nullcontext(),
    "Inductor's coordinate descent": torch._inductor.config.patch(coordinate_descent_tuning=True),
}


def main() -> None:
    """Warm up, then obey."""
    preset, size, sequences, folder, name, item = sys.argv[1:]
    device = choose_device(name)
    shape = Shape(preset, size or None, SEQUENCES if item == SMALLER else int(sequences))
    data = tokens_file(Path(folder), shape.manifest.model.vocabulary_size)
    with ITEMS[item]:
        trainer = own_loop(shape, data, device, compiled=False if item == AS_WRITTEN else None)
        loop = Loop(lambda: trainer.step().tokens, device)
        print(json.dumps({"peak_gib": loop.peak_bytes / 2**30}), flush=True)
        for line in sys.stdin:
            loop.run(float(line))
            if device.type == "cuda":
                torch.cuda.empty_cache()  # the others need it
            print(json.dumps({"rate": loop.rates[-1]}), flush=True)


if __name__ == "__main__":
    main()
