# Every target works as root and as a user with sudo, on a Debian machine with a Rust toolchain.
.PHONY: test full bench lint fmt install

# What CI runs: the lints, then all tests. The last line counts them.
test: lint install
	.ci/test

# The long forms: the simulations and properties run with many more cases. At most an hour.
full: lint install
	TIDEGATE_FULL=1 PROPTEST_CASES=20000 .ci/test --profile long

# The pure layers piece by piece, then one table: value, target and floor of each figure. See docs/benchmarks.md.
bench:
	cargo build --release --example faultd
	cargo bench --bench engine
	cargo bench --bench load

lint:
	cargo fmt --check
	cargo check --lib --no-default-features
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items

fmt:
	cargo fmt

install:
	.ci/install
