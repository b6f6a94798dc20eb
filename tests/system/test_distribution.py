"""What `make dist` builds, and what it is to those who install it without a clone."""

import email
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dupt_swarm.version import VERSION
from tests.support.lacking import skip

ROOT = Path(__file__).parents[2]
PACKAGES = ("dupt_swarm", "monitor", "peers")
# What operators copy from a clone; the programs never read it.
NOT_INSTALLED = ("monitor/grafana/", "monitor/prometheus/", "peers/systemd/")

# To install PyTorch takes as long as the package index does.
pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel, made by `make dist`, which lets twine check both."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        ["make", "dist", f"DIST={folder}", f"VENV={sys.prefix}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (one,) = built.glob("*.whl")
    return one


def shipped() -> set[str]:
    """The files of the repository that the programs consist of."""
    listed = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return {name for name in listed.stdout.splitlines() if not name.startswith(NOT_INSTALLED)}


def test_the_wheel_has_the_programs_and_nothing_else(wheel: Path) -> None:
    """All that git has of the three packages; no test, no benchmark; the version of `dupt_swarm.version`."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(archive.read(metadata))
    assert {name for name in names if ".dist-info/" not in name} == shipped()
    assert (told["Name"], told["Version"]) == ("dupt_swarm", VERSION)


def test_the_sdist_has_what_the_wheel_is_made_of(built: Path) -> None:
    """And the versions that belong to it, and what changed; the wheel was built from it."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert shipped() <= files
    assert {"README.md", "CHANGELOG.md", "constraints.txt", "pyproject.toml"} <= files
    assert not any(name.startswith("tests/") for name in files)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An empty home, which becomes large."""
    folder = tmp_path / "home"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def test_runs_the_demo_in_an_empty_home(wheel: Path, home: Path) -> None:
    """Installed by pipx, outside the clone: three oracles learn, and the model that they leave speaks."""
    pipx = shutil.which("pipx")
    if pipx is None:
        skip("pipx is not installed (Debian package pipx)")
    environment = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "PIPX_HOME": str(home / "pipx"),
        "PIPX_BIN_DIR": str(home / "bin"),
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        "PIP_NO_CACHE_DIR": "1",
    }

    def run(*command: str, seconds: float) -> str:
        done = subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pinned = f"--constraint={ROOT / 'constraints.txt'}"
    run(pipx, "install", "--python", sys.executable, f"--pip-args={pinned}", str(wheel), seconds=1200)
    programs = home / "bin"
    assert {program.name for program in programs.iterdir()} == {"dupt-peer", "dupt-model", "dupt-monitor"}
    for program in programs.iterdir():
        assert VERSION in run(str(program), "--version", seconds=60)
    said = run(str(programs / "dupt-peer"), "demo", "--rounds", "2", seconds=300)
    assert "one model:" in said
    prompt = "Python is"
    model = str(home / "demo-model")
    spoken = run(str(programs / "dupt-model"), "generate", model, "--prompt", prompt, seconds=120)
    assert len(spoken) > len(prompt)
