#!/usr/bin/env python3
"""Reads and watches through gateways and gRPC proxies: those of Cairn and of etcd, in turn, before one and the same Cairn.

Linearizable reads come over 100 connections with 10 streams each. Then many clients, each with a connection of its own, watch one key
through one proxy while puts come at a fixed rate, and once more while they come as fast as they are answered. Processor time is that of the
program in front. Beside the watches stands what fanout.c takes to bring bytes to as many connections. `make bench-reads` runs this; it needs an idle machine. `--quick` is a small form for a first look.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import accounting
import client
import tools
from front import Front
from load import NotCounted, check_handled, handled
from server import Server, ServerFailed

KEY, VALUE_BYTES = "benchkey", 256
CONNECTIONS, CLIENTS = 100, 1000
PUT_RATE = 100
AS_FAST_AS_ANSWERED = 1_000_000
PROXY_SHARE = 10
"""etcd's proxy gets this part of the requests that the others get."""
IDLE_SHARE_MIN = 0.9
LOAD_S_MAX = 900.0
WATCH_S_MIN, SECONDS_PER_PUT_MAX = 30.0, 0.1
"""How long a run of watchers may take: the first for them to be created, the other for each put."""
GATEWAY_CPU_US_MAX, GATEWAY_RATIO_MIN = 3.0, 1.5
PROXY_CPU_US_MAX, PROXY_RATIO_MIN = 4.0, 10.0
LAG_P99_MS_MAX, MEMORY_MB_MAX, MEMBER_WATCHES = 50.0, 300.0, 1
EVENT_BYTES, FLOOR_S = 128, 10
"""An event with its frame and headers, about; how long fanout.c runs."""


