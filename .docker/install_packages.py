"""Install what this project needs, without the project itself, into the image's virtual environment.

Run it with the Python of an environment that has pip, beside pyproject.toml and constraints.txt.
Arguments: the virtual environment to install into, and the project's extras that are wanted.
``TORCH_INDEX`` in the environment names one more package index.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

# Of PyTorch: headers and tests, and in `bin` all programs but one; a quarter of its size, unused at run time.
UNUSED = ("include", "test")
USED_PROGRAM = "torch_shm_manager"


def main() -> None:
    """Install, then remove what is only there for PyTorch's own developers."""
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
        shutil.rmtree(torch / folder, ignore_errors=True)  # not every build of PyTorch has all of them
    for path in (torch / "bin").iterdir():
        if path.is_file() and path.name != USED_PROGRAM:
            path.unlink()


if __name__ == "__main__":
    main()
