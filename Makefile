# Cairn. `make run` and `make test` need nothing set up before them.

CARGO ?= cargo
export CARGO_TARGET_DIR ?= $(CURDIR)/target
# The release binary; its debug information lies beside it (.ci/split).
BIN = $(CARGO_TARGET_DIR)/dist/cairn
# Prints the tests that this machine could not run, where no other stage does.
TOLD = $(CURDIR)/.ci/told

# Every target: none is a file.
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

# Shows the targets.
help:
	@awk '/^# /{doc=substr($$0,3)} /^[a-z0-9-]+:/{split($$1,name,":"); if (doc) printf "  make %-18s %s\n", name[1], doc; doc=""}' Makefile

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
	@.ci/stages tools unit+programs conformance+lint+fuzz-short reliability+clients+ecosystem-short+kubernetes-short published+faults attacks-short robustness-short+sim-short

# What CI does not run, one stage after the other, and to the end although one fails: SEEDS=n (100,000) fresh ones of the simulator, else as each target has it. docs/ci.md has what each needs.
nightly:
	@SEEDS=$(or $(SEEDS),100000) FROM=$(or $(FROM),$$(date +%s)000000) .ci/stages --keep-going tools deny alerts backup-s3 chart packages migrate-earlier sim planted damage model lying-disk schedules fuzz takeover kubernetes kubernetes-storage ecosystem robustness robustness-mixed published-tools published-proxy published-release published-full

# What the tests need beside compilers and interpreters; installs it on Debian, as root.
tools:
	@.ci/tools

# The release binary, target/dist/cairn, and its line tables beside it.
build:
	$(CARGO) build --release --locked -p cairn
	@.ci/split $(CARGO_TARGET_DIR)/release/cairn $(BIN)

# That and the simulator: all release programs that `make test` runs.
programs: build
	$(CARGO) build --release --locked -p cairn-sim

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

# Whole clusters from seeds: SEEDS=n (1,000) from FROM (1) on, each twice with TWICE=1 (both traces must be equal), or SEED=x with its full trace. LONG=1: long runs.
sim:
	$(CARGO) build --release --locked -p cairn-sim
	$(CARGO_TARGET_DIR)/release/cairn-sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000) --from $(or $(FROM),1) $(if $(TWICE),--twice)) $(if $(LONG),--long)

# Seeds that once found something, then fresh ones for two minutes; at the lowest priority, since CI runs it beside tests that look at the time.
sim-short:
	$(CARGO) build --release --locked -p cairn-sim
	nice -n 19 $(CARGO_TARGET_DIR)/release/cairn-sim --table crates/sim/seeds.txt
	nice -n 19 $(CARGO_TARGET_DIR)/release/cairn-sim --seconds 120

# What the simulator runs of replica, wal, store and disk, and every piece of code that it never does: target/sim-coverage.md. SEEDS=n (2,000) fresh ones, from FROM on.
sim-coverage:
	crates/sim/coverage.py --page $(CARGO_TARGET_DIR)/sim-coverage.md --seeds $(or $(SEEDS),2000) $(if $(FROM),--from $(FROM))

# Plants each known mistake in the code that ships until a check finds it; writes target/planted.md. SEEDS=n (2,000) at most for each.
planted:
	$(CARGO) build --release --locked -p cairn-sim --features mistakes
	$(CARGO_TARGET_DIR)/release/cairn-sim --planted $(CARGO_TARGET_DIR)/planted.md --seeds $(or $(SEEDS),2000)
	$(CARGO) test --locked -p cairn-store --features mistakes --lib drops_graves

# CUTS=n (20,000) power cuts of the log and of the store, and FLIPS=n (1,048,576) flipped bytes of each of log, segments and checkpoints, one at a time: half an hour. Says what it counted.
damage:
	CUTS=$(or $(CUTS),20000) FLIPS=$(or $(FLIPS),1048576) $(CARGO) test --locked -p cairn-wal -p cairn-store --lib --test power --test damage -- --nocapture what_was_committed_survives nothing_that_a_checkpoint_covers as_many_flipped_bytes

# One long history of a store against its model: OPERATIONS=n (10,000,000), with compactions, checkpoints, restarts and power cuts. SEED=n: from that one.
model:
	OPERATIONS=$(or $(OPERATIONS),10000000) $(CARGO) test --locked -p cairn-store --test contract long_model -- --nocapture

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
	cd conformance && CAIRN_BIN=$(BIN) $(TOLD) go test -p 5 -parallel 4 -count=1 -timeout 20m $$(go list ./... | grep -v -e /reliability -e /attacks -e /partition -e /failover -e /catchup -e /clients -e /benchpages)
	cd conformance && CAIRN_BIN=$(BIN) $(TOLD) go test -short -count=1 -timeout 10m -run 'TestPages$$' ./benchpages
	cd conformance/published && go test -count=1 .

