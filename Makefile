.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
ARGS ?=
# A worker begins with half of the files, so that what a file's tests share is made once, and takes
# over from the other when it is through.
XDIST := -n 2 --dist worksteal

.PHONY: help setup train study pages docs test test-fast lint format type check bench torture clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## build .venv from pyproject.toml and constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("rlmem needs Python 3.11 or newer: make PYTHON=python3.11 setup") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

train: $(STAMP) ## train: make train ARGS="memory=per env=pong"
	$(BIN)/python train.py $(if $(ARGS),$(ARGS),memory=gwr env=road_runner trainer.max_env_steps=20000 evaluation.every=10000 evaluation.episodes=5)

study: $(STAMP) ## run what is missing of a study, report: make study NAME=replay_table
	$(BIN)/python study.py $(NAME) $(ARGS)

pages: $(STAMP) ## each study's page from what is recorded of its runs: studies/*/report/index.html
	set -e; for study in studies/*/study.yaml; do \
		$(BIN)/python study.py $$(basename $$(dirname $$study)) --report; \
	done

# The version of Material that comes next is another program; until it is here this one says so.
docs: $(STAMP) ## the documentation site: build/site/index.html, opens without a server
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

test: $(STAMP) ## all tests
	$(BIN)/python -m pytest $(XDIST) $(ARGS)

test-fast: $(STAMP) ## tests that take no training run
	$(BIN)/python -m pytest $(XDIST) -m "not slow" $(ARGS)

lint: $(STAMP) ## ruff and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: $(STAMP) ## ruff format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: $(STAMP) ## pyright on rlmem/
	$(BIN)/pyright

check: lint type test ## what must be green before a commit

bench: $(STAMP) ## speed and bytes against bare loops: make bench ARGS="cartpole --peers"
	$(BIN)/python benchmarks/run.py $(ARGS)

torture: $(STAMP) ## kills, damage, wrong values and the like for ten minutes: make torture HOURS=8
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture $(if $(HOURS),--hours $(HOURS)) $(ARGS)

clean: ## remove .venv and caches
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
