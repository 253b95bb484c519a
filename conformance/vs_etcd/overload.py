#!/usr/bin/env python3
"""What a member does that is offered more than it can take: one member, and three, each confined to a part of one processor.

A closed loop finds out how many puts a second are acknowledged at most. Then an open loop offers four times as many for a minute. Beside it, a few
other connections send puts at times fixed beforehand, and note of each when it ended and how: whether a put that is refused hears so soon. The
generator's own refusals are counted by their text, not timed; those of the others are whatever ended without an answer. Memory (RssAnon + RssShmem) is looked at five times a second, the term before and after.

`make bench-overload` runs this; it needs an idle machine and cgroup v1, and takes about six minutes for Cairn and as long for etcd. `--quick` is a small form
that shows only whether it works.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import accounting
import client
import proto
import tools
from cluster import Cluster
from observers import confine
from probe import Ended, Probe
from server import Server, ServerFailed
from tails import Load, LoadFailed, look_at_machine

CLOSED_CLIENTS = (250, 1_000, 4_000)
OPEN_CONNECTIONS, OPEN_CLIENTS = 200, 200_000
"""More in flight than may wait for being applied, so that the load is refused and not only kept waiting."""
KEYS = 100_000
PROBES, PROBE_RATE = 4, 50
SETTLE_S = 3.0
GOODPUT_SHARE_MIN, REFUSAL_MS_MAX = 0.9, 100.0
STATUS = "/etcdserverpb.Maintenance/Status"


def main() -> None:
    """Runs one member and three of each server, and prints the table."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    idle = look_at_machine()
    cairn = tools.cairn()
    binaries = {"cairn": cairn, "etcd": tools.etcd() if options.only != "cairn" else None}
    results: dict[str, dict] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="overload-", dir=options.work) as work:
            for size in options.members:
                for name, binary in binaries.items():
                    if options.only not in (None, name):
                        continue
                    cluster = Cluster(f"{name}-of-{size}", binary, Path(work), options.port, size)
                    title = f"{name}, {size} member{'s' if size > 1 else ''}"
                    _say(title)
                    try:
                        results[title] = _measure(cluster, cairn, options)
                    finally:
                        cluster.stop()
    finally:
        # What there is, also when a later part ends the run.
        if results:
            print(_table(results, options), flush=True)
    if options.out:
        about = accounting.machine() | {"idle_before": idle, "share": options.share, "times": options.times, "seconds": options.seconds}
        options.out.write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")


def _measure(cluster: Cluster, bench: Path, options) -> dict:
    cluster.start(fresh=True)
    leader = cluster.leader()
    with confine(cluster.members, options.share):
        most = 0.0
        for clients in CLOSED_CLIENTS:
            arguments = ["--duration", f"{options.closed:.0f}s", "--key-space-size", str(KEYS)]
            closed = Load(bench, leader, arguments, min(clients, 100), clients).result()
            _say(f"  {clients:,} clients: {closed['rate']:,.0f}/s, {closed['failed']:,} refused")
            most = max(most, closed["rate"])
        time.sleep(SETTLE_S)
        term = _term(leader)
        with Watch(cluster.members) as memory:
            offered = most * options.times
            _say(f"  {offered:,.0f}/s are offered")
            arguments = ["--rate", f"{offered:.0f}", "--duration", f"{options.seconds:.0f}s", "--key-space-size", str(KEYS)]
            load = Load(bench, leader, arguments, OPEN_CONNECTIONS, OPEN_CLIENTS)
            # Not while the queue fills for the first time, and not while it empties.
            lead = min(5.0, options.seconds / 4)
            time.sleep(lead)
            probes = _probe(leader, options.seconds - 2 * lead)
            opened = load.result()
            time.sleep(SETTLE_S)
        after = _term(leader)
    ended = [one for probe in probes for one in probe.ended]
    refused = [one for one in ended if not one.succeeded]
    return {
        "most": most, "offered": offered, "goodput": opened["succeeded"] / options.seconds, "sent": opened["requests"], "unsent": opened["unsent"],
        "succeeded": opened["succeeded"], "failed": opened["failed"], "errors": opened["errors"], "latency_us": opened["latency_us"],
        "probe_refused_ms": _spread(refused), "probe_succeeded_ms": _spread([one for one in ended if one.succeeded]),
        "probe_unanswered": sum(probe.unanswered for probe in probes),
        "probe_broken": [str(probe.failed) for probe in probes if probe.failed], "term": [term, after], "memory_mb": memory.found,
    }


