"""What a model learns: L1 (language), or a task besides it, L3 = L2 + λ·L1 (Radford et al. 2018, section 3).

build           the model of a manifest: a GPT, or a task model
start           a task's manifest and first weights, from a model that is there already
task_model      the decoder with the task's head W_y
supervised      L2 and L3
tasks/          the input transformations: a file per task
answers/        what an answer is: a label, a score, or one of several choices
libraries       those that not everybody has installed
special         start, delimiter and extract, and how long a text may be beside them
training        `TrainingObjective`: an objective with this machine's data, what an oracle is handed
language        text for L1
task            labelled examples for L3
open            which of the two a manifest asks for
scores          accuracy, F1, correlations, and the evaluation of a task model
"""

from dupt_swarm.learning.objectives.build import build_model, decoder_of

__all__ = ["build_model", "decoder_of"]
