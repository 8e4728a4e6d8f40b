# Every target sets up what it needs: a compiler, .venv with the frameworks, the extension module.
# Python: set PYTHON=python3.12 to choose one.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest -q
export PYTHONDONTWRITEBYTECODE := 1

.DEFAULT_GOAL := help
.PHONY: help demo test bench lint format asan tsan mutants soak docs build clean distclean streams

help:
	@echo 'make demo    what this machine can share: the doctor, then examples/share.py'
	@echo 'make test    the test suite'
	@echo 'make bench   the benchmarks'
	@echo 'make lint    ruff, clang-format, mypy and the stubs'
	@echo 'make format  ruff and clang-format write their changes'
	@echo 'make asan    the test suite with AddressSanitizer and UBSan'
	@echo 'make tsan    the test suite with ThreadSanitizer'
	@echo 'make mutants breaks the bridge in one place at a time; each time a test must fail'
	@echo 'make streams 10,000 random programs over streams; threads under ThreadSanitizer for two minutes'
	@echo 'make soak    a million exchanges by every route: time, growth, buffers left'
	@echo 'make docs    the reference, written to build/reference.md, and docs/inside/protocol.md'
	@echo 'make clean   remove what was built;  make distclean: .venv as well'

# A stamp per group of dependencies: a second run installs nothing.
$(VENV)/%.stamp: pyproject.toml tools/prepare
	@PYTHON='$(PYTHON)' tools/prepare '$(VENV)' $*
	@touch $@

build: $(VENV)/test.stamp
	@$(PY) setup.py -q build_ext --inplace

demo: build
	$(PY) -m metal_dlpack
	$(PY) examples/share.py

test: build
	$(PYTEST) $(ARGS)

bench: build
	@set -e; for file in benchmarks/bench_*.py; do echo "== $$file"; $(PY) "$$file"; done

lint: $(VENV)/lint.stamp build
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	git ls-files -z '*.[chm]' '*.cpp' | xargs -0 $(VENV)/bin/clang-format --dry-run --Werror
	$(PY) -m mypy
	$(PY) -m mypy.stubtest metal_dlpack._core --allowlist tools/stubtest_allowlist.txt --ignore-unused-allowlist

format: $(VENV)/lint.stamp
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	git ls-files -z '*.[chm]' '*.cpp' | xargs -0 $(VENV)/bin/clang-format -i

asan: build
	tools/sanitized address,undefined $(PY) $(ARGS)

tsan: build
	tools/sanitized thread $(PY) $(ARGS)

mutants: build
	$(PY) tools/mutants.py $(ARGS)

streams: build
	PYTHONPATH=src:tests/support $(PY) tests/support/stream_programs.py 10000
	METAL_DLPACK_SECONDS=60 tools/sanitized thread $(PY) tests/streams/test_stream_threads.py

soak: build
	$(PY) tools/soak.py $(ARGS)

docs: build
	$(PY) tools/reference.py build/reference.md
	$(PY) tools/protocol.py

clean:
	rm -rf build dist src/*.egg-info src/metal_dlpack/*.so

distclean: clean
	rm -rf $(VENV)
