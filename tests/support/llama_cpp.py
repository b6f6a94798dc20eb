"""The real llama.cpp, which needs a newer C library than this machine may have: in a tree of Debian 13."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from tests.support.debian import make_tree

PACKAGES = ("python3", "libgomp1")
# The library for CPUs with bindings, and what these need, for that Python.
WHEELS = ("llama-cpp-py-sync==0.11739", "cffi==2.0.0", "pycparser==2.23", "numpy==2.3.5")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")
# Runs inside: reads a request from stdin, one JSON object, and writes its answer to stdout.
PROGRAM = '''
import json, sys
sys.path.insert(0, "/llama")
from llama_cpp_py_sync import Llama

asked = json.load(sys.stdin)
with Llama(asked["model"], n_ctx=asked["context"], n_threads=1, n_threads_batch=1, flash_attn_type=0,
           type_k="f32", type_v="f32") as model:
    def after(tokens):
        """The logits after each of the tokens, one by one."""
        model._clear_context_state()
        for place, token in enumerate(tokens):
            model._eval_tokens([token], place)
            row = model._lib.llama_get_logits_ith(model._ctx, -1)
            yield [row[index] for index in range(model.n_vocab)]
    written = list(asked["prompt"])
    while len(written) < asked["context"]:
        *_, last = after(written)
        written.append(max(range(len(last)), key=last.__getitem__))
    json.dump({
        "ids": [model.tokenize(text, add_special=False) for text in asked["texts"]],
        "with_special": model.tokenize(asked["texts"][0], add_special=True),
        "logits": list(after(asked["tokens"])),
        "written": written,
    }, sys.stdout)
'''


class LlamaCpp:
    """It, in a tree below ``folder``."""

    def __init__(self, folder: Path) -> None:
        """Make the tree; takes a minute."""
        self.root = folder / "debian"
        make_tree(self.root, "trixie", *PACKAGES)
        wheels = folder / "wheels"
        options = ["--no-deps", "--only-binary=:all:", "--python-version", "3.13", "--dest", str(wheels)]
        options += [part for platform in PLATFORMS for part in ("--platform", platform)]
        pip = [sys.executable, "-m", "pip", "download", "-q"]
        subprocess.run([*pip, *options, *WHEELS], check=True, timeout=300)
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(self.root / "llama")
        (self.root / "program.py").write_text(PROGRAM)

    def __call__(self, model: Path, **asked: Any) -> dict[str, Any]:
        """What it makes of this .gguf."""
        shutil.copy(model, self.root / "model.gguf")
        done = subprocess.run(
            ["chroot", str(self.root), "python3", "/program.py"],
            input=json.dumps({"model": "/model.gguf", **asked}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
