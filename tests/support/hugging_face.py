"""`transformers` without the network, where a warning of its own is an error.

Importing it takes seconds, so tests that need it are of one group, which one worker runs.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported

ONE_WORKER = pytest.mark.xdist_group("transformers")


@contextmanager
def no_complaints() -> Iterator[None]:
    """Fails if `transformers` logs a warning; it shows no progress bars meanwhile."""
    from transformers.utils import logging as theirs

    complaints: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: complaints.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("transformers")
    theirs.disable_progress_bar()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        theirs.enable_progress_bar()
    assert complaints == []


def load_tokenizer(folder: Path) -> Any:
    """What `AutoTokenizer` makes of ``folder``."""
    from transformers import AutoTokenizer

    with no_complaints():
        return AutoTokenizer.from_pretrained(folder)


def load_model(folder: Path, loader: str = "AutoModelForCausalLM") -> Any:
    """What this class of `transformers` makes of ``folder``."""
    import transformers

    with no_complaints():
        return getattr(transformers, loader).from_pretrained(folder)
