# Every command of the README is a target here or an entry point of the package.
# Targets that need the virtual environment make it when it is missing or older than pyproject.toml.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help setup train test test-fast test-e2e check format lint type bench docs build

help: ## print the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

setup: $(STAMP) ## virtual environment in .venv with the package (editable) and the dev tools

train: $(STAMP) ## train SAC on go2_joystick_flat (ARGS="KEY=VALUE ..." overrides settings)
	@$(BIN)/unilab-launch --algo sac --task go2_joystick_flat $(ARGS)

test: $(STAMP) ## all tests but those that need a GPU or hours; what CI runs
	@$(BIN)/python -m pytest -m "not device and not nightly" $(ARGS)

test-fast: $(STAMP) ## unit tests, under a minute
	@$(BIN)/python -m pytest -m "not slow and not e2e and not device and not nightly" $(ARGS)

test-e2e: $(STAMP) ## tests that start real processes
	@$(BIN)/python -m pytest -m "e2e and not device and not nightly" $(ARGS)

lint: $(STAMP) ## ruff and codespell
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/codespell

type: $(STAMP) ## pyright
	@$(BIN)/pyright

check: lint type test-fast ## lint, types and the fast tests

format: $(STAMP) ## format the code
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: $(STAMP) ## the short benchmarks: collector, slot, startup
	@for name in collector slot startup; do $(BIN)/unilab-bench $$name || exit 1; done

docs: $(STAMP) ## regenerate the tables that come from code (metrics, segment layouts)
	@$(BIN)/python -m unilab_core.telemetry.render_docs
	@$(BIN)/python -c 'from pathlib import Path; from unilab_ipc.segments import render; Path("docs/segments.md").write_text("# Shared-memory segments\n\n" + render())'

build: $(STAMP) ## wheel and sdist in dist/
	@$(BIN)/python -m pip install --quiet build && $(BIN)/python -m build
