"""Real text to train on."""

import os
from pathlib import Path


def library(folder: Path, *modules: str) -> Path:
    """A new folder with these modules of the standard library."""
    folder.mkdir()
    for module in modules:
        source = Path(os.__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
        (folder / f"{module}.py").write_text(source, encoding="utf-8")
    return folder
