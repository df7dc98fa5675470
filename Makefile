PYTHON ?= python3
BIN := .venv/bin

# The demo and the tests can never spend money or touch a company's cluster: of the environment they get these alone.
CLEAN := env -i PATH="$(PATH)" HOME="$(HOME)" TERM="$(TERM)" LANG="$(or $(LANG),C.UTF-8)" COLUMNS="$(COLUMNS)" \
	TMPDIR="$(or $(TMPDIR),/tmp)" CI="$(CI)" NO_COLOR="$(NO_COLOR)" TEMPORAL_CONFIG_FILE=/dev/null

# Tests wait far more than they compute. A file stays in one process: its tests share a home.
JOBS ?= 2
SIDE_BY_SIDE := -n $(JOBS) --dist loadfile

.PHONY: help install demo test check format soak prove bench scale trap dag lock clean
.DEFAULT_GOAL := help

help: ## show what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(BIN)/.installed ## install into .venv, pinned and checked by hash

demo: install ## run an example plan on a server of its own, with simulated answers
	@$(CLEAN) ./starter.py --home .nightcrew-demo run --simulate examples/competitor-brief.yaml

test: $(BIN)/.installed-dev ## run the tests on a real Temporal server
	@$(CLEAN) $(BIN)/python -m pytest -m "not soak" $(SIDE_BY_SIDE) $(ARGS)

check: $(BIN)/.installed-dev ## lint, types, and the doors between the rooms
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy .
	@$(BIN)/lint-imports > .venv/doors.log || (cat .venv/doors.log; exit 1)

format: $(BIN)/.installed-dev ## format the code and mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

soak: $(BIN)/.installed-dev ## the long repetitions: the exit code in 100 runs of 100
	@$(CLEAN) $(BIN)/python -m pytest -m soak --timeout 3600 $(ARGS)

prove: $(BIN)/.installed-dev ## kill, freeze, cut off and fill up, and judge what is left: docs/proof.md
	@$(CLEAN) $(BIN)/python -m proof --write $(ARGS)

bench: $(BIN)/.installed-dev ## tasks per second beside a bare Temporal parent and child
	@$(CLEAN) $(BIN)/python benchmarks/overhead.py $(ARGS)

scale: $(BIN)/.installed-dev ## ten tasks to ten thousand in one run, in about an hour
	@$(CLEAN) $(BIN)/python benchmarks/scale.py $(ARGS)

trap: $(BIN)/.installed-dev ## 22 tasks on one quota, in the ways of today and in ours: docs/trap.md, in about an hour
	@$(CLEAN) $(BIN)/python benchmarks/trap.py $(ARGS)

dag: $(BIN)/.installed-dev ## the same tasks as a chain and as a DAG: docs/dag.md
	@$(CLEAN) $(BIN)/python benchmarks/dag.py $(ARGS)

lock: ## pin all dependencies anew (needs uv)
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		pyproject.toml -o requirements.lock
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--group dev pyproject.toml -o requirements-dev.lock

clean: ## remove what install and the tools have made (homes with runs stay)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Nightcrew needs Python 3.11 or newer: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv .venv

$(BIN)/.installed: requirements.lock | $(BIN)/python
	@echo "Installing into .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(BIN)/.installed-dev: requirements-dev.lock | $(BIN)/python
	@echo "Installing into .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@ $(BIN)/.installed