def _probe(server: Server, seconds: float) -> list[Probe]:
    probes = [Probe(server.port, b"probe-%d" % number, PROBE_RATE) for number in range(PROBES)]
    threads = [threading.Thread(target=probe.run, args=(seconds,)) for probe in probes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return probes


def _spread(ended: list[Ended]) -> dict[str, float]:
    """How many, and milliseconds: half, 99 of 100 and all of them took no longer."""
    took = sorted(one.seconds * 1000 for one in ended)
    at = lambda share: took[round(share * (len(took) - 1))]
    return {"count": len(took)} | ({"p50": at(0.5), "p99": at(0.99), "max": at(1.0)} if took else {})


class Watch:
    """Memory of processes, from the beginning of a block to its end, in MB."""

    def __init__(self, servers: list[Server]):
        self._servers, self._over = servers, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.found: dict[str, dict[str, float]] = {}

    def __enter__(self) -> "Watch":
        for server in self._servers:
            now = server.memory().own_mb
            self.found[server.name] = {"before": now, "most": now, "after": now}
        self._thread.start()
        return self

    def __exit__(self, *_unused) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            for server in self._servers:
                now, found = server.memory().own_mb, self.found[server.name]
                found["after"], found["most"] = now, max(found["most"], now)


def _term(server: Server) -> int:
    with client.Client(server.port) as one:
        return dict(proto.fields(one.call(STATUS, b""))).get(6, 0)


def _table(results: dict[str, dict], options) -> str:
    rows = [
        ("puts a second at most, closed loop", lambda r: f"{r['most']:,.0f}"),
        (f"offered for {options.seconds:.0f} s", lambda r: f"{r['offered']:,.0f}/s, of which {r['unsent'] / max(1, r['sent'] + r['unsent']):.0%} could not be sent"),
        (f"acknowledged meanwhile (goal {GOODPUT_SHARE_MIN:.0%} of the most)", lambda r: f"{r['goodput']:,.0f}/s, {r['goodput'] / r['most']:.0%}"),
        ("acknowledged: p50, p99, slowest", lambda r: ", ".join(f"{r['latency_us'][name] / 1000:,.0f}" for name in ("p50", "p99", "max")) + " ms"),
        ("refused", lambda r: f"{r['failed']:,}: " + ("; ".join(r["errors"].values()) or "none")),
        (f"other clients' puts, refused: p50, p99, slowest (goal {REFUSAL_MS_MAX:.0f} ms)", lambda r: _milliseconds(r["probe_refused_ms"])),
        ("the same, acknowledged", lambda r: _milliseconds(r["probe_succeeded_ms"])),
        ("the same, without any end; connections that broke", lambda r: f"{r['probe_unanswered']}; {len(r['probe_broken'])}"),
        ("term before and after", lambda r: "{}, {}".format(*r["term"])),
        ("memory of a member before, most, after", lambda r: "; ".join(f"{m['before']:,.0f}, {m['most']:,.0f}, {m['after']:,.0f} MB" for m in r["memory_mb"].values())),
    ]
    lines = ["| | " + " | ".join(results) + " |", "|---|" + "--:|" * len(results)]
    lines += [f"| {what} | " + " | ".join(text(result) for result in results.values()) + " |" for what, text in rows]
    return "\n".join(lines)


def _milliseconds(spread: dict[str, float]) -> str:
    if not spread["count"]:
        return "none"
    return ", ".join(f"{spread[name]:,.1f}" for name in ("p50", "p99", "max")) + f" ms of {spread['count']:,}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.25, help="of one processor, for each member")
    parser.add_argument("--times", type=float, default=4.0, help="how many times the most is offered")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--closed", type=float, default=10.0, help="seconds of each closed loop")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 3], help="sizes of clusters")
    parser.add_argument("--only", choices=("cairn", "etcd"), default=None, help="one of the two servers")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORTS", "18800").split("-")[0]), help="first of six ports")
    parser.add_argument("--work", type=Path, default=None, help="where the data directories go")
    parser.add_argument("--out", type=Path, default=None, help="a file for the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a small form; its figures mean nothing")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.closed = 6.0, 2.0
    return options


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except (LoadFailed, ServerFailed, OSError) as failure:
        sys.exit(str(failure))
