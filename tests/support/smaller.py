"""Manifests of the preset with a smaller model, for tests of programs that do not ask how well it learns."""

import re
from pathlib import Path

SMALLER = {"layers": 1, "width": 64, "hidden_width": 128}


def make_smaller(manifest: Path, tokens_per_round: int = 8192, **changes: float) -> None:
    """Change the file: a smaller model, shorter rounds, and these keys besides."""
    text = manifest.read_text()
    for key, value in (SMALLER | {"tokens_per_round": tokens_per_round} | changes).items():
        text, count = re.subn(rf"^{key} = \S+", f"{key} = {value}", text, flags=re.MULTILINE)
        assert count == 1, key
    manifest.write_text(text)
