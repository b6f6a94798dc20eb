"""What an oracle does with its device, on a fake one: ``scenes.py LIBRARY PRESET [SIZE]`` prints one JSON."""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

from tests.support.fake_gpu.meter import Meter, pretend

SEQUENCES = 2


def main() -> None:
    """Measure."""
    library, preset, *size = sys.argv[1:]
    pretend(library)
    print(json.dumps(measure(preset, *size)))


def measure(preset: str, size: str | None = None) -> dict[str, Any]:
    """Two steps and a round: operators, copies in bytes, and bytes on the device."""
    # After `pretend`, as they load PyTorch.
    import numpy as np
    import torch

    from dupt_swarm.learning.activation_checkpointing import checkpoint_activations
    from dupt_swarm.learning.batches import Batches
    from dupt_swarm.learning.device import autocast
    from dupt_swarm.learning.inner.matrices import block_matrices
    from dupt_swarm.learning.inner.unigrams import Unigrams
    from dupt_swarm.learning.room import Saving
    from dupt_swarm.learning.strategies.diloco import DiLoCo
    from dupt_swarm.learning.strategies.flat import standing_at
    from dupt_swarm.learning.token_files import Split
    from dupt_swarm.learning.trainer import LossMeter, Trainer
    from dupt_swarm.learning.transformer.gpt import GPT
    from dupt_swarm.presets import load_preset, manifest_from_preset
    from peers.checks.footprint import GPU_PROGRAM, estimate_footprint

    rows = load_preset(preset, size)["model"]["vocabulary_size"]
    manifest = manifest_from_preset(
        preset, name="fake", seed=0, tokenizer_sha256="0" * 64, vocabulary_size=rows, size=size
    )
    context, meter, device = manifest.model.context_length, Meter(), torch.device("cuda")
    tokens = np.zeros(SEQUENCES * context * 8, np.uint16)

    class Inner:
        """The inner steps of a strategy, as `CollaborativeOptimizer` takes them."""

        def __init__(self, strategy: DiLoCo, parameters: list[torch.nn.Parameter]) -> None:
            self._strategy, self._parameters = strategy, parameters

        def step(self, *, tokens: int) -> None:
            self._strategy.inner_step(tokens, 1e-4)

        def zero_grad(self) -> None:
            for parameter in self._parameters:
                parameter.grad = None

    def sparing(way: Saving) -> dict[str, Any]:
        """A step of one sequence: bytes copied, and on the device between steps and at most."""
        with device:
            model = GPT(manifest.model)
        checkpoint_activations(model, wanted=way.checkpointing)
        parameters = list(model.parameters())
        anchor = torch.zeros(sum(parameter.numel() for parameter in parameters))
        matrices, unigrams = block_matrices(model), Unigrams(model)
        strategy = DiLoCo(parameters, manifest, anchor, matrices, unigrams, offload=way.offload)
        batches = Batches([Split([tokens])], context, 1, 0, "fake")
        trainer = Trainer(model, Inner(strategy, parameters), batches, device)
        trainer.step()
        meter.begin()
        trainer.step()
        return {"copied": dict(meter.copied), "peak": meter.peak, "live": meter.live}

    ways: list[dict[str, Any]] = []
    estimated = [
        estimate_footprint(manifest, None, "cuda", way).device - GPU_PROGRAM
        for way in Saving.ways(None, None)
    ]
    with meter.watching():
        for way in Saving.ways(None, None):
            before = meter.live
            ways.append(sparing(way) | {"before": before})
            gc.collect()
        with device:  # moving a model made elsewhere fails on fake tensors
            model = GPT(manifest.model)
        parameters = list(model.parameters())
        numel = sum(parameter.numel() for parameter in parameters)
        unigrams = Unigrams(model)
        strategy = DiLoCo(parameters, manifest, torch.zeros(numel), block_matrices(model), unigrams)
        batches = Batches([Split([tokens])], context, SEQUENCES, 0, "fake")
        trainer, losses = Trainer(model, Inner(strategy, parameters), batches, device), LossMeter()
        trainer.step()
        embedded = sum(embedding.numel() for embedding in unigrams.embeddings)
        scaled = manifest.inner.embedding_scale == "model"
        facts: dict[str, Any] = {
            "weights": numel,
            "ways": ways,
            "estimated": estimated,
            "batch_bytes": 2 * SEQUENCES * context * 8,
            "moments": 2 * numel - embedded * scaled,
        }

        def noted() -> dict[str, Any]:
            return {"operators": meter.operators, "copied": dict(meter.copied), "peak": meter.peak}

        meter.begin()
        losses.add(trainer.step())  # what has come is read from the main memory, where values are fake too
        facts["step"] = noted() | {"live": meter.live}
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        anchor = torch.zeros(numel)

        def judged() -> None:
            with standing_at(anchor, parameters):
                pass

        for scene, act in (
            ("unigrams", lambda: unigrams.measure(torch.zeros(len(model.wte.weight), device=device))),
            ("mark", strategy.mark),
            ("contribute", strategy.contribute),
            ("judge", judged),
            ("accept", lambda: strategy.accept(anchor)),
            ("rebase", lambda: strategy.rebase(anchor)),
            ("checkpoint", strategy.state_dict),
            ("rest", lambda: strategy.move_to(torch.device("cpu"))),
            ("wake", lambda: strategy.move_to(device)),
        ):
            meter.begin()
            act()
            facts[scene] = noted() | {"live": meter.live}
        trainer.step()
        with autocast(device), torch.no_grad():
            inputs = torch.zeros(1, context, dtype=torch.int64, device=device)
            facts["normalised"] = str(model.hidden(inputs).dtype)
    return facts


if __name__ == "__main__":
    main()
