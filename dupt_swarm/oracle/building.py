"""Puts an oracle's trainer together."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

from dupt_swarm.learning.device import as_written, maybe_compile
from dupt_swarm.learning.inner.matrices import block_matrices
from dupt_swarm.learning.interruptible import Look, parameter_count, sequences_at_once
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.objectives.training import TrainingObjective
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.optimizer.collaborative import CollaborativeOptimizer
from dupt_swarm.oracle.judge import Judge
from dupt_swarm.settings import OracleSettings
from dupt_swarm.swarm import Swarm


def build_trainer(
    swarm: Swarm, settings: OracleSettings, objective: TrainingObjective, device: torch.device, look: Look
) -> tuple[Trainer, CollaborativeOptimizer]:
    """The model on its device, with its optimizer and its batches.

    ``look`` is called between two batches while a state is judged.
    """
    manifest = swarm.manifest
    # Dropout of this oracle; a checkpoint brings its own random state.
    torch.manual_seed(
        int.from_bytes(hashlib.sha256(f"{manifest.seed} {swarm.peer_id}".encode()).digest()[:8])
    )
    model = build_model(manifest).to(device)
    sequences = at_once(swarm, settings, model, device)

    def measure(blocks: int) -> float:
        with as_written(compiled):
            return objective.measure_held_out(model, device, sequences, blocks, look).loss_nats

    judge = Judge(list(model.parameters()), manifest.model.context_length, measure)
    optimizer = CollaborativeOptimizer(model.parameters(), swarm, block_matrices(model), judge)
    wanted = settings.compile if objective.uniform else bool(settings.compile)
    compiled = maybe_compile(model, device, wanted)
    batches, micro_batches = objective.batches(sequences, swarm.peer_id)
    return Trainer(model, optimizer, batches, device, micro_batches), optimizer


def at_once(swarm: Swarm, settings: OracleSettings, model: nn.Module, device: torch.device) -> int:
    """How many sequences to compute with at once."""
    context_length = swarm.manifest.model.context_length
    return sequences_at_once(settings.batch_size, parameter_count(model), context_length, device)