def main() -> None:
    """Runs everything, prints the tables and writes them to files."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    etcd, cairn = tools.etcd(), tools.cairn()
    idle = accounting.idle_share(2.0)
    if idle < IDLE_SHARE_MIN:
        _say(f"the machine is only {idle:.0%} idle: processor time will hold more or less, rates and lags will not")
    about = accounting.machine() | {"idle_before": idle, "command": " ".join(["conformance/vs_etcd/reads.py", *sys.argv[1:]])}
    about["when"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    with tempfile.TemporaryDirectory(prefix="reads-", dir=options.work) as directory:
        work = Path(directory)
        server = Server("cairn", cairn, work, options.port)
        ports = iter(range(options.port + 2, options.port + 6))
        fronts = [Front(name, kind, binary, work, next(ports), options.port)
                  for kind in ("gateway", "grpc-proxy") for name, binary in (("etcd", etcd), ("cairn", cairn))]
        server.start(fresh=True)
        about["server"] = server.version()
        try:
            with client.Client(server.port) as control:
                control.put(KEY.encode(), b"v" * VALUE_BYTES)
            bench = Bench(cairn, work)
            reads = _reads(bench, server, fronts, options)
            watches = [_watch(bench, server, front, rate, options) for front, rate in _watched(fronts, options)]
        finally:
            server.stop()
        floor = _floor(work, options.watchers)
    text = _tables(reads, watches, floor)
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "reads.md").write_text(text + "\n")
    results = {"about": about, "reads": reads, "watches": watches, "floor": floor}
    (options.out / "reads.json").write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nMarkdown and JSON: {options.out}/reads.{{md,json}}")


class Bench:
    """The load generator, `cairn bench`."""

    def __init__(self, binary: Path, work: Path):
        self._binary, self._file = binary, work / "bench.json"

    def run(self, port: int, connections: int, clients: int, *words: str, seconds: float = LOAD_S_MAX) -> list[dict]:
        """Runs a load to its end, or so long; its reports."""
        self._file.unlink(missing_ok=True)
        command = [self._binary, "bench", f"--endpoints=127.0.0.1:{port}", f"--conns={connections}", f"--clients={clients}"]
        done = subprocess.run([*command, *words, f"--json={self._file}"], capture_output=True, text=True, timeout=seconds)
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        reports = [json.loads(line) for line in lines]
        wrong = [report for report in reports if report["wrong"] or report["failed"]]
        if done.returncode != 0 or not reports or wrong:
            raise NotCounted(f"{' '.join(words)}: {wrong or (done.stdout + done.stderr)[-500:]}")
        return reports


def _reads(bench: Bench, server: Server, fronts: list[Front], options) -> list[dict]:
    """Pairs of runs of etcd's program and ours, in changing order. Each run counts only if the server has seen every request of it."""
    found = []
    for kind in ("gateway", "grpc-proxy"):
        pair = [front for front in fronts if front.kind == kind]
        for number in range(options.pairs):
            for front in pair if number % 2 == 0 else pair[::-1]:
                total = options.requests // (PROXY_SHARE if (front.name, kind) == ("etcd", "grpc-proxy") else 1)
                _say(f"reads through {front.name}'s {kind}, pair {number + 1} of {options.pairs}")
                with front:
                    _read(bench, front, max(1, total // 10))
                    counts, before, member = handled([server.port]), front.usage(), server.usage()
                    [report] = _read(bench, front, total)
                    used, of_member = front.usage().since(before), server.usage().since(member)
                    check_handled([server.port], counts, "Range", total)
                found.append({
                    "front": front.name, "kind": kind, "pair": number, "requests": total, "rate": report["rate"],
                    "cpu_us": used.cpu_s * 1e6 / total, "member_cpu_us": of_member.cpu_s * 1e6 / total,
                    "idle_share": used.idle_share,
                })
    return found


def _read(bench: Bench, front: Front, total: int) -> list[dict]:
    return bench.run(front.port, CONNECTIONS, CLIENTS, "range", KEY, f"--total={total}")


def _watched(fronts: list[Front], options) -> list[tuple[Front, int]]:
    """The proxies that are watched through, and the rates of puts."""
    proxies = [front for front in fronts if front.kind == "grpc-proxy" and options.only in (None, front.name)]
    return [(front, rate) for front in proxies for rate in (PUT_RATE, AS_FAST_AS_ANSWERED)]


def _watch(bench: Bench, server: Server, front: Front, rate: int, options) -> dict:
    """Clients that watch one key, and puts of it; every event must come to every client, or the run does not count."""
    watchers, puts = options.watchers, options.puts if rate == PUT_RATE else max(1, options.puts // 10)
    pace = f"at {rate}/s" if rate == PUT_RATE else "as fast as they are answered"
    _say(f"{watchers:,} clients watch through {front.name}'s proxy, {puts:,} puts {pace}")
    words = ["watch-latency", f"--streams={watchers}", "--watchers-per-stream=1", f"--put-rate={rate}", f"--put-total={puts}"]
    result = {"front": front.name, "rate_of_puts": rate, "watchers": watchers, "puts": puts}
    with front, Looks(front, server) as looks:
        before = front.usage()
        try:
            # A watcher to which an event does not come waits for ever.
            written, heard = bench.run(front.port, watchers, watchers, *words, seconds=WATCH_S_MIN + puts * SECONDS_PER_PUT_MAX)
        except subprocess.TimeoutExpired as late:
            return result | {"failed": f"not every event has come within {late.timeout:.0f} s"}
        except NotCounted as why:
            return result | {"failed": str(why)}
        used = front.usage().since(before)
    return result | {
        "delivered": heard["succeeded"],
        "events_per_s": heard["rate"],
        "puts_per_s": written["rate"],
        "lag_ms": {name: heard["latency_us"][name] / 1000 for name in ("p50", "p99", "max")},
        "member_watches": looks.member_watches,
        "memory_mb": looks.memory_mb,
        "cpu_us_per_event": used.cpu_s * 1e6 / heard["succeeded"],
        "idle_share": used.idle_share,
    }


class Looks:
    """Looks every now and then how many watches the member has, and how much memory the proxy. Watches begin one by one and are joined
    then: what counts is their number once the puts are under way, the last that was seen."""

    def __init__(self, front: Front, server: Server):
        self._front, self._server = front, server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.member_watches, self.memory_mb = 0, 0.0

    def __enter__(self) -> "Looks":
        self._thread.start()
        return self

    def __exit__(self, *_unused) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.25):
            try:
                watches = client.gauge(self._server.port, "etcd_debugging_mvcc_watcher_total")
                self.memory_mb = max(self.memory_mb, self._front.memory_mb())
            except (OSError, ServerFailed):
                return
            # After the last event the clients are gone, and so is the watch.
            self.member_watches = watches or self.member_watches


def _floor(work: Path, connections: int) -> dict:
    """What a program without any protocol takes for the same."""
    _say(f"fanout.c: {EVENT_BYTES} bytes to {connections:,} connections")
    program = work / "fanout"
    subprocess.run(["cc", "-O2", "-o", program, Path(__file__).with_name("fanout.c")], check=True)
    words = [program, str(connections), str(EVENT_BYTES), str(PUT_RATE), str(FLOOR_S)]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True, timeout=LOAD_S_MAX).stdout)


