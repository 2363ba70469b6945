PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo demo-down test unit lint bench clean

setup:             ## everything this machine needs, from a fresh Debian 12
	@$(PYTHON) -m divvy.lab.setup

demo: setup        ## a cluster with GPU nodes on this machine
	@$(BIN)/divvy lab up
	@$(BIN)/kubectl --kubeconfig "$$($(BIN)/divvy lab kubeconfig)" get nodes -o wide

demo-down:         ## and away with it
	@$(BIN)/divvy lab down

test: setup        ## unit tests, then those that need the lab
	@$(BIN)/pytest -m "not hardware"

unit:              ## what needs neither root nor the lab
	@$(PYTHON) -m divvy.lab.setup python
	@$(BIN)/pytest -m "not lab and not hardware"

lint:              ## format, rules, types, directions of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: setup       ## measure; every number in the documents comes from here
	@for each in benchmarks/*.py; do $(BIN)/python "$$each" || exit 1; done

clean:             ## the lab and what was generated in this tree; the cache of built tools stays
	@if [ "$$(id -u)" = 0 ] && [ -x $(BIN)/divvy ]; then $(BIN)/divvy lab down; fi
	@rm -rf .venv build out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -f divvy/agent/api/*_pb2*.py divvy/agent/api/*_pb2.pyi
	@if [ -f simulator/Makefile ]; then $(MAKE) --no-print-directory -C simulator clean; fi
	@$(PYTHON) -c 'from divvy.lab.paths import cache; print("The cache stays:", cache())'
