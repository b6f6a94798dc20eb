"""`transformers` without the network, where a warning of its own is an error."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dupt_swarm.learning.export.export import choose_format
from dupt_swarm.learning.export.hugging_face import HuggingFace
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported


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


def as_transformers(manifest: Manifest, model: GPT) -> Any:
    """The model of `transformers` that a decoder can be exported as, with its weights, in evaluation mode."""
    import transformers

    form = choose_format(None, manifest.model)
    assert isinstance(form, HuggingFace)
    with no_complaints():
        config = transformers.AutoConfig.for_model(**form.config(manifest))
        twin = transformers.AutoModelForCausalLM.from_config(config)
        left = twin.load_state_dict(
            form.architecture.names.to_theirs(model.state_dict(), manifest.model), strict=False
        )
        assert left == (["lm_head.weight"] if manifest.model.tie_embeddings else [], [])
        twin.tie_weights()
        return twin.eval()
