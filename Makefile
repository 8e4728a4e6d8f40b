# Every target sets up what it needs: a compiler, .venv with the frameworks, the extension module.
# Python: set PYTHON=python3.12 to choose one.  Each version but that of python3 has an environment
# of its own, such as .venv-3.12.
PYTHON ?= python3
VENV := .venv
ifneq ($(PYTHON),python3)
version_of = $(shell '$(1)' -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VERSION := $(call version_of,$(PYTHON))
ifneq ($(VERSION),$(call version_of,python3))
VENV := .venv-$(VERSION)
endif
endif
PY := $(VENV)/bin/python
# A file on one worker: what a file builds for its tests is built once.  Bytecode is kept: pytest's rewriting takes long.
PYTEST := $(PY) -m pytest -q -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all nightly budgets settings versions suites bench lint format asan tsan arm64 action kernels corpora mutants instructions coverage streams regions model soak docs notebooks first-day conformance dist build clean distclean

help:
	@echo 'make demo      one write seen by every framework, what this machine can share, and a kernel'
	@echo 'make test      the tests, but for those marked long; ARGS="tests/copy -x" goes to pytest'
	@echo 'make test-all  all tests'
	@echo 'make lint      ruff, clang-format, mypy, pyright, the stubs and the workflows of .github'
	@echo 'make format    ruff and clang-format write their changes'
	@echo 'make asan      the tests of C with AddressSanitizer and UBSan, then some with LeakSanitizer; ARGS=tests: all'
	@echo 'make tsan      the tests of threads with ThreadSanitizer; ARGS=tests: all'
	@echo 'make arm64     the tests of pages and memory order as arm64 code with pages of 16 KiB, in an emulator; ARGS=tests: all'
	@echo 'make action    action.yml in a container of this machine'"'"'s Debian, as on a new runner; root'
	@echo 'make nightly   all that is too long for a push: every target above and below, whole; some hours'
	@echo 'make kernels   real kernels with each compiler and under the checker; each of their barriers removed'
	@echo 'make corpora   compute kernels of public repositories, fetched as data: how many compile (docs/inside/kernels.md), then some'
	@echo '               beside NumPy; ARGS=naga is one, CORPORA a folder of clones'
	@echo 'make mutants   breaks the C core in one place at a time, 400 times; each time a test must fail (an hour);'
	@echo '               ARGS=--of=softmetal and ARGS=--of=python break the rest, 100 times each'
	@echo 'make coverage  lines and branches of C and Objective-C that the tests reach, by folder'
	@echo 'make streams   10,000 random programs over streams, and with torch; threads under ThreadSanitizer for a minute'
	@echo 'make regions   5,000 random kernels that wait, other ones each day, as loops and on fibers: bit for bit the same'
	@echo 'make model     STEPS=100000 SEED=1: anything in any order beside NumPy; then under both sanitizers'
	@echo 'make soak      a million exchanges by every route: time, growth, buffers left'
	@echo 'make settings  the tests that use the GPU under each reading of what Metal leaves open'
	@echo 'make versions  what uses torch, NumPy, MLX, JAX and tvm-ffi, with the oldest and newest that share; then the large'
	@echo '               frameworks of docs/interop.md; downloads 7 GB; ARGS=numpy==2.0.2 is one'
	@echo 'make suites    the suites of other libraries on the CPU and on mps (docs/suites.md); ARGS=kornia is one, SUITES a folder of clones'
	@echo 'make bench     the benchmarks'
	@echo 'make instructions  counts what each hot call executes: at most 3 % more than benchmarks/instructions.json'
	@echo 'make docs      the site, written to build/site, and docs/inside/protocol.md'
	@echo 'make notebooks the notebooks of examples/ in JupyterLab and Chromium, light and dark, pictures in build/notebooks; the site'
	@echo 'make first-day  a new clone, an empty home: seconds until the first sharing and until a model is on mps; megabytes'
	@echo 'make conformance  the rules of DLPack against this package, then the scores of its peers'
	@echo 'make dist      sdist and wheels into dist/: built, checked, installed and tried with each Python that is here'
	@echo 'make clean     remove what was built;  make distclean: .venv as well'

# A stamp per group of dependencies: a second run installs nothing.
$(VENV)/%.stamp: pyproject.toml kit/pyproject.toml tools/prepare
	@PYTHON='$(PYTHON)' tools/prepare '$(VENV)' $*
	@touch $@

build: $(VENV)/test.stamp
	@$(PY) setup.py -q build_ext --inplace

demo: $(VENV)/demo.stamp
	@$(PY) setup.py -q build_ext --inplace
	$(PY) examples/share.py
	$(PY) -m metal_dlpack
	$(PY) examples/softmax_kernel.py

test: build
	$(PYTEST) -m 'not long' $(ARGS)

test-all: $(VENV)/models.stamp build
	$(PYTEST) $(ARGS)

# What Apple's documents leave open, one way and the other.
SETTINGS = WAIT_SCOPE=commands BLIT_LIMIT=4194304 SEED=last DEVICE_OBJECTS=many SIGNAL_ON_ERROR=1
settings: build
	@set -e; for setting in $(SETTINGS); do echo "== SOFTMETAL_$$setting"; \
	    env "SOFTMETAL_$$setting" $(PYTEST) -m 'not long' $(or $(ARGS),tests/metal tests/array tests/streams tests/exchange); done

bench: build
	@set -e; for file in benchmarks/bench_*.py; do echo "== $$file"; $(PY) "$$file"; done

lint: $(VENV)/lint.stamp build
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	git ls-files -z '*.[chm]' '*.cpp' | xargs -0 $(VENV)/bin/clang-format --dry-run --Werror
	$(PY) -m mypy
	$(VENV)/bin/basedpyright --pythonpath $(PY)
	$(VENV)/bin/zizmor --quiet --offline .github action.yml
	set -e; check() { $(VENV)/bin/check-jsonschema --quiet --builtin-schema "vendor.$$@"; }; \
	    check github-workflows .github/workflows/*.yml; \
	    check github-actions action.yml; \
	    check github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml; \
	    check github-issue-config .github/ISSUE_TEMPLATE/config.yml; \
	    check dependabot .github/dependabot.yml; \
	    check citation-file-format CITATION.cff
	$(PY) -m mypy.stubtest metal_dlpack._core --allowlist tools/stubtest_allowlist.txt --ignore-unused-allowlist

format: $(VENV)/lint.stamp
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	git ls-files -z '*.[chm]' '*.cpp' | xargs -0 $(VENV)/bin/clang-format -i

# Without ARGS a part that takes minutes: tools/sanitized and tools/arm64 name it.  ARGS=tests is the whole.
asan: build
	tools/sanitized address,undefined $(PY) $(ARGS)

tsan: build
	tools/sanitized thread $(PY) $(ARGS)

arm64: build
	tools/arm64 $(PY) $(ARGS)

action: build
	tools/action $(PY)

# With the newest clang, with the wheel's, with the oldest that is taken, and checked.
CLANG_17 := build/clang-17/ziglang/zig
$(CLANG_17): $(VENV)/test.stamp
	$(PY) -m pip --disable-pip-version-check --no-input -q install --no-deps --target build/clang-17 --upgrade ziglang==0.12.1
	@touch $@

OTHERS := tests/kernels tests/counting -k '(real or count) and not costs'
kernels: build $(CLANG_17)
	$(PYTEST) tests/kernels tests/msl $(ARGS)
	SOFTMETAL_CXX='$(PY) -m ziglang c++' $(PYTEST) $(OTHERS) $(ARGS)
	SOFTMETAL_CXX='$(CURDIR)/$(CLANG_17) c++' $(PYTEST) $(OTHERS) $(ARGS)
	SOFTMETAL_KERNEL_CHECK=1 $(PYTEST) tests/kernels -k real $(ARGS)

corpora: build
	CORPORA='$(CORPORA)' $(PY) tools/corpora.py $(ARGS)
	$(PYTEST) tests/kernels/test_corpora.py

versions: build
	$(PY) tools/versions.py $(ARGS)

suites: build
	SUITES='$(SUITES)' $(PY) tools/suites.py $(ARGS)

mutants: build
	$(PY) tools/mutants.py $(ARGS)

instructions: $(VENV)/instructions.stamp build
	$(PY) benchmarks/instructions.py --check

coverage: $(VENV)/coverage.stamp
	tools/coverage $(PY) $(ARGS)

streams: build
	PYTHONPATH=python:kit:tests/support $(PY) tests/support/stream_programs.py 10000
	PYTHONPATH=python:kit:tests/support $(PY) tests/support/torch_programs.py 10000
	METAL_DLPACK_SECONDS=60 tools/sanitized thread $(PY) tests/streams/test_stream_threads.py

# Other kernels each day: four days make 20,000.
regions: build
	PYTHONPATH=python:kit:tests/support $(PY) tests/support/region_kernels.py $(or $(ARGS),5000 $$(( $$(date +%s) / 86400 * 5000 )))

STEPS ?= 100000
SEED ?= 1
model: build
	PYTHONPATH=python:kit:tests/support $(PY) tests/support/model.py $(STEPS) $(SEED)
	tools/sanitized address,undefined $(PY) tests/hostile/test_model.py
	tools/sanitized thread $(PY) tests/hostile/test_model.py

soak: build
	$(PY) tools/soak.py $(ARGS)

# Without the frameworks: Sphinx asks the module for its docstrings.
docs: $(VENV)/docs.stamp
	@$(PY) setup.py -q build_ext --inplace
	$(PY) tools/protocol.py
	$(PY) -m sphinx -q --fail-on-warning --keep-going --doctree-dir build/doctrees docs build/site
	@echo build/site/index.html

notebooks: $(VENV)/notebooks.stamp build
	$(PY) tools/notebooks.py $(ARGS)
	$(PYTEST) tests/house/test_site.py

# The Python that stands first in PATH: of .venv nothing is used.
first-day:
	$(PYTHON) tools/first_day.py

# Of the peers nothing is asked but that the kit can judge them.
PEERS := numpy torch jax mlx tvm-ffi pyarrow metal_dlpack
conformance: build
	$(PY) -m dlpack_conformance --producer metal_dlpack --consumer metal_dlpack
	$(PY) -m dlpack_conformance --scores $(PEERS:%=--producer %) $(PEERS:%=--consumer %) || [ $$? = 1 ]

dist: $(VENV)/dist.stamp
	$(PY) tools/dist.py $(ARGS)

# What .ci/run makes, and the CPU seconds that each takes on two cores, with no cache of any kind: at twice these it fails.
BUDGETS = build=135 test=1400 lint=65 instructions=105 asan=900 tsan=345 arm64=500
budgets:
	@echo $(BUDGETS)

# All that is too long for a push; one target after another, and each is tried.
NIGHTLY = test-all lint instructions settings versions suites kernels corpora coverage streams regions model conformance docs notebooks first-day dist \
    "asan ARGS=tests" "tsan ARGS=tests" "arm64 ARGS=tests" action soak mutants \
    "mutants ARGS=--of=softmetal" "mutants ARGS=--of=python"
nightly:
	@failed=; for target in $(NIGHTLY); do echo "== make $$target"; $(MAKE) $$target || failed="$$failed [$$target]"; done; \
	    [ -z "$$failed" ] || { echo "make nightly: failed:$$failed" >&2; exit 1; }

clean:
	rm -rf build dist kit/build python/*.egg-info kit/*.egg-info python/metal_dlpack/*.so

distclean: clean
	rm -rf .venv .venv-*
