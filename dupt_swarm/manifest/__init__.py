"""The manifest: what every peer of a swarm must share.

manifest     `Manifest`: the whole, read, checked, and hashed
tables       its tables, a described field for each key
admission    the table `[admission]`: whom the swarm admits
model        the table `[model]`: what the decoder is made of
table        what every table is
strategies   what each training strategy implies for the other tables
"""

from dupt_swarm.manifest.admission import Admission
from dupt_swarm.manifest.manifest import Manifest
from dupt_swarm.manifest.model import Model
from dupt_swarm.manifest.tables import (
    Aggregation,
    Encoding,
    Inner,
    Limits,
    Objective,
    Outer,
    Rounds,
    Schedule,
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
