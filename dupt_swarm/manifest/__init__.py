"""The manifest: what every peer of a swarm must share.

manifest     `Manifest`: the whole, read, checked, and hashed
tables       its tables, a described field for each key
strategies   what each training strategy implies for the other tables
"""

from dupt_swarm.manifest.manifest import Manifest
from dupt_swarm.manifest.tables import (
    Encoding,
    Inner,
    Limits,
    Model,
    Objective,
    Outer,
    Rounds,
    Schedule,
    Tokenizer,
)

__all__ = [
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
