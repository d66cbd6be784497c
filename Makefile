# Targets for people. `make demo` and `make test` set up what they need in .venv.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
EXAMPLE := jax/experimental/mosaic/gpu/examples/sparse_mma_tiles_blackwell.py
SOURCES := $(shell find jax patches pyproject.toml -name '*.py' -o -name '*.toml')
WORKERS ?= 2
# Without a GPU, JAX's CUDA plugin would only print an error.
export JAX_PLATFORMS ?= $(if $(wildcard /dev/nvidiactl),,cpu)
# Kernels that were compiled once need not be compiled again.
export MOSAIC_GPU_DEVICELESS_CACHE ?= $(CURDIR)/.cache/kernels

.PHONY: demo test test-full mutants check check-releases buildifier bench \
  bench-simulator bench-sass model refresh clean

$(BIN)/python:
	python=$$(PYTHON='$(PYTHON)' tools/find_python)
	"$$python" -m venv $(VENV)

$(VENV)/requirements: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	touch $@

# Builds JAX with the patches and puts it in place of the one that is there.
$(VENV)/jax: $(SOURCES) $(VENV)/requirements
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps .
	$(BIN)/python -m pip check
	touch $@

# Prunes, compresses and multiplies matrices, on the simulator or a Blackwell.
demo: $(VENV)/jax
	pristine=$$($(BIN)/python -m patches pristine)
	$(BIN)/python $(EXAMPLE) --pristine "$$pristine"

# The tests of the series, the simulator and the patch engine.
test: $(VENV)/jax
	$(BIN)/python -m pytest --quiet --numprocesses $(WORKERS) tests

# All of that, a matmul of every kind, and a comparison with JAX as it was of
# everything that it accepts.
test-full: export MOSAIC_GPU_FULL_TESTS := 1
test-full: test

# Breaks the formulas of the patches one by one and sees the tests notice.
mutants: $(VENV)/jax
	PYTHONPATH=. $(BIN)/python tests/mutants.py

# Applies the series patch by patch to all supported releases.
check: $(VENV)/jax
	$(BIN)/python -m patches check --overlay

# Runs the series' tests on all supported releases, each with its own jaxlib.
check-releases: $(VENV)/jax
	$(BIN)/python -m patches trial --jobs $(WORKERS)

# Formats BUILD; its test then compares with what JAX's BUILD files would get.
buildifier:
	npm install --silent --no-fund --no-audit --prefix .cache/npm \
	  @bazel/buildifier@8.2.1
	.cache/npm/node_modules/.bin/buildifier --mode=fix --lint=warn \
	  --warnings=-module-docstring BUILD
	$(BIN)/python -m pytest --quiet tests/patches/bazel_test.py

bench: bench-simulator bench-sass

# How fast the simulator is, in ratios.
bench-simulator: $(VENV)/jax
	mkdir -p .cache
	$(BIN)/python tests/bench_simulator.py --json .cache/bench.json

# What it costs to issue the MMAs of a call, by the machine code.
bench-sass: $(VENV)/jax
	mkdir -p .cache
	$(BIN)/python tests/bench_sass.py --json .cache/bench_sass.json

# How fast the sparse matmul kernel should be, by a model on paper.
model: $(VENV)/jax
	$(BIN)/python -m jax.experimental.mosaic.gpu.examples.sparse_matmul_model

# Brings the installed JAX to the state of the series, much faster than a build.
refresh: $(VENV)/requirements
	$(BIN)/python -m patches refresh

clean:
	rm -rf $(VENV) .cache build dist
