# Every target works as root and as a user with sudo, on a Debian machine with a Rust toolchain.
.PHONY: test full bench observability mutants lint fmt install

# What CI runs: the lints, then all tests. The last line counts them.
test: lint install
	.ci/test

# The long forms: the simulations and properties run with many more cases. At most an hour.
full: lint install
	TIDEGATE_FULL=1 PROPTEST_CASES=20000 .ci/test --profile long

# The pure layers piece by piece, then one table: value, target and floor of each figure. See docs/benchmarks.md.
bench:
	.ci/install bench
	cargo build --release --example faultd
	cargo bench --bench engine
	cargo bench --bench load

# What an operator is given, end to end; `make test` runs a shorter form, without the pictures. They are left in
# target/observability.
observability:
	.ci/install renderer
	cargo build --example faultd
	TIDEGATE_FULL=1 TIDEGATE_RENDER=1 .ci/test --test alerts --test end_to_end -- --nocapture

# Takes out each piece that keeps a rule of the engine, alone: a test must fail. Half an hour; MUTANTS=word for those
# with that word in their name, rule or file. See docs/mutants.md.
mutants:
	MUTANTS='$(MUTANTS)' cargo test --no-default-features --test mutants -- --nocapture

lint:
	cargo fmt --check
	cargo check --lib --no-default-features
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items

fmt:
	cargo fmt

install:
	.ci/install
