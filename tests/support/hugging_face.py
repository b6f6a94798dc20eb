"""Our decoders as those of transformers, with the same weights."""

from typing import Any

import transformers

from dupt_swarm.learning.export.architecture import Architecture
from dupt_swarm.learning.export.export import choose_format
from dupt_swarm.learning.model import GPT
from dupt_swarm.manifest import Manifest


def as_transformers(manifest: Manifest, model: GPT) -> Any:
    """GPT-2 for a pre-norm decoder, OpenAI GPT for a post-norm one, in evaluation mode."""
    form = choose_format(None, manifest.model)
    assert isinstance(form, Architecture)
    config = transformers.AutoConfig.for_model(**form.config(manifest))
    twin = transformers.AutoModelForCausalLM.from_config(config)
    left = twin.load_state_dict(form.names.to_theirs(model.state_dict()), strict=False)
    assert left == (["lm_head.weight"], []), "it is tied"
    twin.tie_weights()
    return twin.eval()
