# Every target makes what it needs; `make` alone lists them. Nothing is installed outside .venv and build/.
PYTHON ?= python3
VENV   := .venv
OF_VENV = $(patsubst .venv%,%,$(VENV))
BIN    := $(VENV)/bin
NATIVE := CMakeLists.txt $(shell find native -name '*.hpp' -o -name '*.cpp' -o -name CMakeLists.txt)
EXTRAS := dev
PYTEST_ARGS ?=
unexport PYTHONDONTWRITEBYTECODE  # some containers set it; the tests start a thousand interpreters
# One more than processors, since each waits for a third of the time.
PROCESSES := $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4)))
comma  := ,

.DEFAULT_GOAL := help
.PHONY: help setup demo docs pages test native test-native test-python test-privileged test-pythons test-spark test-many test-view test-torch test-lerobot test-originals explore check format bench bench-quick clean lab sanitize fuzz aarch64 soak soak-mixed abi recovery cores failing-calls long

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# All that the native tests need: they begin while the other dependencies are installed.
$(VENV)/.tools:
	@echo "== virtual environment (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'cmake>=3.25' ninja
	@touch $@

# The stamp says: the dependencies are in and the native module is built from these sources.
$(VENV)/.deps: pyproject.toml | $(VENV)/.tools
	@missing=$$($(BIN)/python tools/requirements.py --missing $(EXTRAS)) && if [ -n "$$missing" ]; then \
	    echo "== dependencies (once)"; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check $$($(PYTHON) tools/requirements.py $(EXTRAS)); fi
	@touch $@

$(VENV)/.built: $(VENV)/.deps $(NATIVE)
	@echo "== native module"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	    --config-settings=build-dir=build/{wheel_tag}$(OF_VENV) --editable .
	@touch $@

