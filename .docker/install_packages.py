"""Installs the project's dependencies, without the project itself, into the image's virtual environment.

Run it with the Python of an environment that has pip, in the folder of pyproject.toml and constraints.txt.
Arguments: the virtual environment to install into, then the project's extras to include.
The environment variable ``TORCH_INDEX`` may name an extra package index.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

# PyTorch's headers and tests, and all programs in `bin` but one: a quarter of its size, unused at run time.
UNUSED = ("include", "test")
USED_PROGRAM = "torch_shm_manager"


def main() -> None:
    """Install the packages, then remove what only PyTorch's developers need."""
    environment, *extras = sys.argv[1:]
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    index = os.environ.get("TORCH_INDEX")
    more = ["--extra-index-url", index] if index else []
    pip = [sys.executable, "-m", "pip", "--python", environment]
    subprocess.run([*pip, "install", "-c", "constraints.txt", *more, *wanted], check=True)
    [torch] = Path(environment).glob("lib/python3*/site-packages/torch")
    for folder in UNUSED:
        shutil.rmtree(torch / folder, ignore_errors=True)  # some builds of PyTorch lack one of them
    for path in (torch / "bin").iterdir():
        if path.is_file() and path.name != USED_PROGRAM:
            path.unlink()


if __name__ == "__main__":
    main()