def _tables(reads: list[dict], watches: list[dict], floor: dict) -> str:
    lines = ["| linearizable read through | etcd's: rate/s, CPU us | Cairn's: rate/s, CPU us | ratio of rates | goal |", "|---|---|---|---|---|"]
    for kind, cpu_max, ratio_min in (
        ("gateway", GATEWAY_CPU_US_MAX, GATEWAY_RATIO_MIN), ("grpc-proxy", PROXY_CPU_US_MAX, PROXY_RATIO_MIN)
    ):
        of = {name: [run for run in reads if run["kind"] == kind and run["front"] == name] for name in ("etcd", "cairn")}
        middle = lambda name, figure: statistics.median(run[figure] for run in of[name])
        ratios = [ours["rate"] / theirs["rate"] for ours, theirs in zip(of["cairn"], of["etcd"])]
        ratio, cpu_us = statistics.median(ratios), middle("cairn", "cpu_us")
        cells = [f"{middle(name, 'rate'):,.0f}, {middle(name, 'cpu_us'):.2f}" for name in ("etcd", "cairn")]
        verdict = "reached" if cpu_us <= cpu_max and ratio >= ratio_min else "missed"
        lines.append(f"| {kind} | {' | '.join(cells)} | {ratio:.2f}x | <= {cpu_max:g} us and >= {ratio_min:g}x: {verdict} |")
    lines += [
        "",
        "| proxy of | watching | puts/s | events/s | delivered | watches at the member | lag p50, p99, max (ms) | memory (MB) | CPU us per event |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run in watches:
        head = f"| {run['front']} | {run['watchers']:,} | "
        if "failed" in run:
            lines.append(f"{head}failed: {run['failed'][:200]} |")
            continue
        lag = ", ".join(f"{run['lag_ms'][name]:.1f}" for name in ("p50", "p99", "max"))
        share = run["delivered"] / (run["watchers"] * run["puts"])
        cells = [f"{run['puts_per_s']:,.0f}", f"{run['events_per_s']:,.0f}", f"{share:.1%}", str(run["member_watches"]), lag]
        lines.append(head + " | ".join([*cells, f"{run['memory_mb']:.0f}", f"{run['cpu_us_per_event']:.2f}"]) + " |")
    goal = f"{MEMBER_WATCHES} watch at the member, every event delivered, lag p99 <= {LAG_P99_MS_MAX:g} ms, memory <= {MEMORY_MB_MAX:g} MB"
    lines += [
        "",
        f"fanout.c, {floor['connections']:,} connections: {floor['messages_per_s']:,.0f} messages/s, each round read after {floor['lag_p50_ms']:.1f} ms "
        f"(p50) and {floor['lag_p99_ms']:.1f} ms (p99), {floor['send_us']:.2f} us to send and {floor['receive_us']:.2f} us to receive one.",
    ]
    lines += ["", f"Goal for Cairn's proxy at {PUT_RATE} puts/s: {goal}."]
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small form for a first look")
    parser.add_argument("--pairs", type=int, help="interleaved pairs of reads (5)")
    parser.add_argument("--requests", type=int, help="reads of a run (1,000,000); a tenth through etcd's proxy")
    parser.add_argument("--watchers", type=int, help="clients that watch (10,000)")
    parser.add_argument("--puts", type=int, help="puts while they watch (3,000)")
    parser.add_argument("--only", choices=("cairn", "etcd"), help="watch through the proxy of one of the two")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORTS", "18900").split("-")[0]), help="first of 6 ports")
    parser.add_argument("--work", type=Path, help="directory for the data (target directory)")
    parser.add_argument("--out", type=Path, default=tools.target_dir() / "bench", help="directory of the reports")
    options = parser.parse_args()
    usual = {"pairs": 5, "requests": 1_000_000, "watchers": 10_000, "puts": 3_000}
    if options.quick:
        usual = {"pairs": 1, "requests": 100_000, "watchers": 500, "puts": 300}
    for name, value in usual.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.work is None:
        options.work = tools.target_dir() / "bench"
        options.work.mkdir(parents=True, exist_ok=True)
    return options


def _say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except (ServerFailed, NotCounted, OSError) as failure:
        sys.exit(str(failure))
