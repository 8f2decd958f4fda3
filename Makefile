# `make up` needs git, a C compiler and cargo; `make test` installs what tests need. See CONTRIBUTING.md.
.PHONY: up test lint docs fuzz web bench lab

# Build and run a station on its defaults; stop it with Ctrl-C. ARGS="--target host:port" adds to them.
# The build is a quick one (profile `up` in Cargo.toml), without NATS and `classify fit`.
up:
	cargo run --profile up --no-default-features --locked -p barograph -- up $(ARGS)

# Installs what tests need and runs all suites, also after one failed; SUITES="rust web" runs only those.
test:
	scripts/test $(SUITES)

# What CI checks besides the tests.
lint:
	scripts/lint

# Build the documentation site, target/docs/index.html; installs mdbook into target/tools.
docs:
	scripts/docs

# Run the fuzzers for SECONDS each; needs a nightly toolchain, see fuzz/README.md.
fuzz:
	scripts/fuzz $(SECONDS)

# Rebuild the page that is embedded in the binary, and its forecaster.
web:
	scripts/build-wasm
	npm ci --prefix web --no-audit --no-fund
	npm run --prefix web build

bench:
	cargo bench -p barograph-forecast --bench battery
	cargo bench -p barograph-engine --features local --bench append
	cargo bench -p barograph-probe --features io --bench exchange
	cargo bench -p barograph-station --bench echo
	cargo bench -p barograph-station --bench best
	cargo bench -p barograph-timeout --features tower --bench cost
	cargo bench -p barograph-loss --bench cost
	cargo bench -p barograph-transfer --features io,testkit --bench classifier
	cargo bench -p barograph-transfer --features testkit --bench receiver
	cargo bench -p barograph-transfer --features testkit --bench sender
	cargo bench -p barograph-transfer --features files,testkit --bench files
	cargo bench -p barograph-transfer --features io,testkit --bench socket
	cargo bench -p barograph-transfer --features io,testkit --bench flow

# Score the forecasts on a folder of series of your own.
lab:
	@test -n "$(TRACES)" || { echo 'usage: make lab TRACES=FOLDER, a folder of .csv series' >&2; exit 2; }
	scripts/lab forecast "$(TRACES)"
