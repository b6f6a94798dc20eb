"""Tests, and what they and the programs under test find before anything else is imported."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# As the node process has it: tests that run hivemind themselves leave no named segments either.
os.environ.setdefault("HIVEMIND_MEMORY_SHARING_STRATEGY", "file_descriptor")
# PyTorch makes the folder when it is imported, and would make one in /tmp.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{Path(__file__).parents[1] / '.pytest_cache/compiled'}")
# Daemons under test live for seconds: collecting their garbage would take a tenth of what they compute.
os.environ |= {"GOGC": "off", "GOMEMLIMIT": "200MiB"}
