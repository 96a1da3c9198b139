# Both targets keep everything they need in .venv and install only when pyproject.toml or constraints.txt changed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Processes that tests run in side by side; each may hold a Ray of its own with four hosts.
WORKERS ?= 2

.PHONY: demo test test-fast cluster-test slurm-test lint install clean

demo: $(STAMP)
	$(BIN)/python experiments/grid.py --method fedcac

test: lint
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadgroup

# The mathematics: no Ray, no fresh process, no large network, no logger. A minute and a half on two cores.
test-fast: $(STAMP)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --ignore-glob '*log*' tests/aggregation tests/config tests/engine \
		tests/methods tests/module tests/results tests/tasks

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

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("fedbench needs Python 3.11 or newer: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@echo "installing into .venv (some minutes the first time)"
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[test]'
	@touch $@

clean:
	rm -rf .venv *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
