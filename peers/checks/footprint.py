"""What a swarm's model takes of a machine, estimated before anything is started."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dupt_swarm.learning.batches import cut_step
from dupt_swarm.learning.inner import MOMENTS
from dupt_swarm.learning.interruptible import parameter_count, sequences_at_once
from dupt_swarm.learning.objectives import build_outline
from dupt_swarm.learning.room import NOTHING, Saving
from dupt_swarm.learning.transformer.attention import PLAIN_TOKENS
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.tables import MASKED
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.settings import BATCH_SIZE

FLOAT = 4  # bytes of an fp32 number
PROGRAM = 600e6  # of a process that has PyTorch, or hivemind and PyTorch, loaded
GPU_PROGRAM = 700e6  # CUDA's context, on the GPU
STATES_AT_ONCE = 3  # the current one, the last one while others download it, and a newer one
CHECKPOINTS_AT_ONCE = 3  # two that are kept, and the one being written
VECTORS_SHARED = 2  # anchor and contribution, between trainer and node
VECTORS_AVERAGING = 1  # the encoded average, and parts under way


@dataclass(frozen=True)
class Footprint:
    """Estimates in bytes, good to about a third.

    Attributes:
        device: what training takes on its device: parameters, gradients, optimizer, activations.
        node: what the node takes of the main memory, replica states and what is under way, and with it a
            trainer whose device has memory of its own.
        disk: checkpoints; the tokens of the corpus come on top.
        saving: how the device is spared.
    """

    device: float
    node: float
    disk: float
    saving: Saving = NOTHING


def estimate_footprint(
    manifest: Manifest, batch_size: int | None, device: str, saving: Saving = NOTHING, devices: int = 1
) -> Footprint:
    """What an oracle takes that trains on ``device`` (cpu, cuda or mps), ``batch_size`` sequences at once.

    None: what it cannot do without, on a GPU one sequence. Of several ``devices`` it tells what the first
    takes, and the main memory that the processes of the others share with the trainer.
    """
    on_gpu = device == "cuda"
    parameters = parameter_count(build_outline(manifest))
    vector = FLOAT * parameters
    moments = MOMENTS[manifest.inner.optimizer]
    # Parameters and gradients; on a CPU diloco: anchor and what was sent, gradient: their sums; and two in
    # between. A GPU's trainer has what it keeps for a round, for the judge, and of itself while a checkpoint
    # is written, in the main memory.
    training = (2 + moments + (0 if on_gpu else 4)) * vector
    kept = float((3 + moments if on_gpu else 0) * vector)
    updating = 0.0
    if on_gpu and saving.offload:
        training -= moments * vector
        kept += moments * vector
        # Of the largest matrix, as it is updated: a moment, and numbers in between.
        updating = 3 * FLOAT * manifest.model.vocabulary_size * manifest.model.width
    kept += (devices - 1) * (PROGRAM + vector)  # of the others' processes
    state = (1 + len(build_outer(manifest).buffer_names)) * vector
    at_once = sequences_at_once(
        *(batch_size or (1 if on_gpu else BATCH_SIZE), parameters, manifest.model.context_length),
        torch.device(device),
    )
    sequences, _ = cut_step(manifest, at_once)
    activations = sequences * _activation_bytes(manifest, device, saving.checkpointing)
    return Footprint(
        device=training + max(activations, updating) + (GPU_PROGRAM if on_gpu else 0),
        node=PROGRAM + STATES_AT_ONCE * state + (VECTORS_SHARED + VECTORS_AVERAGING) * vector + kept,
        disk=CHECKPOINTS_AT_ONCE * (state + (1 + moments) * vector),
        saving=saving,
    )


def _activation_bytes(manifest: Manifest, device: str, checkpointing: bool) -> float:
    """What one sequence leaves for the backward pass, counted as fp32 on CPUs and bf16 on GPUs."""
    model = manifest.model
    size = 2 if device == "cuda" else FLOAT
    # Two residual sums in fp32; two norms, query, key, value, attention, projection; the hidden layer twice,
    # and with a gate twice as much.
    hidden = 4 if model.gated else 2
    layer = (2 * FLOAT + 7 * size) * model.width + hidden * size * model.hidden_width
    if device != "cuda" and model.context_length <= PLAIN_TOKENS:
        layer += 2 * size * model.heads * model.context_length  # attention's probabilities
    if model.dropout:
        layer += 3 * size * model.width
    crossing = (FLOAT + 5 * size) * model.width if model.encoder_layers else 0  # of a decoder's block
    # An encoder's are those of its masked tokens alone.
    share = manifest.objective.masked_share if manifest.objective.kind == MASKED else 1.0
    logits = 2 * size * model.vocabulary_size * share
    blocks = (model.layers + model.encoder_layers) * layer + model.layers * crossing
    if checkpointing:  # what goes into each, and all of the one that is computed again
        blocks = (model.layers + model.encoder_layers) * FLOAT * model.width + layer + crossing
    return float(model.context_length * (blocks + logits))