# Data directories of etcd 3.5 and 3.6 are taken over and given back too, an image of 3.5 is refused, and a member of 3.6 applies every request as ours; builds both servers once, which takes minutes.
migrate-earlier: build
	cd conformance && EARLIER=1 CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 20m -run 'TestMigrate$$|TestExportForced$$' ./utl
	cd conformance && EARLIER=1 CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 20m -run 'TestImageOfEarlier$$|TestEveryRequestOfEarlier$$' ./cluster

# Studies of `cairn bench` that are interrupted or lose their server, and their pages in a browser (Debian's chromium, installed if it is missing).
pages: build
	cd conformance && CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 20m ./benchpages

# Our `benchmark` and the genuine one measure the same server where the client is not the limit; needs an idle machine.
bench-agreement: build
	cd conformance && AGREEMENT=1 CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 30m -run TestAgreement ./bench

# `cairn backup` on a real S3 server with keys, on a small disk that fills (root, for a loop device): REVISIONS=n (1,000) random ones are restored and compared. Builds the server once, which takes minutes.
backup-s3: build
	cd conformance && S3=1 REVISIONS=$(or $(REVISIONS),1000) CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 90m -run TestS3 ./backup

# Each alert rule by Prometheus' promtool, and the alerts that real members can be brought to raise; builds promtool once, which takes minutes.
alerts: build
	cd conformance && ALERTS=1 CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 30m -run 'Alert' ./process

# The image, and the one whose processes are not root, as files in dist/VERSION that docker, podman and ctr load; without a daemon.
image:
	KINDS=image packaging/release $(or $(VERSION),3.7.3-cairn.1) $(ARCHS)

# Everything that is released of this commit, in dist/VERSION: tarball, deb, rpm, images, bills of materials, checksums. VERSION=3.7.3-cairn.N; ARCHS="amd64 arm64": for both.
release:
	packaging/release "$(VERSION)" $(ARCHS)

# Makes a release and checks it: images run, packages are installed, upgraded under load and removed on a booted Debian, compose files start it, all can be repeated. Needs root, systemd-nspawn, debootstrap and buildah.
packages:
	cd conformance && PACKAGES=1 go test -count=1 -v -timeout 60m ./packages

# Compiles what is released of the last commit twice, in two places with crates of their own, and compares the programs: two release builds.
repeat-build:
	packaging/repeat

# The program for arm64 is built and tried: locks, shares, watches and histories, TLS, members that join, by QEMU where the machine is another. On amd64 it needs Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static.
arm64:
	packaging/arm64

# The Helm chart is linted and rendered by the genuine helm, which is built once in minutes. UPDATE_DOCS=1 writes the plain manifests of deploy/kubernetes.
chart:
	cd conformance && CHART=1 $(TOLD) go test -count=1 -timeout 20m -run 'Chart|Founding|Schema|Manifests' ./chart

# `cairn takeover` moves clusters of etcd 3.7 and 3.6 to Cairn and back beside clients, ROUNDS (20) times each way, also while members and links fail for FAULT_SECONDS (20); SEED=n: when it is killed, and what fails. Builds etcd 3.6 once. Needs root.
takeover: build
	cd conformance && PORTS=20000-31999 ROUNDS=$(or $(ROUNDS),20) FAULT_SECONDS=$(or $(FAULT_SECONDS),20) EARLIER=1 CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 240m ./takeover

# A Kubernetes control plane from its Go modules on one member and on three that are killed, cut off and replaced, ROUNDS (1) times each fault; and kubeadm. Builds it once, which takes long. Needs root.
kubernetes: build
	cd conformance/kubernetes && CAIRN_BIN=$(BIN) go test -p 1 -count=1 -v -timeout 90m . ./kubeadm

# The same on one member alone, under two minutes once it is built.
kubernetes-short: build
	cd conformance/kubernetes && CAIRN_BIN=$(BIN) go test -short -count=1 -v -timeout 30m .

# The storage tests of Kubernetes' API server, unmodified, against the release binary.
kubernetes-storage: build
	cd conformance/kubernetes/storage && go test -count=1 . && go run . -server $(BIN)

