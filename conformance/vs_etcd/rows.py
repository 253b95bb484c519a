"""The rows of the comparison: what is sent, and what Cairn wants to reach."""

from dataclasses import dataclass

import proto
from lean import Benchmark, Lean, SameOffer
from load import ManyKeys, SameRequest
from tools import Tools

KEY = b"benchkey"
VALUE = bytes(ord("a") + i % 26 for i in range(256))

WATCHERS = 1_000
LIST_KEYS = 100_000

PUT = "/etcdserverpb.KV/Put"
RANGE = "/etcdserverpb.KV/Range"


@dataclass(frozen=True)
class Row:
    """One line of the table. `ratio_min`, `cpu_share_max` and `p99_share_max` are the goals, None where there is none. `target` says
    which members of a cluster of three get the load; without it a member alone gets it, which has a port of its own for HTTP/1.1 where
    `is_split`. The genuine server's gRPC over TLS goes through Go's HTTP server otherwise, which is much slower than grpc-go's own transport."""

    name: str
    title: str
    load: SameRequest | ManyKeys | Lean | SameOffer | Benchmark | None
    ratio_min: float | None = None
    cpu_share_max: float | None = None
    target: str | None = None
    p99_share_max: float | None = None
    is_split: bool = False


def small_rows(tools: Tools) -> list[Row]:
    """Rows measured on a fresh store each time."""
    read = proto.range_request(KEY)
    read_local = proto.range_request(KEY, serializable=True)
    put = proto.put_request(KEY, VALUE)
    return [
        Row("read-serializable", "serializable read", SameRequest(RANGE, read_local, 100, 10), 5.0, 0.10),
        Row("read-linearizable", "linearizable read", SameRequest(RANGE, read, 100, 10), 5.0, 0.10),
        Row("read-tls", "linearizable read over TLS", SameRequest(RANGE, read, 100, 10, secure=True), 2.0),
        Row(
            "read-tls-split",
            "linearizable read over TLS, HTTP/1.1 on a port of its own",
            SameRequest(RANGE, read, 100, 10, secure=True),
            is_split=True,
        ),
        Row("put", "put, one key", SameRequest(PUT, put, 100, 10), 5.0, 0.15),
        Row("put-keys", "put, 100,000 keys", ManyKeys(tools.bench, keys=100_000), 5.0, 0.15),
        Row("put-one-client", "put, one client", SameRequest(PUT, put, 1, 1), 1.5),
        Row("put-3", "put, 3 members", SameRequest(PUT, put, 100, 10), 5.0, 0.15, "leader"),
        Row("put-3-all", "put, 3 members, sent to all", SameRequest(PUT, put, 99, 10), None, None, "all"),
        Row("put-3-one-client", "put, 3 members, one client", SameRequest(PUT, put, 1, 1), 2.0, None, "leader"),
        Row("read-3-leader", "linearizable read, 3 members, leader", SameRequest(RANGE, read, 100, 10), 4.0, None, "leader"),
        Row("read-3-follower", "linearizable read, 3 members, follower", SameRequest(RANGE, read, 100, 10), 4.0, None, "follower"),
    ]


def lean_rows(tools: Tools) -> list[Row]:
    """Rows whose load is `cairn-bench` or etcd's `benchmark`, each on a fresh store."""

    def lean(line: str, **more) -> Lean:
        return Lean(tools.bench, tuple(line.split()), **more)

    key = f"--key {KEY.decode()}"
    hundred = "--connections 100 --streams 10"
    fill = f"put --key list- --keys {LIST_KEYS} --sequential true --requests {LIST_KEYS} --connections 10 --streams 50"
    watch = f"watch {key} --connections 10 --streams 10 --watchers {WATCHERS} --put-streams 10"
    reader = ("range", KEY.decode())
    return [
        Row("own-read-serializable", "serializable read, own generator", lean(f"range {key} {hundred} --serializable true"), 5.0),
        Row("own-read-linearizable", "linearizable read, own generator", lean(f"range {key} {hundred}"), 5.0),
        Row("own-put", "put, own generator", lean(f"put {key} {hundred}"), 5.0),
        Row("own-put-3", "put, 3 members, own generator", lean(f"put {key} {hundred}"), 5.0, None, "leader"),
        Row("watch", f"watch events, {WATCHERS:,} watchers on 10 streams", lean(watch, scale="--puts", unit=WATCHERS, warm_up=100), 4.0),
        Row("keep-alive", "lease keep-alive, 100 streams", lean("lease-keep-alive --connections 100"), 5.0),
        Row(
            "list",
            f"list of {_count(LIST_KEYS)} keys, 16 clients",
            lean(f"list --key list- --connections 16 --expect {LIST_KEYS}", fill=tuple(fill.split()), step=16, warm_up=32),
        ),
        Row("benchmark-read", "linearizable read, etcd's benchmark as client", Benchmark(tools.benchmark, reader, 100, 1000, "Range"), 1.4),
        Row(
            "benchmark-read-serializable",
            "serializable read, etcd's benchmark as client",
            Benchmark(tools.benchmark, (*reader, "--consistency=s"), 100, 1000, "Range"),
            1.4,
        ),
        Row("p99-read", "linearizable read at 70 % of etcd's maximum", SameOffer(lean(f"range {key} {hundred}")), p99_share_max=1 / 3),
        Row("p99-put", "put at 70 % of etcd's maximum", SameOffer(lean(f"put {key} {hundred}")), p99_share_max=1 / 3),
    ]


def fill_rows(tools: Tools, keys: int) -> list[tuple[Row, int, int]]:
    """The fill of a store with `keys` keys, cut into pieces: (row, first, count). A piece without title is only work."""
    window = keys // 10
    cuts = (0, window, keys // 2, keys // 2 + window, keys - window, keys)
    titles = ("on an empty store", "", "with 0.5 N keys present", "", "with 0.9 N keys present")
    share = {"0.5 N": _count(keys // 2), "0.9 N": _count(keys - window)}
    pieces = []
    for title, first, last in zip(titles, cuts, cuts[1:]):
        for mark, text in share.items():
            title = title.replace(mark, text)
        load = ManyKeys(tools.bench, keys=keys, first=first)
        pieces.append((Row(f"fill-{first}", f"put {title}" if title else "", load), first, last - first))
    return pieces


def full_row(keys: int) -> Row:
    """The row measured on the full store."""
    message = proto.range_request(proto.EVERYTHING, proto.EVERYTHING, limit=1)
    return Row("range-limit", f"range limit=1 over {_count(keys)} keys", SameRequest(RANGE, message, 1, 1), 1000.0)


def more_puts(tools: Tools, keys: int) -> ManyKeys:
    """Puts on the full store, before a server is killed: to keys that are there."""
    return ManyKeys(tools.bench, keys=keys)


def list_load() -> SameRequest:
    """One list of the whole store."""
    return SameRequest(RANGE, proto.range_request(proto.EVERYTHING, proto.EVERYTHING), 1, 1)


def _count(keys: int) -> str:
    return f"{keys / 1e6:g} M" if keys >= 100_000 else f"{keys:,}"
