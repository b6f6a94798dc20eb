# Two images:
#   docker build -t dupt-peer .                                    a peer, for NVIDIA GPUs
#   docker build -t dupt-peer:cpu --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu .
#   docker build -t dupt-monitor --target monitor .                the exporter, which needs no GPU
# BASE_IMAGE: Debian with Python 3.11 to 3.13 and its venv module. Its digest counts, whatever becomes of the tag;
# `docker buildx imagetools inspect python:3.11-slim-bookworm` names that of a newer one, for all platforms.
# TORCH_INDEX: an extra package index, for PyTorch builds other than PyPI's, which are for CUDA.
ARG BASE_IMAGE=python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1

# pip stays in this stage, in an environment of its own; /opt/dupt goes into the images.
FROM ${BASE_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1
WORKDIR /build
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/dupt
# Dependencies without the program: a layer of gigabytes that a new version of the program leaves unchanged.
COPY pyproject.toml constraints.txt .docker/install_packages.py ./

FROM build AS peer-packages
ARG TORCH_INDEX=
RUN /opt/pip/bin/python3 install_packages.py /opt/dupt parquet wikipedia gguf

FROM build AS monitor-packages
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN /opt/pip/bin/python3 install_packages.py /opt/dupt

FROM build AS program
COPY README.md ./
COPY dupt_swarm dupt_swarm
COPY peers peers
COPY monitor monitor
RUN /opt/pip/bin/pip --python /opt/dupt install --no-deps --prefix /program .

FROM ${BASE_IMAGE} AS runtime
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /state dupt \
    && install -d -o dupt -g dupt /state /corpus
# Everything that a peer keeps, caches included, lies in /state; apart from that it writes to /tmp only.
ENV PATH=/opt/dupt/bin:$PATH \
    XDG_STATE_HOME=/state \
    XDG_CACHE_HOME=/state/cache
ARG VERSION=0.4.0
ARG REVISION=unknown
LABEL org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION}

FROM runtime AS monitor
LABEL org.opencontainers.image.title=dupt-monitor \
      org.opencontainers.image.description="Watches a DUPT swarm, and exports what it sees to Prometheus"
ENV DUPT_MONITOR_HOST=0.0.0.0
VOLUME /state
EXPOSE 9464
HEALTHCHECK --interval=30s --timeout=10s --start-period=3m \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9464/healthz', timeout=5)"]
ENTRYPOINT ["tini", "--", "dupt-monitor"]
COPY --from=monitor-packages /opt/dupt /opt/dupt
COPY --from=program /program /opt/dupt
USER 10001:10001

FROM runtime AS peer
LABEL org.opencontainers.image.title=dupt-peer \
      org.opencontainers.image.description="Trains one model together with others, each on a corpus of its own"
# As long as nothing is mounted there it is empty, which means text that the swarm offers.
ENV DUPT_PEER_JOIN_CORPUS=/corpus \
    DUPT_PEER_CHECK_CORPUS=/corpus \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
VOLUME /state /corpus
# The first peer's port; an oracle takes any free port, unless --host-maddrs names one.
EXPOSE 31330/tcp 31330/udp
HEALTHCHECK --interval=1m --timeout=30s --start-period=15m CMD ["dupt-peer", "status", "--health"]
ENTRYPOINT ["tini", "--", "dupt-peer"]
COPY --from=peer-packages /opt/dupt /opt/dupt
# Triton, which only comes with PyTorch for CUDA, needs a C compiler for its launchers.
RUN if [ -d /opt/dupt/lib/python3*/site-packages/triton ]; then \
        apt-get update \
        && apt-get install -y --no-install-recommends gcc libc6-dev \
        && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log; \
    fi
COPY --from=program /program /opt/dupt
USER 10001:10001
