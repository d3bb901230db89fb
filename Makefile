# Two commands: `make demo` sets up and runs the main job, `make test` passes the tests. CONTRIBUTING.md has the others.

PYTHON ?= python3
VENV ?= .venv
# The real torch.distributed has an environment of its own: its wheel brings 2.8 GB with it.
TORCH := .venv-torch
BIN := $(VENV)/bin
WHEELS := target/wheels
PIP := install --quiet --disable-pip-version-check
PYTEST := -m pytest -q --durations=15 --dist worksteal
STEP := @scripts/step

# Interpreters are started often, and each would compile whatever has no bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick torch torch-tests torch-suite torch-libraries torch-scripts
.PHONY: viewer site wasm
.PHONY: style lint clippy types windows stubs bench fuzz clean

demo: $(VENV)/.running
	$(STEP) "algorithms/my_allreduce.py on topology.yaml, beside a ring that comes with AHBM" \
		$(BIN)/ahbm bench all_reduce -a my_allreduce -a ring_allreduce -b 256 -e 1M -f 4

test: $(VENV)/.testing
	$(STEP) "compile the Rust tests" cargo test --workspace --exclude ahbm-python --no-run
	$(STEP) "Rust tests" cargo test --workspace --exclude ahbm-python
	$(STEP) "Python tests, documentation included" $(BIN)/python $(PYTEST) -n auto

# The inner loop: less than 90 s, without the slow tests (`pytest.mark.slow`) and the crates that nobody touched.
quick: style $(VENV)/.testing
	$(STEP) "mypy" $(BIN)/mypy
	@crates="$$($(PYTHON) scripts/changed_crates.py)"; \
		[ -z "$$crates" ] || scripts/step "Rust tests of what changed: $$crates" cargo test -q $$crates
	$(STEP) "Python tests but the slow ones" $(BIN)/python $(PYTEST) -n auto -m "not slow"

torch: torch-tests torch-suite torch-libraries torch-scripts

torch-tests: $(TORCH)/.testing
	$(STEP) "torch tests" $(TORCH)/bin/python $(PYTEST) -n 2 tests/torch_backend tests/test_docs.py tests/test_examples.py -k "torch or training"

torch-suite: $(TORCH)/.testing
	$(STEP) "a part of torch's own suite" $(TORCH)/bin/python tests/torch_acceptance/run.py --quick

torch-libraries: $(TORCH)/.testing
	$(STEP) "libraries on torch, on gloo and on ahbm" $(TORCH)/bin/python tests/torch_acceptance/libraries.py

torch-scripts: $(TORCH)/.testing
	$(STEP) "scripts for GPUs, on devices that are not there" $(TORCH)/bin/python tests/torch_acceptance/scripts.py --quick \
		ddp fsdp2 tensor_parallel multigpu_torchrun imagenet word_language_model dlrm moe data_parallel

# The lints that need nothing built.
style: $(VENV)/.linting
	$(STEP) "cargo fmt" cargo fmt --all --check
	$(STEP) "ruff format" $(BIN)/ruff format --check .
	$(STEP) "ruff check" $(BIN)/ruff check .

lint: style clippy types windows stubs

# The types of the viewer's sources, which `scripts/viewer.py` joins; needs npm and, the first time, the network.
viewer:
	$(PYTHON) scripts/viewer.py
	node --test web/test/
	npx --yes --package typescript@5 tsc -p web

# The documentation as a site, in site/: open site/index.html. Nothing of the site needs the network; pip does, once.
site: $(BIN)/python
	$(STEP) "install the generator" $(BIN)/pip $(PIP) $$($(PYTHON) scripts/needs.py site)
	$(STEP) "site/" env NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# That the crates below the Python module stay free of what a browser does not have; docs/view.md says what is missing.
wasm:
	$(STEP) "the crates for WebAssembly" cargo check --workspace --exclude ahbm-python --target wasm32-unknown-unknown

clippy:
	$(STEP) "clippy" cargo clippy --workspace --all-targets -- -D warnings

types: $(VENV)/.testing
	$(STEP) "mypy" $(BIN)/mypy

windows: $(VENV)/.testing
	$(STEP) "mypy, as if on Windows" $(BIN)/mypy --platform win32 --cache-dir .mypy_cache/windows python/ahbm

stubs: $(VENV)/.testing $(VENV)/.linting
	$(STEP) "stubs of the native module" $(BIN)/python scripts/stubs.py --check

