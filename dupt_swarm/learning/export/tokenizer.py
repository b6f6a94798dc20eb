"""The tokenizer's files: in `transformers` it gives the ids that ours gives, for any text.

`AutoTokenizer` would otherwise choose a class by the model's type, and build another tokenizer from the
vocabulary. And it would read `<|endoftext|>` in a text as the special token; to us it is text.
A tokenizer that came with another model goes out as it came in, with the names that its special tokens have
there. What its template puts before a text, `transformers` puts there too.
"""

from __future__ import annotations

from pathlib import Path

import tokenizers

from dupt_swarm.errors import ManifestError
from dupt_swarm.learning.export.learned import write_json
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest

TASK_TOKENS = ("<|start|>", "<|delimiter|>", "<|extract|>")
"""In the order of their rows in W_e; section 3.3 of Radford et al. 2018."""


def write_tokenizer(folder: Path, tokenizer: Tokenizer, manifest: Manifest) -> None:
    """Write tokenizer.json, the swarm's own unless there is a task, and tokenizer_config.json.

    Raises:
        ManifestError: the vocabulary has the name of one of the task's tokens.
    """
    special = TASK_TOKENS[: manifest.objective.special_tokens]
    (folder / "tokenizer.json").write_bytes(_with_tokens(tokenizer, special))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        # Of ours it is the same: a document begins after the end of another.
        "bos_token": tokenizer.name_of(tokenizer.begin_of_text),
        "eos_token": tokenizer.name_of(tokenizer.end_of_text),
        "additional_special_tokens": list(special),
        "split_special_tokens": True,
        **({} if tokenizer.surplus else {"add_prefix_space": False}),
        "clean_up_tokenization_spaces": False,
        # OpenAI GPT would add the embeddings of token_type_ids, as if they were tokens.
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": manifest.model.context_length,
    }
    write_json(folder / "tokenizer_config.json", config)


def _with_tokens(tokenizer: Tokenizer, special: tuple[str, ...]) -> bytes:
    if not special:
        return tokenizer.to_bytes()
    backend = tokenizers.Tokenizer.from_str(tokenizer.to_bytes().decode())
    backend.add_special_tokens(list(special))
    rows = [tokenizer.vocabulary_size + number for number in range(len(special))]
    if [backend.token_to_id(token) for token in special] != rows:
        raise ManifestError(
            f"the tokenizer's vocabulary has one of {', '.join(special)} already; "
            "export the model as safetensors"
        )
    return backend.to_str(pretty=True).encode()
