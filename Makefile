# Cairn: everything a developer runs. Each target says what it is for.

.PHONY: bench-vs-etcd bench-vs-etcd-quick

# Cairn beside the genuine etcd, in turn, on this machine: ratios, CPU per request, memory, restart (about 20 minutes).
# Needs h2load (nghttp2-client), Go and an otherwise idle machine. ETCD_BIN and CAIRN_BIN name binaries that exist.
bench-vs-etcd:
	python3 bench/vs_etcd.py

# The same as a first look: shorter runs, two pairs, 100,000 keys.
bench-vs-etcd-quick:
	python3 bench/vs_etcd.py --quick

.PHONY: reliability reliability-quick

# What must never happen, tried against the release build from outside: kills, failing syncs, full disks, hostile clients.
reliability:
	cargo build --release --package cairn
	cd conformance && KILL_ROUNDS=200 SYNC_PUTS=500 SYNC_LOAD_PUTS=20000 NEIGHBOUR_KEYS=1000000 NEIGHBOUR_MS=5000 \
		NEIGHBOUR_FLOOR_US=1000 go test -count=1 -v -timeout 60m ./reliability

# The same in the sizes of CI.
reliability-quick:
	cargo build --release --package cairn
	cd conformance && go test -count=1 -timeout 20m ./reliability