bench: $(VENV)/.running
	$(BIN)/pip $(PIP) $$($(PYTHON) scripts/needs.py bench)
	$(BIN)/python benches/phases.py
	cargo bench -p ahbm-engine --bench queue
	cargo bench -p ahbm-emulator --bench sums
	cargo bench -p ahbm-emulator --bench data
	cargo bench -p ahbm-emulator --bench job
	cargo bench -p ahbm-formats --bench msccl
	$(BIN)/python benches/imports.py
	$(BIN)/python benches/synthesis.py
	$(BIN)/python benches/run.py
	$(BIN)/python benches/sweep.py
	$(BIN)/python benches/choose.py

# Every fuzz target for SECONDS; needs a nightly toolchain and `cargo install cargo-fuzz`. docs/records/fuzzing.md.
SECONDS ?= 120
FUZZ ?= cargo +nightly fuzz
fuzz:
	$(PYTHON) fuzz/seeds.py
	set -e; cd fuzz; for target in $$($(FUZZ) list --fuzz-dir .); do \
		$(FUZZ) run --fuzz-dir . -O $$target -- \
			-max_total_time=$(SECONDS) -max_len=16384 -timeout=10 -rss_limit_mb=1024 -print_final_stats=1; \
	done
	$(BIN)/python fuzz/hostile.py $(SECONDS)

# One wheel, built once and installed in both environments; built again when something that goes into it has changed.
SOURCES := $(shell find rust python \( -name tests -o -name benches -o -name __pycache__ \) -prune -o \
	\( -name '*.rs' -o -name '*.py' -o -name '*.pyi' -o -name '*.toml' -o -name '*.yaml' -o -name '*.j2' \
	-o -name '*.js' -o -name '*.html' -o -name '*.json' \) -print 2>/dev/null) Cargo.toml Cargo.lock pyproject.toml README.md

$(WHEELS)/.built: $(SOURCES) | $(BIN)/maturin
	@rm -f $(WHEELS)/ahbm-*.whl
	$(STEP) "build the wheel (a release build: minutes the first time, seconds later)" \
		$(BIN)/maturin build --release --locked --compatibility linux --interpreter $(BIN)/python --out $(WHEELS)
	@touch $@

$(BIN)/python:
	$(STEP) "environment in $(VENV)" $(PYTHON) -m venv $(VENV)

$(BIN)/maturin: | $(BIN)/python
	$(STEP) "install the build tool" $(BIN)/pip $(PIP) $$($(PYTHON) scripts/needs.py build)

$(TORCH)/bin/python:
	$(STEP) "environment in $(TORCH)" $(PYTHON) -m venv $(TORCH)

# What the wheel and its tests need: it is fetched while the gate compiles the wheel.
$(VENV)/.fetched: pyproject.toml | $(BIN)/maturin
	$(STEP) "fetch what the tests need" scripts/fetch $(VENV) $$($(PYTHON) scripts/needs.py run test)
	@touch $@

$(TORCH)/.fetched: pyproject.toml | $(TORCH)/bin/python
	$(STEP) "fetch torch and what the tests need" \
		scripts/fetch $(TORCH) $$($(PYTHON) scripts/needs.py run test torch) expecttest
	@touch $@

# The same version may be other code: hence --force-reinstall, without fetching what the wheel depends on again.
# FETCHED: what the gate has pip do before, in the same environment.
$(VENV)/.running: $(WHEELS)/.built | $(FETCHED)
	@scripts/step "install the wheel and what it needs to run" sh -c \
		'set -e; wheel=$$(ls $(WHEELS)/ahbm-*.whl); \
		$(BIN)/pip $(PIP) --force-reinstall --no-deps $$wheel; $(BIN)/pip $(PIP) $$wheel'
	@touch $@

$(VENV)/.testing: $(VENV)/.running pyproject.toml
	@scripts/step "install what the tests need" $(BIN)/pip $(PIP) "$$(ls $(WHEELS)/ahbm-*.whl)[test]"
	@touch $@

$(VENV)/.linting: pyproject.toml | $(BIN)/python
	@scripts/step "install the linters" $(BIN)/pip $(PIP) $$($(PYTHON) scripts/needs.py lint)
	@touch $@

$(TORCH)/.testing: $(WHEELS)/.built $(TORCH)/.fetched
	@scripts/step "install the wheel beside torch" \
		$(TORCH)/bin/pip $(PIP) --force-reinstall --no-deps $$(ls $(WHEELS)/ahbm-*.whl)
	@touch $@

clean:
	rm -rf $(VENV) $(TORCH) target dist site
