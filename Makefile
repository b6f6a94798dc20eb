# Everything runs in .venv, which the first target that needs it makes.
# torch comes without CUDA where the package index offers that; bring your own build for a GPU:
#   make PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cu126" …
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_ARGS ?=
DIST ?= dist
# For two cores: tests wait more than half of their time. Those of a file run in one worker and share what they
# start; tests/support/spread.py orders the files.
WORKERS ?= 6

# The workers of pytest and the programs under test share what is compiled; without, each compiles all of it anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test test-system fuzz lint docs bench bench-gpu bench-links dashboards dist clean

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(PIP_ARGS) -c constraints.txt -e ".[dev]"
	touch $@

demo: $(VENV)/installed
	$(BIN)/dupt-peer demo

# For the hand while working: lint, and the tests that start no process.
check: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --quick --numprocesses 2 --dist loadfile

test: $(VENV)/installed
	$(BIN)/pytest -m "not system" --numprocesses $(WORKERS) \
		--dist loadfile --no-loadscope-reorder --durations 25

# What needs Debian's tools or root. As root it installs the tools; elsewhere those tests skip and say why.
# Many failures have one cause, and each may take minutes: it ends with the eighth.
test-system: $(VENV)/installed
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then .ci/install-tools; fi
	$(BIN)/pytest -m system --maxfail 8

# Twenty minutes of a core, with other inputs each time; `make test` has some dozens of each kind.
fuzz: $(VENV)/installed
	$(BIN)/python -m tests.hostile.fuzz --minutes 10
	$(BIN)/python -m tests.support.schedules --minutes 10

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=benchmarks $(BIN)/mypy benchmarks/*.py .mkdocs/hooks.py

# The site, in site/: a broken link, or a page that is not in mkdocs.yml, fails.
docs: $(VENV)/installed $(VENV)/wheels
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Not installed: it ships the script that draws diagrams, see .mkdocs/hooks.py.
$(VENV)/wheels: constraints.txt $(VENV)/installed
	rm -rf $@
	$(BIN)/pip download --quiet --no-deps -c constraints.txt --dest $@ sphinx-immaterial
	touch $@

bench: $(VENV)/installed
	$(BIN)/python benchmarks/local_speed.py
	PYTHONPATH=. $(BIN)/python benchmarks/contribution_codecs.py
	PYTHONPATH=. $(BIN)/python benchmarks/allreduce.py
	$(BIN)/python benchmarks/convergence.py run alone,alone-muon,adamw,tiny,tiny-palm
	$(BIN)/python benchmarks/convergence.py table convergence.jsonl
	$(BIN)/python benchmarks/monitor.py
	$(BIN)/python benchmarks/generation.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/judging.py
	PYTHONPATH=. $(BIN)/python benchmarks/churn.py
	PYTHONPATH=. $(BIN)/python benchmarks/offered.py
	PYTHONPATH=. $(BIN)/python benchmarks/verifying.py

# Under ten minutes on a card, with PyTorch for it in .venv; appends to gpu.jsonl.
bench-gpu: $(VENV)/installed
	$(BIN)/python benchmarks/gpu.py --file gpu.jsonl

# Hosts, links and round trips are made of network namespaces, which needs root.
bench-links: $(VENV)/installed
	PYTHONPATH=. $(BIN)/python benchmarks/join.py
	PYTHONPATH=. $(BIN)/python benchmarks/link.py

# Grafana's dashboards are generated; a test says when this was forgotten.
dashboards: $(VENV)/installed
	$(BIN)/python -m monitor.dashboards

# An sdist, and a wheel from it, for those who install without a clone. Nothing is published.
dist: $(VENV)/installed
	$(BIN)/python -m build --outdir $(DIST)
	$(BIN)/twine check --strict $(DIST)/*

clean:
	rm -rf $(VENV) $(DIST) site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
