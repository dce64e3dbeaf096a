# One command for each habit. Each interpreter gets a virtualenv of its own, .venv/VERSION.
#
#   PYTHON=python3.13 make test        with this interpreter
#   make pytest ARGS="-k wait_for -x"  more arguments for demo, pytest and bench

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# pip and maturin work in one virtualenv, and cargo uses all cores by itself.
.NOTPARALLEL:
.SUFFIXES:

ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell .ci/interpreters --first)
endif

# The version, and a number for the installation: a virtualenv is made anew when either changes.
identify := import os, platform, sys, sysconfig, zlib; \
	sys.version_info >= (3, 10) and print( \
	platform.python_version() + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED")), \
	zlib.crc32(os.path.realpath(sys.base_prefix).encode()))
identity := $(shell $(or $(PYTHON),false) -c '$(identify)' 2>/dev/null)
version := $(word 1,$(identity))

VENV := .venv/$(version)
BIN := $(VENV)/bin
created := $(VENV)/.created-$(word 2,$(identity))
build_tools := $(VENV)/.build-tools
demo_tools := $(VENV)/.demo-tools
all_tools := $(VENV)/.all-tools
built := $(VENV)/.built

rust_sources := Cargo.toml $(wildcard Cargo.lock build.rs) $(shell find rust -name '*.rs' 2>/dev/null)
pip := $(BIN)/python -m pip --disable-pip-version-check --quiet

# What is tested is what is here, whatever the caller's shell has set up.
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python

.PHONY: help demo test lint types cargo-test doctest pytest bench wheels format clean rust

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "PYTHON=... chooses the interpreter; ARGS=... are more arguments for demo, pytest and bench."

demo: $(demo_tools) $(built) ## See what gets lost elsewhere and what does not here; under two minutes
	$(BIN)/python -m interlock.demo $(ARGS)

test: lint types cargo-test doctest pytest ## Everything below that can fail: lint, types, cargo-test, doctest, pytest

lint: $(all_tools) rust ## ruff, rustfmt and clippy; warnings are errors
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo clippy --locked --all-targets --no-default-features -- -D warnings

types: $(all_tools) $(built) ## mypy --strict, the stub against the extension, complete public types
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest interlock._core
	PATH="$(CURDIR)/$(BIN):$$PATH" pyright --verifytypes interlock --ignoreexternal

cargo-test: rust ## The Rust core without Python
	cargo test --locked --no-default-features

doctest: $(all_tools) $(built) ## The examples in the docstrings, on both backends
	INTERLOCK_BACKEND=rust $(BIN)/python -m pytest --doctest-modules python/interlock
	INTERLOCK_BACKEND=pure $(BIN)/python -m pytest --doctest-modules python/interlock

pytest: $(all_tools) $(built) ## The tests, on both backends
	$(BIN)/python -m pytest $(ARGS)

bench: $(all_tools) $(built) ## The benchmarks; figures are only comparable within one run
	$(BIN)/python -m benches.run $(ARGS)

wheels: $(build_tools) rust ## A wheel for each interpreter found, in dist/
	$(BIN)/maturin build --release --locked --out dist --interpreter $$(.ci/interpreters)

format: $(all_tools) rust ## Format Python and Rust, mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	cargo fmt

clean: ## Remove everything that was made here
	rm -rf .venv dist target .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -f python/interlock/_core*.so
	find python tests benches -name __pycache__ -prune -exec rm -rf {} +

rust:
	@cargo --version >/dev/null || { \
	    echo "A Rust toolchain is needed (1.85 or newer, with rustfmt and clippy): cargo does not run." >&2; exit 1; }

$(created):
	@test -n "$(version)" || { \
	    echo "Python 3.10 or newer is needed, and '$(or $(PYTHON),python3 on PATH)' is not one. Set PYTHON=/path/to/python3." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "$(PYTHON) cannot make a virtualenv: its venv or ensurepip module is missing." >&2; \
	    echo "On Debian and Ubuntu: apt-get install python3-venv. Or set PYTHON=... to another interpreter." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(pip) install --upgrade "pip>=25.1"
	@touch $@

$(build_tools): $(created) pyproject.toml
	$(pip) install --group build
	@touch $@

$(demo_tools): $(build_tools)
	$(pip) install --group demo
	@touch $@

$(all_tools): $(build_tools)
	$(pip) install --group all
	@touch $@

$(built): $(build_tools) $(rust_sources) | rust
	VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/maturin develop --release --locked
	@touch $@
