# `make up` needs git and cargo alone; `make test` installs what tests need. See CONTRIBUTING.md.
.PHONY: up test lint web bench lab install-test-needs

# Build and run a station on its defaults; stop it with Ctrl-C. ARGS="--target host:port" adds to them.
up:
	cargo run --release --locked -p barograph -- up $(ARGS)

test: install-test-needs
	cargo test --workspace --all-features --locked
	scripts/test-web

install-test-needs:
	scripts/install-test-needs

# What CI checks besides the tests.
lint:
	scripts/lint

# Rebuild the page that is embedded in the binary.
web:
	npm ci --prefix web --no-audit --no-fund
	npm run --prefix web build

bench:
	cargo bench -p barograph-forecast --bench battery
	cargo bench -p barograph-engine --features local --bench append
	cargo bench -p barograph-probe --features io --bench exchange