# MODULE_OF=.venv: the native module of that environment, as a wheel has one for all Pythons. Compiled anew it would take as long
# as all that the other Python is asked to run in CI.
MODULE_OF ?=
ifneq ($(MODULE_OF),)
$(VENV)/.shared: $(VENV)/.deps $(NATIVE)
	@rm -rf build/shared && $(MODULE_OF)/bin/python -c 'from scikit_build_core.build import build_editable as build; \
	    build("build/shared", {"build-dir": "build/{wheel_tag}$(patsubst .venv%,%,$(MODULE_OF))"})' > build/shared.log || { cat build/shared.log; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall build/shared/*.whl
	@touch $@
endif

setup: $(if $(MODULE_OF),$(VENV)/.shared,$(VENV)/.built)  ## make .venv and build the native module

demo: setup  ## a small robot: processes, loss, a crash, a recording, Spark, a report
	@$(BIN)/ringmain demo

# The pages that are generated from the source are kept with it, and tests say when one is out of date; so this needs neither the
# native module nor what the tests need.
build/docs/.installed: pyproject.toml
	@$(PYTHON) -m venv build/docs
	@build/docs/bin/python -m pip install --quiet --disable-pip-version-check $$($(PYTHON) tools/requirements.py --only docs)
	@touch $@

docs: build/docs/.installed  ## build the documentation as a site, into site/
	@NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --quiet --strict
	@echo "site/index.html"

pages: setup  ## write the pages that are generated from the source: reference, tables of the guides, figures
	@$(BIN)/python tools/reference.py && $(BIN)/python tools/guides.py && $(BIN)/python tools/readme_numbers.py && $(BIN)/python tools/training_pictures.py

# The native tests compute, the Python tests wait for a third of the time: beside each other they keep all processors busy.
test: $(VENV)/.tools  ## what CI runs: native tests, Python tests, instruction counts
	@mkdir -p build && echo "== native tests: in the background, to build/test-native.log"
	@nice -n 10 $(MAKE) --no-print-directory test-native > build/test-native.log 2>&1 & native=$$!; \
	    trap 'kill $$native' INT TERM; \
	    $(MAKE) --no-print-directory test-python; python=$$?; \
	    wait $$native; native=$$?; \
	    if [ $$native = 0 ]; then tail -n 4 build/test-native.log; else cat build/test-native.log; fi; \
	    [ $$native = 0 ] && [ $$python = 0 ]
	@$(MAKE) --no-print-directory bench-quick

native: $(VENV)/.tools
	@mkdir -p build
	@$(BIN)/cmake -S native -B build/native -G Ninja -DCMAKE_BUILD_TYPE=Release \
	    -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) > build/native.log || { cat build/native.log; exit 1; }
	@$(BIN)/cmake --build build/native >> build/native.log || { cat build/native.log; exit 1; }

test-native: native  ## the native core alone, without Python
	@echo "== native tests"
	@$(BIN)/ctest --test-dir build/native --output-on-failure --parallel $(shell nproc)

explore: native  ## every interleaving of the larger cases, too: minutes
	@build/native/explore/explore --deep --seconds 3600

test-python: setup
	@echo "== Python tests"
	@$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadscope --no-loadscope-reorder $(PYTEST_ARGS)

test-privileged: setup  ## the tests that need root's capabilities, which `make test` skips without them
	@$(BIN)/python -m pytest -m 'privileged or not_as_root' $(PYTEST_ARGS)

PYTHONS ?=
test-pythons:  ## the Python tests on every CPython from 3.11 on that is found, or on PYTHONS="3.12 3.13", or PYTHONS=newest
	@$(if $(MODULE_OF),$(MAKE) --no-print-directory setup VENV=$(MODULE_OF) MODULE_OF=)
	@found=$$($(PYTHON) tools/pythons.py $(PYTHONS)) || exit 1; echo "$$found" | sed '/^$$/d' | while read version python; do \
	    echo "== Python $$version"; \
	    $(MAKE) --no-print-directory test-python PYTHON=$$python VENV=.venv-$$version < /dev/null || exit 1; done

test-spark: setup  ## the tests that start a real Spark, apart because they take minutes
	@$(BIN)/python -m pytest -m 'spark or each_run' --timeout 900 $(PYTEST_ARGS)

test-many: setup  ## the seeds, cases and examples of which `make test` runs some
	@$(BIN)/python -m pytest -m many $(PYTEST_ARGS)
	@RINGMAIN_EXAMPLES=1000 RINGMAIN_LOADED_S=20 $(BIN)/python -m pytest tests/ring/test_reference.py tests/ring/test_kill.py tests/typed/test_compatibility.py

test-view: setup  ## the viewer's tests that `make test` leaves out: what the page shows, in a real browser, drawn in software
	@$(BIN)/python -m pytest -m 'view or not view' tests/view $(PYTEST_ARGS)

test-originals: setup  ## msgq's and pysyncq's own tests on ringmain, and programs on both; installs them from PyPI
	@$(BIN)/python tests/compat/originals.py

# Torch is as large as all else together, and with what it brings for GPUs many times that: it has a folder of its own.
TORCH ?= torch
build/torch/.installed: | $(VENV)/.deps
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target build/torch $(TORCH)
	@touch $@

test-torch: setup build/torch/.installed  ## windows in torch's own DataLoader; installs TORCH=torch==VERSION apart, by default with what GPUs need
	@PYTHONPATH=build/torch $(BIN)/python -m pytest -m torch tests/datasets $(PYTEST_ARGS)

build/lerobot/.installed: | $(VENV)/.deps
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target build/lerobot $$($(PYTHON) tools/requirements.py --only lerobot)
	@touch $@

test-lerobot: setup build/lerobot/.installed  ## data sets written and read by lerobot itself; installs it apart, with its torch: 8 GB
	@HF_HUB_OFFLINE=1 PYTHONPATH=build/lerobot $(BIN)/python -m pytest -m lerobot tests/datasets tests/recording $(PYTEST_ARGS)

check: $(VENV)/.deps  ## lint, format, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run --Werror $$(find native -name '*.hpp' -o -name '*.cpp')
	@$(BIN)/mypy

format:  ## rewrite the sources in the project's format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/clang-format -i $$(find native -name '*.hpp' -o -name '*.cpp')

# -------------------------------------------------------------------------------- the proof lab (CI runs samples)
define native_tests  # $(1): where to build, $(2): how
	@$(BIN)/cmake -S native -B build/$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) $(2) > build/$(1).log
	@$(BIN)/cmake --build build/$(1) >> build/$(1).log || { cat build/$(1).log; exit 1; }
	@$(BIN)/ctest --test-dir build/$(1) --output-on-failure
endef

# The binding with a sanitizer, and the tests that stress it. The base interpreter, whose site packages do not redirect
# `ringmain` to the build that ships; sanitizers want to be loaded first, and to know libstdc++ from the start.
define python_tests  # $(1): where to build, $(2): which sanitizer, $(3): its library, $(4): tests
	@$(BIN)/cmake -S . -B build/$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DRINGMAIN_SANITIZE=$(2) \
	    -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_INSTALL_PREFIX=build/$(1)/site > build/$(1).log
	@$(BIN)/cmake --build build/$(1) >> build/$(1).log || { cat build/$(1).log; exit 1; }
	@rm -rf build/$(1)/site && $(BIN)/cmake --install build/$(1) >> build/$(1).log
	@cp -as $(abspath src)/ringmain/. build/$(1)/site/ringmain/
	LD_PRELOAD="$$($(CXX) -print-file-name=$(3)) $$($(CXX) -print-file-name=libstdc++.so.6)" \
	    ASAN_OPTIONS=detect_leaks=0 \
	    PYTHONPATH="$(abspath build/$(1)/site):$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	    setarch -R $$($(BIN)/python -c 'import sys; print(sys._base_executable)') -m pytest -p no:cacheprovider $(4)
endef

lab: setup  ## the proof lab: every crash point, every pair of them, every stop, every way to wait, every shortage; half an hour, and it goes on where it was stopped
	@RINGMAIN_LEAK_ROUNDS=10000 RINGMAIN_EXAMPLES=10000 RINGMAIN_LARGEST_RING=4294967296 $(BIN)/python -m pytest \
	    tests/lab/test_leaks.py tests/lab/test_hostile.py tests/lab/test_load.py tests/lab/test_any_argument.py
	@$(BIN)/python tests/lab/shortages.py
	@RINGMAIN_LAB=1 $(BIN)/python tests/lab/survivors.py
	@$(BIN)/python tests/lab/run_all.py

sanitize: setup  ## the native tests and the tests that stress the binding, under ASan and UBSan, then TSan
	$(call native_tests,asan,-DRINGMAIN_SANITIZE=address$(comma)undefined)
	$(call native_tests,tsan,-DRINGMAIN_SANITIZE=thread)
	$(call python_tests,python-asan,address$(comma)undefined,libasan.so,tests/ring/test_stress.py tests/ring/test_threads.py \
	    tests/ring/test_batch.py tests/ring/test_borrow.py tests/ring/test_reserve_stream.py tests/ring/test_reference.py \
	    tests/recording/test_native.py tests/recording/test_spool.py tests/typed/test_packed_columns.py)
	$(call python_tests,python-tsan,thread,libtsan.so,tests/ring/test_threads.py tests/ring/test_batch.py tests/ring/test_borrow.py \
	    tests/ring/test_reserve_stream.py tests/test_aio.py tests/ring/test_closing.py)

MINUTES ?= 30
fuzz: native  ## fuzz the open path and the read path for MINUTES=30, coverage-guided, from the corpus that is kept
	@build/native/fuzz/fuzz native/fuzz/corpus --seconds $$(($(MINUTES) * 60)) $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep)

aarch64: setup  ## the native tests built for aarch64 and run under qemu-user (Debian: g++-aarch64-linux-gnu qemu-user)
	$(call native_tests,aarch64,-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DRINGMAIN_MESSAGES=5000 \
	    -DCMAKE_CROSSCOMPILING_EMULATOR='qemu-aarch64;-L;/usr/aarch64-linux-gnu')

soak: setup  ## random participants come, go, die and stop for MINUTES=30; prints its seed
	@RINGMAIN_LAB=1 $(BIN)/python tests/lab/soak.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

soak-mixed: setup  ## the same, and every other participant is one of C++
	@RINGMAIN_LAB=1 $(BIN)/python tests/lab/soak.py --mixed --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

cores: setup  ## what only quiet cores show: deaths, wake-ups, fairness, figures; wants eight with an L2 each; under nine minutes
	@$(BIN)/python tests/lab/cores.py

abi:  ## does libringmain.so still have what programs of the last release use? abidiff (Debian: abigail-tools)
	@$(PYTHON) tools/abi.py

failing-calls: setup  ## every allocation, and every system call of a send, a wait, a recording, an upload and a replay, fails once; minutes
	@$(BIN)/python tests/lab/failing_allocations.py
	@$(BIN)/python tests/lab/failing_calls.py

long:  ## everything that takes long, one after another, with a table at the end; goes on where it was stopped; hours
	@$(PYTHON) tools/long.py

recovery: setup  ## how soon writers go on after a death in the middle of a message, 200 times each way; wants cores to spare
	@$(BIN)/python tests/lab/recovery.py

bench: setup  ## measure against the peers, and print a table; about ten minutes
	@for package in $$($(PYTHON) tools/requirements.py bench); do \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check "$$package" || echo "does not install: $$package"; done
	@$(BIN)/python -m bench

bench-quick: setup  ## instructions a message on the hot paths, against those recorded; seconds
	@echo "== instructions on the hot paths"
	@$(BIN)/python -m bench.instructions

clean:  ## remove everything the other targets made
	rm -rf .venv .venv-* build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -------------------------------------------------------------------------------------------- what is published
.PHONY: wheels wheels-test test-versions release
WHEEL_TESTS ?= tests
wheels: setup  ## the sdist and manylinux wheels for x86_64 and aarch64, into dist/; zig compiles, auditwheel checks
	@$(BIN)/python tools/wheels.py

wheels-test: setup  ## install what is in dist/ without a compiler and run WHEEL_TESTS=tests on it; aarch64 under qemu-user
	@$(BIN)/python tools/wheels_test.py $(WHEEL_TESTS)

test-versions: setup  ## this state's wheel and those of older ones on one topic, each with each; wants what `make wheels` makes
	@$(BIN)/python tools/older_wheels.py $(PYTEST_ARGS)

release: setup  ## check version, changelog, tag and the contents of dist/; changes nothing
	@$(BIN)/python tools/release.py
