# Cairn. `make run` and `make test` need nothing set up before them.

CARGO ?= cargo
export CARGO_TARGET_DIR ?= $(CURDIR)/target
# The release binary; its debug information lies beside it (.ci/split).
BIN = $(CARGO_TARGET_DIR)/dist/cairn

.PHONY: help run cluster test check tools alerts build lint unit sim sim-short schedules conformance migrate-earlier pages bench-agreement clients published published-full published-tools robustness robustness-short faults failover auth-speed \
	check-perf failpoints catch-up takeover nightly reliability neighbours attacks \
	large-lists reliability-full bench-vs-etcd bench-tails deny fuzz fuzz-short

# Shows the targets.
help:
	@awk '/^# /{doc=substr($$0,3)} /^[a-z-]+:/{split($$1,name,":"); if (doc) printf "  make %-18s %s\n", name[1], doc; doc=""}' Makefile

# Builds and starts a member on 127.0.0.1:2379, data in default.etcd/.
run: build
	@echo "Starting a member on http://127.0.0.1:2379, data in default.etcd/. Stop it with Ctrl-C. In another terminal:"
	@echo "  etcdctl put greeting hello && etcdctl get greeting"
	@echo "  curl http://127.0.0.1:2379/health"
	@$(BIN) serve --log-format=console

# Builds and starts a cluster of three members on loopback, data in cairn-cluster/. SIZE=5: of five. Ctrl-C ends it.
cluster: build
	@$(BIN) cluster --size $${SIZE:-3}

# Everything CI runs; the stages joined by `+` run beside each other. docs/ci.md has their times.
test:
	@.ci/stages tools unit+build fuzz-short+sim-short conformance+clients+lint published+faults reliability

# What CI does not run, one stage after the other, and to the end although one fails: SEEDS=n (100,000) fresh ones of the simulator, else as each target has it. docs/ci.md has what each needs.
nightly:
	@SEEDS=$(or $(SEEDS),100000) FROM=$(or $(FROM),$$(date +%s)000000) .ci/stages --keep-going tools deny alerts migrate-earlier sim schedules fuzz takeover robustness published-tools published-full

# What the tests need beside compilers and interpreters; installs it on Debian, as root.
tools:
	@.ci/tools

# The release binary, target/dist/cairn, and its line tables beside it.
build:
	$(CARGO) build --release --locked -p cairn
	@.ci/split $(CARGO_TARGET_DIR)/release/cairn $(BIN)

# Formatting, circles of imports, and lints; warnings are errors.
lint:
	.ci/circles
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# The loop while you work: lints, unit tests and a short simulator. No root, no Go.
check: lint unit
	$(CARGO) build --release --locked -p cairn-sim
	$(CARGO_TARGET_DIR)/release/cairn-sim --seconds 20

# Unit, property and power-cut tests of the crates.
unit:
	$(CARGO) test --workspace --locked
	cd conformance/vs_etcd && python3 -m unittest -q test_bench

# Whole clusters from seeds: SEEDS=n (1,000) from FROM (1) on, or SEED=x with its full trace.
sim:
	$(CARGO) build --release --locked -p cairn-sim
	$(CARGO_TARGET_DIR)/release/cairn-sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000) --from $(or $(FROM),1))

# Seeds that once found something, then fresh ones for a minute.
sim-short:
	$(CARGO) build --release --locked -p cairn-sim
	$(CARGO_TARGET_DIR)/release/cairn-sim --table crates/sim/seeds.txt
	$(CARGO_TARGET_DIR)/release/cairn-sim --seconds 60

# Hand-overs between threads under many schedules: SCHEDULES=n (5,000) random ones and as many by PCT for each test, from SEED=n on.
schedules:
	$(CARGO) test --locked -p cairn-store --features schedules --lib schedule_tests::
	$(CARGO) test --locked -p cairn-rpc --features schedules --lib schedule_tests::
	$(CARGO) test --locked -p cairn-handover --features schedules --lib schedule_tests::

