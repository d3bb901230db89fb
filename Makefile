# Two commands: `make demo` sets up and runs the main job, `make test` passes the tests.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test torch lint bench fuzz clean

demo: $(VENV)/.installed
	$(BIN)/ahbm bench all_reduce -b 256 -e 1M -f 4 -a lrab_hierarchical_allreduce --device

test: $(VENV)/.installed
	cargo test --workspace --exclude ahbm-python
	$(BIN)/python -m pytest -q -n auto

# The real torch.distributed, in an environment of its own: the wheel brings 2.8 GB with it.
TORCH := .venv-torch
torch:
	test -x $(TORCH)/bin/python || $(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/pip install --quiet --disable-pip-version-check ".[test,torch]" expecttest
	$(TORCH)/bin/python -m pytest -q -n 2 tests/torch_backend tests/test_docs.py -k "torch"
	$(TORCH)/bin/python tests/torch_acceptance/run.py --quick

lint: $(VENV)/.installed
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python scripts/check_stubs.py

bench: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check ".[bench]"
	cargo bench -p ahbm-engine --bench queue
	cargo bench -p ahbm-emulator --bench data
	cargo bench -p ahbm-emulator --bench job
	cargo bench -p ahbm-formats --bench msccl
	$(BIN)/python benches/imports.py
	$(BIN)/python benches/synthesis.py
	$(BIN)/python benches/run.py

# Every fuzz target for SECONDS; needs a nightly toolchain and `cargo install cargo-fuzz`. docs/fuzzing.md.
SECONDS ?= 120
FUZZ := cargo +nightly fuzz
fuzz:
	$(PYTHON) fuzz/seeds.py
	set -e; cd fuzz; for target in $$($(FUZZ) list --fuzz-dir .); do \
		$(FUZZ) run --fuzz-dir . -O $$target -- \
			-max_total_time=$(SECONDS) -max_len=16384 -timeout=10 -rss_limit_mb=1024 -print_final_stats=1; \
	done

# Rebuilt whenever something that goes into the wheel has changed.
SOURCES := $(shell find rust python algorithms topologies -name '*.rs' -o -name '*.py' -o -name '*.pyi' -o -name '*.toml' -o -name '*.yaml' 2>/dev/null | grep -v '/target/') \
	Cargo.toml Cargo.lock pyproject.toml topology.yaml ccl.yaml

$(VENV)/.installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check ".[test]"
	touch $@

clean:
	rm -rf $(VENV) $(TORCH) target dist
