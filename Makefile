# Cairn: everything a developer runs. Each target says what it is for.

.PHONY: bench-vs-etcd bench-vs-etcd-quick

# Cairn beside the genuine etcd, in turn, on this machine: ratios, CPU per request, memory, restart (about 20 minutes).
# Needs h2load (nghttp2-client), Go and an otherwise idle machine. ETCD_BIN and CAIRN_BIN name binaries that exist.
bench-vs-etcd:
	python3 bench/vs_etcd.py

# The same as a first look: shorter runs, two pairs, 100,000 keys.
bench-vs-etcd-quick:
	python3 bench/vs_etcd.py --quick
