# What people run. Each target does all the set-up that it needs, says what it does, and works twice.

CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/rocketmq-rs
TOOLS := $(CACHE)/tools
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),$(CURDIR)/target)
export CARGO_TARGET_DIR := $(TARGET)
export PATH := $(TOOLS)/bin:$(PATH)
# A failed test's last lines are its error, not where anyhow made it.
export RUST_LIB_BACKTRACE := 0
DENY_VERSION := 0.20.2
SERVERS := -p namesrv -p broker -p operator -p rmq
STEP = @printf '\n== %s\n'

# Rounds of `make crash`, and seconds that `make fuzz` gives each of its targets.
ROUNDS ?= 100
POINTS ?= $(ROUNDS)
SECONDS ?= 600
# Seeds of `make sim`, and the first of them.
SEEDS ?= 100000
FROM ?= 1
TARGETS ?=
CRASH := E2E_BIN=$(TARGET)/release cargo test --locked -p e2e --test crash -- --nocapture \
	--test-threads=1

.PHONY: help build demo demo-kubernetes test check unit stock-clients kubernetes bench overload \
        namesrv-size start-time faults fuzz-smoke crash fuzz sim clean

help:
	@echo 'make demo              a cluster on this machine; send, consume, see the result'
	@echo 'make demo-kubernetes   the operator and a cluster on a real Kubernetes on this machine'
	@echo 'make test              every check and test, with stock clients and a real Kubernetes'
	@echo 'make crash ROUNDS=n    kill -9, loss of power, a full disk and a bad network, n times'
	@echo 'make fuzz SECONDS=n    the fuzz targets, n seconds each; TARGETS="frames store" picks'
	@echo 'make sim SEEDS=n       n simulated groups with faults; FROM=n names the first'
	@echo 'make bench             the stock Java client against our broker and Apache'"'"'s, in turn'
	@echo 'make overload          more load than the broker can take; OVERLOAD_SECONDS=300 for long'
	@echo 'make namesrv-size      50,000 topics, 10 broker names, 2,000 connections'
	@echo 'make start-time        how long starts with 10 GiB of log and with 100,000 queues take'
	@echo 'make clean             remove what was built here (caches in $(CACHE) stay)'

build:
	$(STEP) 'Building the programs (release)'
	cargo build --release --locked $(SERVERS)

demo: build
	deploy/demo.sh $(TARGET)/release

demo-kubernetes: build
	e2e/kubernetes/demo.sh

# In the order in which a failure is cheapest to find.
test: check unit faults fuzz-smoke stock-clients kubernetes
	$(STEP) 'All tests passed'

check: $(TOOLS)/deny-$(DENY_VERSION)
	$(STEP) 'Format, style, crate edges, generated files, lints, dependencies'
	cargo run -q --locked -p xtask -- check

unit:
	$(STEP) 'Unit and integration tests'
	cargo test --locked --workspace --exclude e2e
	cargo test --locked -p e2e --lib

stock-clients: build
	$(STEP) 'Stock Java and Go clients and mqadmin against local mode'
	E2E_BIN=$(TARGET)/release cargo test --locked -p e2e --test java_local -- --nocapture
	$(STEP) 'One store for our broker and Apache'"'"'s in turn'
	E2E_BIN=$(TARGET)/release cargo test --locked -p e2e --test both_ways -- --nocapture
	$(STEP) 'Masters and slaves, ours and Apache'"'"'s'
	E2E_BIN=$(TARGET)/release cargo test --locked -p e2e --test static_replication -- --nocapture
	$(STEP) 'Elected masters: killed, restarted, moved'
	E2E_BIN=$(TARGET)/release cargo test --locked -p e2e --test failover -- --nocapture

# The short form of `crash`.
faults: build
	$(STEP) 'kill -9, loss of power, a full disk and a bad network under load'
	$(CRASH)

fuzz-smoke:
	$(STEP) 'Fuzz targets, 45 s each'
	FUZZ_SEED=1 fuzz/run.sh 45

kubernetes: build
	$(STEP) 'A real Kubernetes: install, send, change, grow, kill, delete'
	E2E_BIN=$(TARGET)/release cargo test --locked -p e2e --test kubernetes -- --nocapture

crash: build
	$(STEP) '$(ROUNDS) rounds of kill -9 and $(POINTS) losses of power under load, and more'
	CRASH_ROUNDS=$(ROUNDS) CRASH_POINTS=$(POINTS) $(CRASH)
	CRASH_SEEDS=$(ROUNDS)0 cargo test --locked -p store --test crash -- --nocapture

fuzz:
	$(STEP) 'Fuzz targets, $(SECONDS) s each'
	fuzz/run.sh $(SECONDS) $(TARGETS)

sim:
	$(STEP) '$(SEEDS) simulated groups with faults, from seed $(FROM)'
	cargo run --release --locked -p sim -- seeds $(SEEDS) --from $(FROM)

bench: build
	e2e/peers/bench.sh $(TARGET)/release $(TARGET)/bench

overload: build
	$(STEP) 'More load than the broker can take'
	E2E_BIN=$(TARGET)/release cargo test --locked -p e2e --test overload -- --nocapture

namesrv-size:
	$(STEP) 'A large name server'
	NAMESRV_SIZE=1 cargo test --release --locked -p namesrv --test size -- --nocapture

# Takes 11 GB of the disk of STORES, and gives it back.
STORES := /var/tmp
start-time:
	$(STEP) 'Start times with 10 GiB of log'
	cargo build --release --locked -p store --example start_time
	$(TARGET)/release/examples/start_time log $$((10 << 30)) 1024 $(STORES)
	$(STEP) 'Start times with 10,000 topics and 100,000 queues'
	$(TARGET)/release/examples/start_time queues 10000 10 $(STORES)

clean:
	cargo clean
	rm -rf .rocketmq

$(TOOLS)/deny-$(DENY_VERSION):
	$(STEP) 'Installing cargo-deny $(DENY_VERSION) into $(TOOLS) (a few minutes, once)'
	cargo install cargo-deny --version $(DENY_VERSION) --locked --root $(TOOLS)
	touch $@
