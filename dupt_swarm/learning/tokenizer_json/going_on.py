"""The same tokenizer for text that does not begin a document.

Llama's tokenizers put a space before each text that they are given, so that its first word is the token that
it is elsewhere. Of a document that is cut in pieces, only the first may get one.
"""

from __future__ import annotations

import json
from typing import Any

import tokenizers

from dupt_swarm.learning.tokenizer_json.losses import is_first_space
from dupt_swarm.learning.tokenizer_json.spelling import Spelling

Table = dict[str, Any]


def going_on(backend: tokenizers.Tokenizer, content: Table, spelling: Spelling) -> tokenizers.Tokenizer:
    """``backend`` without that space; itself if it puts none. ``content`` is its tokenizer.json."""
    changes = {
        "normalizer": _without_prefix(content["normalizer"], spelling),
        "pre_tokenizer": _without_prefix(content["pre_tokenizer"], spelling),
    }
    if all(content[key] == value for key, value in changes.items()):
        return backend
    return tokenizers.Tokenizer.from_str(json.dumps(content | changes))


def _without_prefix(table: Table | None, spelling: Spelling) -> Table | None:
    if table is None or is_first_space(table, spelling):
        return None
    changed = dict(table)
    if table["type"] == "Metaspace":
        changed["prepend_scheme"] = "never"
    if table["type"] == "ByteLevel":
        changed["add_prefix_space"] = False
    for key in ("normalizers", "pretokenizers"):
        if key in table:
            parts = [_without_prefix(part, spelling) for part in table[key]]
            changed[key] = [part for part in parts if part is not None]
    return changed
