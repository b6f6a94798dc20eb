"""Trying a tokenizer out: its parts may not go together, whatever each of them says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dupt_swarm.learning.tokenizer_json.encoding import encode_pieces, find_template
from dupt_swarm.learning.tokenizer_json.opening import Opened

# Cut in two, since corpora come in pieces.
PROBES = (
    ("The bear's  2 cubs,", "\n\tall 12345 of them…"),
    (" A naïve e\u0301 ﬁ", " 狐狸 🦊 ية <s> </s>\r\n"),
    ("\n", "  "),
)


def try_out(opened: Opened, decode: Callable[[Sequence[int]], str], *, keeps_text: bool) -> None:
    """Encode a few texts with ``opened``, and see that ``decode`` gives them back if it ``keeps_text``.

    Raises:
        ValueError: it does not do what it says.
        UsageError: it cannot encode a text.
    """
    before = find_template(opened.backend)
    if len(before) > 1 or not all(0 <= index < len(opened.tokens) for index in before):
        raise ValueError("its post-processor puts more before a text than one token of its own")
    # What the vocabulary lacks becomes a special token too, and its own name may be among that.
    unknown = encode_pieces(opened, ["\U0010ffff"])[0]
    special = sorted(opened.special.difference(unknown))
    names = [opened.tokens[index] for index in special]
    # At the beginning of a document, within it, and behind a letter.
    begun, within, behind = (
        encode_pieces(opened, texts, [first] * len(texts))
        for texts, first in ((names, True), (names, False), ([f"a{name}" for name in names], True))
    )
    for index, *encoded in zip(special, begun, within, behind, strict=True):
        if any(index in ids for ids in encoded):
            raise ValueError(
                f"text that spells its token {opened.tokens[index]!r} becomes that special token"
            )
    for probe in PROBES:
        first, second = encode_pieces(opened, probe, [True, False])
        found = decode(first + second)
        if keeps_text and found != "".join(probe):
            raise ValueError(f"its parts do not go together: {''.join(probe)!r} comes back as {found!r}")
