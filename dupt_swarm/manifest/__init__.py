"""The manifest: what every peer of a swarm must share.

manifest        `Manifest`: the whole, read, checked, hashed, and written with comments
tables          its tables, a described field for each key
model           the table `[model]`: what the model is made of
table           what every table is
schedule        the table `[schedule]`, and the arithmetic of decays and growing rounds
learning_rate   learning rates over the life of a swarm, of inner and outer steps
layout          the shapes of a model's parameters
explain         what is wrong with a manifest, or differs between two: one sentence each
"""

from dupt_swarm.manifest.manifest import Manifest
from dupt_swarm.manifest.model import Model
from dupt_swarm.manifest.schedule import Schedule
from dupt_swarm.manifest.tables import (
    Admission,
    Aggregation,
    Encoding,
    Inner,
    Limits,
    Objective,
    Outer,
    Rounds,
    Tokenizer,
)

__all__ = [
    "Admission",
    "Aggregation",
    "Encoding",
    "Inner",
    "Limits",
    "Manifest",
    "Model",
    "Objective",
    "Outer",
    "Rounds",
    "Schedule",
    "Tokenizer",
]
