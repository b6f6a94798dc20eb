"""Builds the library of a fake GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import torch
from torch.utils import cpp_extension

from tests.support.lacking import skip

SOURCE = Path(__file__).with_name("guard.cpp")


def build(folder: Path) -> Path:
    """The library, made in ``folder``; the test is skipped where that is not possible."""
    if torch.version.cuda is not None:
        skip("a fake GPU needs a PyTorch without CUDA")
    if shutil.which("g++") is None:
        skip("a fake GPU needs g++; install it")
    library = folder / "guard.so"
    headers = [f"-I{path}" for path in cpp_extension.include_paths()]
    built = subprocess.run(
        ["g++", "-shared", "-fPIC", "-std=c++20", *headers, SOURCE, "-o", library],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return library