# Hostile scripts against whole members in one process: the seeds of fuzz/seeds, then new inputs, half a minute for each of two targets. SEED=n: from that one.
fuzz-short:
	target=$$($(CARGO) test --workspace --locked --no-run --message-format=json | \
	  python3 -c "import json, sys; print(*[m['executable'] for m in map(json.loads, sys.stdin) if m.get('executable') and m['target']['name'] == 'fuzz'])") && \
	  cd crates/hostile && "$$target" --seconds 30 $(if $(SEED),--seed $(SEED))

# etcd's own clients and tools against the release binary.
conformance: build
	cd conformance && CAIRN_BIN=$(BIN) go test -p 3 -parallel 4 -count=1 -timeout 20m $$(go list ./... | grep -v -e /reliability -e /attacks -e /partition -e /failover -e /catchup -e /clients -e /benchpages)
	cd conformance && CAIRN_BIN=$(BIN) go test -short -count=1 -timeout 10m -run 'TestPages$$' ./benchpages
	cd conformance/published && go test -count=1 .

# Data directories of etcd 3.5 and 3.6 are taken over too; builds both servers once, which takes minutes.
migrate-earlier: build
	cd conformance && EARLIER=1 CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 20m -run 'TestMigrate$$' ./utl

# Studies of `cairn bench` that are interrupted or lose their server, and their pages in a browser (Debian's chromium, installed if it is missing).
pages: build
	cd conformance && CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 20m ./benchpages

# Our `benchmark` and the genuine one measure the same server where the client is not the limit; needs an idle machine.
bench-agreement: build
	cd conformance && AGREEMENT=1 CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 30m -run TestAgreement ./bench

# Each alert rule by Prometheus' promtool, and the alerts that real members can be brought to raise; builds promtool once, which takes minutes.
alerts: build
	cd conformance && ALERTS=1 CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 30m -run 'Alert' ./process

# `cairn takeover` moves clusters of etcd to Cairn and back beside clients, ROUNDS (20) times each way; SEED=n: when it is killed.
takeover: build
	cd conformance && PORTS=20000-31999 ROUNDS=$(or $(ROUNDS),20) CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 120m ./takeover

# Client packages for Python, Java, Node and Rust, from their registries, against the release binary.
clients: build
	cd conformance && CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 20m ./clients

# The black-box suites that etcd publishes, against the release binary; what fails must stand on the lists in conformance/published.
published: build
	cd conformance/published && go run . -short -server $(BIN)

# The same with the tests that are judged by milliseconds; needs an idle machine.
published-full: build
	cd conformance/published && go run . -server $(BIN)

# Those suites with our etcdctl and etcdutl in the place of the genuine ones, against our server and the genuine one.
published-tools: build
	cd conformance/published && go run . -server $(BIN) -tools $(BIN) -suites common && go run . -server $(BIN) -tools $(BIN) -suites e2e -run "Ctl|utl"
	cd conformance/published && go run . -tools $(BIN) -suites common && go run . -tools $(BIN) -suites e2e -run "Ctl|utl"

# A server with failpoints, target/debug/cairn: a build for tests.
FAILPOINTS_BIN = $(CARGO_TARGET_DIR)/debug/cairn
failpoints:
	$(CARGO) build --locked -p cairn --features failpoints

# etcd's robustness suite against a server with failpoints: PASSES=n (25) of its 18 scenarios, about three minutes each, and the failpoint tests of e2e. Needs root.
robustness: failpoints
	cd conformance/published && go run . -server $(FAILPOINTS_BIN) -failpoints -suites e2e
	cd conformance/published && go run . -server $(FAILPOINTS_BIN) -passes $(or $(PASSES),25)

# Three minutes of that, as CI does.
robustness-short: failpoints
	cd conformance/published && go run . -server $(FAILPOINTS_BIN) -passes 1000 -for 3m

# Three members in networks of their own that lose, delay and partition; needs root.
faults: build
	cd conformance && CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 20m ./partition

# Time from a kill of the leader to the next acknowledged write, beside the genuine etcd; needs an idle machine.
failover: build
	cd conformance && CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 30m ./failover