# Integration tests of Kubernetes' API server, unmodified, on the genuine etcd and on Cairn, which they start or are given: SUITES="apiserver/cel": other packages; MINUTES=n (15): the most for each of three runs of a package. Builds them, which takes long.
kubernetes-integration: build
	cd conformance/kubernetes && KUBERNETES_INTEGRATION=1 CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 330m ./integration

# 150,000 pods of 2 KB: what it costs to fill one and five watch caches, beside the genuine etcd; fails if our server's memory grows by more than 64 MiB. Needs an idle machine with 8 GB.
kubernetes-size: build
	cd conformance/kubernetes/storage && go run . -server $(BIN) -size && go run . -size

# Client packages for Python, Java, Node and Rust, from their registries, against the release binary.
clients: build
	cd conformance && CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 20m ./clients

# Other people's suites of clients and users of etcd, from their registries, against the genuine etcd and the release binary, test by test. ONLY=NAME: that one. Needs root.
ecosystem: build
	cd conformance/ecosystem && python3 -m unittest -q test_ecosystem && CAIRN_BIN=$(BIN) ./ecosystem.py $(ONLY)

# One of them that is quick, another one each day; TURN=n: that one. Needs root.
ecosystem-short: build
	cd conformance/ecosystem && python3 -m unittest -q test_ecosystem && CAIRN_BIN=$(BIN) TURN=$(TURN) ./ecosystem.py --turn

# The black-box suites that etcd publishes, against the release binary; what fails must stand on the lists in conformance/published.
published: build
	cd conformance/published && go run . -short -server $(BIN)
	cd conformance/published && go run . -short -proxy -server $(BIN) -suites common -run '^Test(KV|Lease|Txn|Watch)'

# Those suites with a gRPC proxy before each member, as etcd builds them with the tag cluster_proxy.
published-proxy: build
	cd conformance/published && go run . -proxy -short -server $(BIN)

# Those of them that need the release before, with etcd 3.6 beside the server: members of both in one cluster, upgrades, downgrades. Builds it once.
published-release: build
	cd conformance/published && go run . -last-release -server $(BIN) -suites e2e

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

# etcd's robustness suite against a server with failpoints: PASSES=n (25) of its 18 scenarios, a minute or two each, and the failpoint tests of e2e. Needs root.
robustness: failpoints
	cd conformance/published && go run . -server $(FAILPOINTS_BIN) -failpoints -suites e2e
	cd conformance/published && go run . -server $(FAILPOINTS_BIN) -passes $(or $(PASSES),25)

# Its scenarios of three members, of which some are of etcd 3.6: PASSES=n (10). Needs root.
robustness-mixed: failpoints
	cd conformance/published && go run . -last-release -server $(FAILPOINTS_BIN) -passes $(or $(PASSES),10) -run ClusterOfSize3

# Three minutes of that, as CI does, without the scenarios whose histories porcupine may look at for five minutes. Needs root.
robustness-short: failpoints
	cd conformance/published && go run . -server $(FAILPOINTS_BIN) -passes 1000 -for 3m -run 'ClusterOfSize3|LowTraffic|DeleteLeases|Regression'

# Three members in networks of their own that lose, delay and partition; needs root.
faults: build
	cd conformance && CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 20m ./partition

# Time from each of KILLS=n (30) kills of the leader to the next acknowledged write, beside the genuine etcd; needs an idle machine.
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
	cd conformance && CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 30m -run 'TestCatchUp$$' ./catchup

# How long each command takes that moves a stopped member or a snapshot to Cairn or back, with MOVE_MB=n (1,024) of values; needs 14 MB of disk for each.
moving-times: build
	cd conformance && MOVE_TIMES=1 MOVE_MB=$(or $(MOVE_MB),1024) CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 60m -run 'TestTimes$$' ./utl

# The same with members of the other kind: Cairn joins etcd, etcd joins Cairn, and etcd joins etcd, to compare with. CATCHUP_DISK=DIR: a directory of another disk, for the one that joins. CATCHUP_LOAD=n (30): percent of the most they can do.
catch-up-mixed: build
	cd conformance && CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 60m -run TestCatchUpOfBothKinds ./catchup

# Kills, failing syncs, full disks, stalled clients, in the sizes of CI. What is judged by time has a target of its own.
reliability: build
	cd conformance && CAIRN_BIN=$(BIN) $(TOLD) go test -count=1 -timeout 20m -skip 'TestNeighbours|TestRolling' ./reliability

# A member under load on a disk that drops what was not synced: KILLS=n (500) kills, 100 failing calls, a slow, full and read-only disk, wrong clocks.
lying-disk: build
	cd conformance && CAIRN_BIN=$(BIN) LYING_KILLS=$(or $(KILLS),500) FAILING_CALLS=100 DISK_STATES=12 CLOCK_JUMPS=36 go test -p 1 -count=1 -v -timeout 120m -run 'TestLyingDisk|TestFailingCalls|TestDiskStates|TestClockJumps' ./reliability

