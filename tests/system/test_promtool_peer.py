import shutil
import subprocess
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dupt_swarm.metrics.peer import PEER_METRICS
from dupt_swarm.metrics.spec import Distribution
from tests.support.lacking import skip


class Everything(Collector):
    """A sample of each metric that a peer can have, those of a GPU too."""

    def collect(self) -> Iterator[Metric]:
        for spec in PEER_METRICS:
            labels = tuple("x" for _ in spec.labels)
            if spec.kind == "histogram":
                distribution = Distribution(spec.bounds)
                distribution.observe(1.0)
                yield spec.histogram([(labels, distribution)])
            else:
                yield spec.family([(labels, 1.0)])


@pytest.mark.system
def test_promtool_has_no_complaint_about_a_peer() -> None:
    """Prometheus' own linter accepts every metric that a peer can serve."""
    promtool = shutil.which("promtool")
    if promtool is None:
        skip("promtool is not installed (Debian package prometheus)")
    registry = CollectorRegistry()
    registry.register(Everything())
    text = generate_latest(registry).decode()
    assert all(f"# TYPE {spec.name} " in text for spec in PEER_METRICS)

    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
