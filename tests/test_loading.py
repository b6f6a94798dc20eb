"""What a fresh Python really loads, beside what the sources say."""

import subprocess
import sys


def loaded_by(module: str) -> set[str]:
    """The packages that a fresh Python has loaded after importing ``module``."""
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(result.stdout.split())


def test_trainer_does_not_load_hivemind() -> None:
    """What an oracle imports loads hivemind neither itself nor through others."""
    assert "hivemind" not in loaded_by("dupt_swarm.oracle.oracle")


def test_importing_the_package_is_cheap() -> None:
    """`import dupt_swarm` loads neither torch nor hivemind, so that `--help` answers at once."""
    assert loaded_by("dupt_swarm") & {"torch", "hivemind", "numpy", "pydantic"} == set()


def test_errors_need_no_import_of_their_own() -> None:
    """What the Python reference lists can be caught after `import dupt_swarm` alone."""
    code = "import dupt_swarm; print(dupt_swarm.errors.DuptError.exit_code)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "1\n"
