"""The fields that statements, logs and records of peers have in common: ids, digests, counts."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

DIGEST = re.compile("[0-9a-f]{64}")  # SHA-256, hexadecimal
PEER_ID = re.compile("[1-9A-HJ-NP-Za-km-z]{1,64}")  # base 58

Digest = Annotated[str, Field(pattern=f"^{DIGEST.pattern}$")]
PeerId = Annotated[str, Field(pattern=f"^{PEER_ID.pattern}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 62)]
