"""What a model learns: L1 (language), or a task besides it, L3 = L2 + λ·L1 (Radford et al. 2018, section 3).

open             which of them a manifest asks for: its model, and its data
training         `TrainingObjective`: an objective with this machine's data, what an oracle is handed
text             what is learnt from text
language         text for L1
masked_language  text for an encoder: masked tokens, and whether a text follows on another
tables           what is learnt from tables of examples
task             labelled examples for L3
seq2seq          pairs of texts, the second of which is written for the first
task_model       a decoder or encoder with the task's head W_y; L2 and L3
start            a task's manifest and first weights, from a model that is there already
scores           accuracy, F1, correlations, and the evaluation of a task model
"""

from dupt_swarm.learning.objectives.open import (
    backbone_of,
    build_model,
    build_outline,
    decoder_of,
    first_model,
)

__all__ = ["backbone_of", "build_model", "build_outline", "decoder_of", "first_model"]