# Three members under load go from the build CAIRN_OLD_BIN to this one and back, one at a time; ROUNDS=n (3).
rolling: build
	@test -n "$(CAIRN_OLD_BIN)" || { echo "CAIRN_OLD_BIN names no older build" >&2; exit 2; }
	cd conformance && CAIRN_BIN=$(BIN) ROLLING_ROUNDS=$(or $(ROUNDS),3) go test -count=1 -v -timeout 30m -run TestRolling ./reliability

# What hostile requests do to the p99 of another client; needs an idle machine.
neighbours: build
	$(CARGO) build --release --locked -p cairn-bench
	cd conformance && CAIRN_BIN=$(BIN) CAIRN_BENCH=$(CARGO_TARGET_DIR)/release/cairn-bench go test -count=1 -v -timeout 20m -run TestNeighbours ./reliability

# Puts and gets of one client while 64 others list 8,000 keys each through the leader of three members, with and without --client-share, and the same of the genuine etcd; needs an idle machine.
isolation: build
	cd conformance && ISOLATION=1 CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 20m -run TestIsolation ./sharing
	cd conformance && ISOLATION=1 SERVER=etcd CAIRN_BIN=$(BIN) go test -count=1 -v -timeout 20m -run TestIsolation ./sharing

# Each attack for a second beside a good client. Not beside other tests in CI: it bounds that client's p99.
attacks-short: build
	cd conformance && CAIRN_BIN=$(BIN) $(TOLD) go test -count=1 -timeout 20m ./attacks

# Each attack for a minute beside a good client, as the table of docs/reliability.md; needs an idle machine for 45 minutes.
attacks: build
	cd conformance && CAIRN_BIN=$(BIN) ATTACK_MS=60000 go test -count=1 -v -timeout 90m ./attacks

# 100,000 leases that end together on one and on three members, 1,000 readers of one large value, 14,000 connections (20,000 open files allow no more), 10,000 watchers of a prefix, 100 from before a million events, 1,000 that do not read beside 100 that do; beside the genuine etcd. Needs an idle machine. ARGS="-run Watchers": some of them.
storms: build
	cd conformance && CAIRN_BIN=$(BIN) BESIDE=1 LEASES=100000 READERS=1000 READ_MS=10000 CONNECTIONS=14000 WATCHERS=10000 WATCH_PUTS=4000 WATCH_RATE=400 \
		OLD_WATCHERS=100 OLD_EVENTS=1000000 STALLED=1000 STALL_PUTS=30000 STALL_RATE=1000 go test -parallel 1 -count=1 -v -timeout 60m $(ARGS) ./storms

# 16 clients list 1 GiB each, half of them slowly; memory may grow by 256 MiB.
large-lists: build
	cd conformance && CAIRN_BIN=$(BIN) LIST_MB=1074 go test -count=1 -v -timeout 30m -run TestSlowLists ./reliability

# Three members under 70 % of the load they take for MINUTES (120), beside kills, pauses, backups, new learners every half minute: nothing they keep may grow. SAMPLES=FILE keeps what was seen.
soak: build
	cd conformance && CAIRN_BIN=$(BIN) MINUTES=$(or $(MINUTES),120) go test -count=1 -v -timeout 0 ./soak

# The tests of reliability in the sizes of docs/reliability.md: 200 kills, a million keys, lists of 1 GiB.
reliability-full: build
	$(CARGO) build --release --locked -p cairn-bench
	cd conformance && CAIRN_BIN=$(BIN) CAIRN_BENCH=$(CARGO_TARGET_DIR)/release/cairn-bench KILL_ROUNDS=200 SYNC_PUTS=500 SYNC_LOAD_PUTS=20000 NEIGHBOUR_KEYS=1000000 \
		NEIGHBOUR_MS=5000 LIST_MB=1074 go test -count=1 -v -timeout 60m ./reliability

# Cairn beside the genuine etcd, in turn, on this machine: ratios and CPU per request, about 20 minutes. ARGS=--quick: a first look; ETCD_BIN=another build of Cairn: beside that one.
bench-vs-etcd: build
	CAIRN_BIN=$(BIN) python3 conformance/vs_etcd/vs_etcd.py $(ARGS)

