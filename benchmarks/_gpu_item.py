"""One arm of `gpu.py`'s items, in a process of its own, as compiled code outlives the model that it is of.

    _gpu_item.py PRESET SIZE SEQUENCES FOLDER DEVICE WITHOUT

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

WITHOUT: dict[str, AbstractContextManager[Any]] = {
    "": nullcontext(),
    "compilation": nullcontext(),
    "large batches": nullcontext(),
    "plain tuning": torch._inductor.config.patch(coordinate_descent_tuning=True),
}
SEQUENCES = 16  # without large batches


def main() -> None:
    """Warm up, then obey."""
    preset, size, sequences, folder, name, without = sys.argv[1:]
    device = choose_device(name)
    shape = Shape(preset, size or None, SEQUENCES if without == "large batches" else int(sequences))
    data = tokens_file(Path(folder), shape.manifest.model.vocabulary_size)
    with WITHOUT[without]:
        trainer = own_loop(shape, data, device, compiled=False if without == "compilation" else None)
        loop = Loop(lambda: trainer.step().tokens, device)
        print(json.dumps({"peak_gib": loop.peak_bytes / 2**30}), flush=True)
        for line in sys.stdin:
            loop.run(float(line))
            if device.type == "cuda":
                torch.cuda.empty_cache()  # the others need it
            print(json.dumps({"rate": loop.rates[-1]}), flush=True)


if __name__ == "__main__":
    main()
