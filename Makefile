# Everything a developer runs. `make help` lists it.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/millstream/target
export PATH := $(HOME)/.cargo/bin:$(PATH)

CARGO_TEST_FLAGS ?=
BENCH_FLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run build test test-crash bench fmt lint check doc clean

help: ## List the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-10s %s\n", $$1, $$2 }'

setup: ## Install what the build and the tests need (idempotent)
	@scripts/setup.sh

run: setup ## Build for speed and start the demo: a server, a stream, three views
	cargo build --release --locked --bin millstream
	$(CARGO_TARGET_DIR)/release/millstream demo

build: ## Build the release binary
	cargo build --release --locked --bin millstream

# The tests come last, so that their result lines end the output.
test: setup lint ## Format, lints, build, examples, all tests
	cargo build --workspace --all-targets --locked
	cargo test --workspace --locked $(CARGO_TEST_FLAGS)

test-crash: setup ## Kill the program 200 times and compare: the long form of the crash test
	MILLSTREAM_CRASH_KILLS=$${MILLSTREAM_CRASH_KILLS:-200} cargo test --workspace --locked --test it crash:: -- --nocapture

bench: setup ## The benchmarks; results in benchmarks/RESULTS.md
	cargo run --release --locked -p millstream-benchmarks -- nexmark $(BENCH_FLAGS)

fmt: ## Format the code
	cargo fmt --all

lint: ## Check format and lints; warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

check: ## Type-check everything, fast
	cargo check --workspace --all-targets --locked

doc: ## Build the reference documentation of the crates
	cargo doc --workspace --no-deps --locked

clean: ## Remove what was built
	cargo clean