# What the hops of one client's put cost by epoll, by spinning before it and by io_uring, without any of Cairn (docs/adr/0018-waiting.md); needs liburing and an idle machine.
bench-waits:
	mkdir -p $(CARGO_TARGET_DIR)/bench && cc -O2 -Wall -o $(CARGO_TARGET_DIR)/bench/waits conformance/vs_etcd/waits.c -luring
	for round in 1 2 3; do for members in 1 3; do for how in "epoll 0" "spin 20" "spin 100" "uring 0"; do \
	  $(CARGO_TARGET_DIR)/bench/waits $$how $$members 4000 $(CARGO_TARGET_DIR)/bench || exit 1; done; done; done

# The slowest puts of Cairn and of etcd while a large store is filled, compacted, saved, listed and hashed; needs an idle machine. ARGS=--quick shows whether it works.
bench-tails: build
	CAIRN_BIN=$(BIN) python3 conformance/vs_etcd/tails.py $(ARGS)

# A store of 100 million keys: rates, memory, counting, paging, restarts; 40 GB of disk, an idle machine, a quarter of an hour. ARGS="--keys 10000000": fewer.
bench-large: build
	CAIRN_BIN=$(BIN) python3 conformance/vs_etcd/large.py $(ARGS)

# Reads and watches through `gateway start` and `grpc-proxy start` of Cairn and of etcd, before the same Cairn: processor time, rates, lag, memory; needs an idle machine. ARGS=--quick: a first look.
bench-reads: build
	CAIRN_BIN=$(BIN) python3 conformance/vs_etcd/reads.py $(ARGS)

# Observers: what they cost the leader, how reads grow with them, and what lists on one do to puts and gets at the members; needs an idle machine and cgroup v1, 8 minutes. ARGS=--quick: a first look.
bench-observers: build
	CAIRN_BIN=$(BIN) python3 conformance/vs_etcd/observers.py $(ARGS)

# One member and three, each confined to a quarter of a processor, are offered four times what they take: puts acknowledged, how soon a refusal is heard, terms, memory; beside etcd. Needs an idle machine and cgroup v1, 12 minutes. ARGS="--only cairn": half of that; ARGS=--quick shows whether it works.
bench-overload: build
	CAIRN_BIN=$(BIN) python3 conformance/vs_etcd/overload.py $(ARGS)

# What `cairn backup` costs the member it follows, at 20,000 puts a second: its processor time with and without, three pairs; needs an idle machine, 6 minutes. ARGS=--quick shows whether it works.
bench-archive: build
	CAIRN_BIN=$(BIN) python3 conformance/vs_etcd/archive.py $(ARGS)

# What each thread of a member takes for a put at 1,000 clients, of one member and of three, and its calls of futex; needs an idle machine, 2 minutes. ARGS=--quick shows whether it works.
bench-threads: build
	CAIRN_BIN=$(BIN) python3 conformance/vs_etcd/threads.py $(ARGS)

# Licences, sources and bans of all dependencies, and advisories where their database can be reached; where it cannot, that fails with CI=1 (installs cargo-deny if it is missing).
deny:
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check licenses bans sources
	@if timeout 60 git ls-remote -q https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then $(CARGO) deny check advisories; \
	else echo "advisories were not checked: their database cannot be reached" >&2; [ -z "$$UNPROVED" ] || echo "deny: advisories" >>"$$UNPROVED"; [ -z "$$CI" ]; fi

# Writes to a closed socket must not end the fuzzer, whose main function is not Rust's: SIGPIPE is ignored.
# Fuzzes everything that parses, SECONDS_EACH (60) per target; needs the nightly toolchain, installs cargo-fuzz if it is missing.
fuzz:
	command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	$(CARGO) +nightly fuzz build
	@# Whole members have threads that are just starting, whose names count as leaks; these targets look at the memory themselves.
	@# Not by `cargo fuzz run`, which gives SIGPIPE back to the targets: those with sockets would end by it.
	trap '' PIPE; export ASAN_OPTIONS=detect_odr_violation=0; host=$$(rustc -vV | sed -n 's/^host: //p'); \
	for target in $$($(CARGO) +nightly fuzz list); do \
	  mkdir -p fuzz/corpus/$$target fuzz/artifacts/$$target; \
	  leaks=1; case $$target in front_door|logins) leaks=0;; esac; \
	  $(CARGO_TARGET_DIR)/$$host/release/$$target fuzz/corpus/$$target $$(ls -d fuzz/seeds/$$target 2>/dev/null) -detect_leaks=$$leaks \
	    -max_total_time=$${SECONDS_EACH:-60} -artifact_prefix=fuzz/artifacts/$$target/ || exit 1; done