# What users, permissions, logins and wrong passwords cost; needs an idle machine.
auth-speed: build
	$(CARGO) build --release --locked -p cairn-bench
	cd conformance && AUTH_SPEED=1 CAIRN_BIN=$(BIN) CAIRN_BENCH=$(CARGO_TARGET_DIR)/release/cairn-bench go test -count=1 -v -timeout 20m -run TestSpeed ./auth

# `check perf` by the genuine etcdctl and by ours, on both servers: a load that passes and one that fails; two minutes on an idle machine.
check-perf: build
	cd conformance && CHECK_PERF=1 CAIRN_BIN=$(BIN) go test -count=1 -v -run TestPerf ./checks

# An empty member joins a cluster of 1 GB under load; needs an idle machine.
catch-up: build
	cd conformance && CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 30m ./catchup

# Kills, failing syncs, full disks, stalled clients, attacks, in the sizes of CI. What is judged by time has a target of its own.
reliability: build
	cd conformance && CAIRN_BIN=$(BIN) go test -p 1 -count=1 -timeout 20m -skip TestNeighbours ./reliability ./attacks

# What hostile requests do to the p99 of another client; needs an idle machine.
neighbours: build
	$(CARGO) build --release --locked -p cairn-bench
	cd conformance && CAIRN_BIN=$(BIN) CAIRN_BENCH=$(CARGO_TARGET_DIR)/release/cairn-bench go test -count=1 -v -timeout 20m -run TestNeighbours ./reliability

# Each attack for a minute beside a good client, as the table of docs/reliability.md; needs an idle machine for 45 minutes.
attacks: build
	cd conformance && CAIRN_BIN=$(BIN) ATTACK_MS=60000 go test -count=1 -v -timeout 90m ./attacks

# 16 clients list 1 GiB each, half of them slowly; memory may grow by 256 MiB.
large-lists: build
	cd conformance && CAIRN_BIN=$(BIN) LIST_MB=1074 go test -count=1 -v -timeout 30m -run TestSlowLists ./reliability

# The tests of reliability in the sizes of docs/reliability.md: 200 kills, a million keys, lists of 1 GiB.
reliability-full: build
	$(CARGO) build --release --locked -p cairn-bench
	cd conformance && CAIRN_BIN=$(BIN) CAIRN_BENCH=$(CARGO_TARGET_DIR)/release/cairn-bench KILL_ROUNDS=200 SYNC_PUTS=500 SYNC_LOAD_PUTS=20000 NEIGHBOUR_KEYS=1000000 \
		NEIGHBOUR_MS=5000 LIST_MB=1074 go test -count=1 -v -timeout 60m ./reliability

# Cairn beside the genuine etcd, in turn, on this machine: ratios and CPU per request, about 20 minutes. ARGS=--quick: a first look.
bench-vs-etcd: build
	CAIRN_BIN=$(BIN) python3 conformance/vs_etcd/vs_etcd.py $(ARGS)

# The slowest puts of Cairn and of etcd while a large store is filled, compacted, saved, listed and hashed; needs an idle machine. ARGS=--quick shows whether it works.
bench-tails: build
	CAIRN_BIN=$(BIN) python3 conformance/vs_etcd/tails.py $(ARGS)

# Licences, sources and bans of all dependencies (installs cargo-deny if it is missing).
deny:
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check licenses bans sources

# Writes to a closed socket must not end the fuzzer, whose main function is not Rust's: SIGPIPE is ignored.
# Fuzzes everything that parses, SECONDS_EACH (60) per target; needs the nightly toolchain, installs cargo-fuzz if it is missing.
fuzz:
	command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	trap '' PIPE; for target in $$($(CARGO) +nightly fuzz list); do \
	  mkdir -p fuzz/corpus/$$target; \
	  $(CARGO) +nightly fuzz run $$target fuzz/corpus/$$target $$(ls -d fuzz/seeds/$$target 2>/dev/null) -- -max_total_time=$${SECONDS_EACH:-60} || exit 1; done
