"""What the tests of the programs share: text, a manifest, a running first peer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import dupt_peer, first_peer
from tests.support.smaller import make_smaller
from tests.support.texts import library


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of real text: modules of the standard library."""
    return library(tmp_path_factory.mktemp("text") / "text", "argparse", "inspect", "typing", "tarfile")


@pytest.fixture(scope="session")
def manifest(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest made by `new`, with a smaller model and shorter rounds than the preset's."""
    path = tmp_path_factory.mktemp("run") / "run.toml"
    done = dupt_peer("new", str(path), "--preset", "tiny", "--corpus", str(text), "--seed", "3")
    assert done.returncode == 0, done.stderr
    make_smaller(path, tokens_per_round=4096, growth=1.0)
    return path


@pytest.fixture
def bootstrap(manifest: Path, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A running first peer; what it says of itself, and its process."""
    with first_peer(manifest, tmp_path / "bootstrap") as about:
        yield about
