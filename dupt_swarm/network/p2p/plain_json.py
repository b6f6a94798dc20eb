"""JSON from strangers."""

from __future__ import annotations

import json
from typing import Any


def load(data: str | bytes) -> Any:
    """What ``data`` stands for.

    Raises:
        ValueError: it is no JSON, or nested too deep.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error
