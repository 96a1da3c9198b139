# All targets keep everything they need in .venv and install only when pyproject.toml or constraints.txt changed: the
# demo what runs need, the others the tools of developers beside it.
PYTHON ?= python3
BIN := .venv/bin
RUNS := .venv/.runs
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Modules are compiled when they are first imported: most of them never are. Where nothing may be written down, every
# process would compile all of PyTorch anew, which takes twice as long as importing it.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(PIP) install --no-compile -c constraints.txt
# Processes that tests run in side by side; one of them holds a Ray with three hosts.
WORKERS ?= 2
METHODS ?= fedavg or fedcac or fedmosaic or pfedgate

PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder
# The oldest and the newest Python that are supported.
PYTHONS ?= python3.11 python3.13
# What `make check` compares with.
SINCE ?= HEAD

.PHONY: demo check test test-fast test-methods test-night test-pythons mutants cluster-test slurm-test lint docs dist install clean

demo: $(RUNS)
	@$(BIN)/fedbench demo

# What the change since the last commit touches; `make check SINCE=main`: the whole branch.
check: lint
	$(BIN)/python tests/touched.py $(SINCE) | xargs --no-run-if-empty $(PYTEST) -m "not night"

# Everything but what takes minutes by itself.
test: lint
	$(PYTEST) -m "not night"

# The mathematics: no Ray, no fresh process, no large network, no logger.
test-fast: $(STAMP)
	$(PYTEST) -m "not night" --ignore-glob '*log*' tests/aggregation tests/config tests/engine tests/methods tests/module \
		tests/results tests/tasks

# What is promised of every method, asked of four of them in two minutes; METHODS="fedprox or ditto" asks others.
test-methods: $(STAMP)
	$(PYTEST) tests/conformance -m "not night" -k "$(METHODS)"

# Runs whose processes and machines are killed again and again.
test-night: $(STAMP)
	$(PYTEST) -m night

# The wheel on the oldest and the newest Python, each in an environment of its own: some GB are downloaded.
test-pythons: $(STAMP)
	for python in $(PYTHONS); do \
		$$python -m venv build/$$python && \
		build/$$python/bin/python -m pip install --disable-pip-version-check -q -c constraints.txt '.[all]' ./papers && \
		build/$$python/bin/python -m pip uninstall --disable-pip-version-check -q -y fedbench-pfl fedbench-papers || exit 1; \
	done
	FEDBENCH_PYTHONS=$$(for python in $(PYTHONS); do printf '%s:' build/$$python/bin/python; done) \
		$(BIN)/python -m pytest tests/packaging

# Every method broken on purpose, eight times each: are there tests that notice?
mutants: $(STAMP)
	$(BIN)/python tests/mutants.py

# A cluster of three machines made of namespaces, started by `ray up`: as root, some ten minutes.
cluster-test: $(STAMP)
	$(BIN)/python -m tests.cluster

# The same for clusters/slurm.sbatch, on a Slurm of two such machines.
slurm-test: $(STAMP)
	$(BIN)/python -m tests.slurm

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation as a site, in site/; a broken link is an error.
docs: $(STAMP)
	$(BIN)/python docs/make_pages.py
	$(BIN)/zensical build --clean --strict

# Both forms of both packages, as they are uploaded, in dist/.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m build --outdir dist papers
	$(BIN)/twine check --strict dist/*

install: $(STAMP)

# What runs, studies and reports need.
$(RUNS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("fedbench needs Python 3.11 or newer: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/pip || { echo "making .venv"; $(PYTHON) -m venv --upgrade-deps .venv; }
	@echo "installing fedbench into .venv: PyTorch, Lightning, Ray and some hundred smaller packages, in some minutes"
	@# Its name was fedbench before, which would be a second distribution with the same commands.
	@$(PIP) uninstall -q -y fedbench 2>/dev/null; rm -rf fedbench.egg-info
	@$(INSTALL) -e .
	@touch $@

# Extras, linters, type checkers, documentation and what tests need; nothing of $(RUNS) is installed again.
$(STAMP): $(RUNS) papers/pyproject.toml
	@echo "installing the tools of developers and fedbench-papers into .venv"
	@$(INSTALL) -e '.[test]' -e ./papers
	@touch $@

clean:
	rm -rf .venv site dist build/docs .cache *.egg-info papers/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
