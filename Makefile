# Every target makes what it needs; `make` alone lists them. Nothing is installed outside .venv and build/.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
NATIVE := CMakeLists.txt $(shell find native -name '*.hpp' -o -name '*.cpp' -o -name CMakeLists.txt)
EXTRAS := dev
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-native test-python explore check format bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# The stamp says: the dependencies are in and the native module is built from these sources.
$(VENV)/.deps: pyproject.toml
	@echo "== virtual environment and dependencies (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    $$($(PYTHON) tools/requirements.py $(EXTRAS))
	@touch $@

$(VENV)/.built: $(VENV)/.deps $(NATIVE)
	@echo "== native module"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(VENV)/.built  ## make .venv and build the native module

demo: setup  ## the tour: real processes on all four contracts
	@$(BIN)/python examples/tour.py

test: setup test-native test-python  ## what CI runs: checks, native tests, Python tests

test-native: setup  ## the native core alone, without Python
	@echo "== native tests"
	@$(BIN)/cmake -S native -B build/native -G Ninja -DCMAKE_BUILD_TYPE=Release \
	    -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) > build/native.log || { cat build/native.log; exit 1; }
	@$(BIN)/cmake --build build/native >> build/native.log || { cat build/native.log; exit 1; }
	@$(BIN)/ctest --test-dir build/native --output-on-failure --parallel $(shell nproc)

explore: test-native  ## every interleaving of the larger cases, too: minutes
	@build/native/explore/explore --deep --seconds 3600

test-python: setup
	@echo "== Python tests"
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

check: setup  ## lint, format, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run --Werror $$(find native -name '*.hpp' -o -name '*.cpp')
	@$(BIN)/mypy

format:  ## rewrite the sources in the project's format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/clang-format -i $$(find native -name '*.hpp' -o -name '*.cpp')

bench: setup  ## measure, and print a table
	@$(BIN)/python -m bench

clean:  ## remove everything the other targets made
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
