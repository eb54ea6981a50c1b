# Every target works from a fresh clone on Debian 12 with Rust and Go; missing packages are installed.
.DEFAULT_GOAL := help
.PHONY: help demo demo-cluster test cluster-test exhaustive mutants cluster-bench bench figures lint install

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

install:
	@e2e/install

demo: install ## see a volume live and grow on real LVM, in a throw-away kernel
	@e2e/demo/run

demo-cluster: install ## see a claim grow on a real Kubernetes, in throw-away kernels
	@e2e/cluster/demo

test: install ## all tests: units, fakes, real LVM, csi-sanity, protocol
	@e2e/test

cluster-test: install ## tests on a real Kubernetes, in throw-away kernels
	@e2e/cluster/test

exhaustive: install ## all crash points, lives, swap states, kill points, power cuts and seeds: `make test` takes a part
	@EXHAUSTIVE=1 cargo test --quiet --features testing --test claims --test populators crash_points::every_lost_request
	@EXHAUSTIVE=1 cargo test --quiet --package pliant-operator claims::plan::tests
	@EXHAUSTIVE=1 cargo test --quiet --features testing --test node copies_model::
	@EXHAUSTIVE=1 LIMIT=9000 e2e/real-lvm kill_points:: --nocapture
	@EXHAUSTIVE=1 LIMIT=9000 e2e/real-lvm power_cuts_of_the_driver:: --nocapture
	@SEEDS="$$(seq -s ' ' 20)" LIMIT=9000 e2e/sanity/run

mutants: install ## change the code in one place after the other: 95 % must fail a test; hours
	@e2e/mutants

cluster-bench: install ## the figures of a cluster: edits, swaps, a thousand nodes, deaths
	@e2e/cluster/bench

bench: install ## Pliant beside plain LVM commands, on the same kernel
	@e2e/bench

figures: ## merge what tests and benches measured into target/figures.json
	@e2e/figures

lint: install ## format, clippy, docs, licences
	@e2e/lint
