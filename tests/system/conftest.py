"""What system tests share: a Docker engine with our images."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support.containers import ROOT
from tests.support.debian import need
from tests.support.docker import Engine, left_by, package_index

# Debian's program, for tests get no images from a registry.
PROMETHEUS = """
FROM base
RUN apt-get update && apt-get install -y --no-install-recommends prometheus wget \\
    && install --directory --owner nobody /prometheus
USER nobody
ENTRYPOINT ["prometheus"]
"""
# A volunteer's machine, with systemd, as far as a container can be one; the peer's image is its disk.
MACHINE = """
FROM dupt-peer:cpu
USER root
RUN apt-get update && apt-get install -y --no-install-recommends systemd dbus-user-session libpam-systemd \\
    && useradd --create-home --uid 1000 volunteer
ENV XDG_STATE_HOME= XDG_CACHE_HOME= DUPT_PEER_JOIN_CORPUS=
ENTRYPOINT ["/lib/systemd/systemd"]
"""


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """It has the images, and a network of its own; it and all it wrote are removed afterwards."""
    need("dockerd", "debootstrap")
    folder = tmp_path_factory.mktemp("docker")
    engine = Engine(folder)
    try:
        with engine.running(isolated=False), package_index(folder / "served") as pip_conf:
            engine.make_base("base", pip_conf, "python3", "python3-venv", "ca-certificates")
            engine.build("dupt-peer:cpu", ROOT, "peer", "base")
            engine.build("dupt-monitor:cpu", ROOT, "monitor", "base")
            engine.build_from("prom/prometheus:v3.5.0", PROMETHEUS)
            engine.build_from("machine", MACHINE)
        engine.add_compose()
        with engine.running(isolated=True):
            yield engine
    finally:
        shutil.rmtree(folder)
    assert left_by(folder) == []
