#!/usr/bin/env python3
"""Cairn beside etcd: the same loads against both servers, in turn, on one machine, in one go.

Every row is measured in pairs, the two servers directly after one another and in changing order; the ratio of a row is
the median of its pairs' ratios. `make bench-vs-etcd` runs this; `--quick` is a small form for a first look.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import accounting
import client
import report
import rows
import tools
from load import NotCounted, Sample, measure
from results import Results
from cluster import Cluster
from rows import Row
from server import Server, ServerFailed

WARM_UP_REQUESTS = 20_000
SETTLE_S = 3.0
SETTLED_FILLS = 2
"""Fills after which memory is read again when nothing was done for long: each takes minutes."""
KILL_PUTS = 20_000
"""Puts before a server is killed: what it has in its log, and perhaps not in its store, is there to be taken up."""
IDLE_SHARE_MIN = 0.9


def main() -> None:
    """Runs everything and prints the report."""
    options = _options()
    programs = tools.find()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = Results()
    idle = accounting.idle_share(2.0)
    if idle < IDLE_SHARE_MIN:
        _say(f"the machine is only {idle:.0%} idle before the first run: CPU per request will hold, rates and times will not")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.work) as work:
        certificate = tools.certificate(Path(work))
        etcd = Server("etcd", programs.etcd, Path(work), options.port, certificate=certificate)
        cairn = Server("cairn", programs.cairn, Path(work), options.port + 2, certificate=certificate)
        etcds = Cluster("etcd", programs.etcd, Path(work), options.port + 4)
        cairns = Cluster("cairn", programs.cairn, Path(work), options.port + 10)
        results.about = accounting.machine() | {
            "etcd": etcd.version(),
            "cairn": cairn.version(),
            "idle_before": idle,
            "pairs": options.pairs,
            "seconds": options.seconds,
            "keys": options.keys,
            "settle": options.settle,
            "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "command": " ".join(["conformance/vs_etcd/vs_etcd.py", *sys.argv[1:]]),
        }
        run = Run(options, programs, (etcd, cairn), (etcds, cairns), results, Path(work))
        try:
            for row in rows.small_rows(programs):
                if options.only is None or row.name in options.only:
                    run.small(row)
            for row in rows.lean_rows(programs):
                if options.only is None or row.name in options.only:
                    run.offer(row) if row.p99_share_max else run.lean(row)
            if options.only is None or "full" in options.only:
                run.full_store()
        except KeyboardInterrupt:
            print("\ninterrupted: what is there so far\n", file=sys.stderr)
        finally:
            for server in (etcd, cairn, etcds, cairns):
                server.stop()
    report.terminal(results)
    markdown = report.markdown(results)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "vs-etcd.json").write_text(json.dumps(results.as_dict(), indent=1) + "\n")
    (options.out / "vs-etcd.md").write_text(markdown)
    print(f"\nMarkdown and JSON: {options.out}/vs-etcd.{{md,json}}")
    if results.rejected:
        sys.exit(f"{len(results.rejected)} runs did not count")


class Run:
    """The order of things: which server is measured when, and on what store."""

    def __init__(
        self,
        options,
        programs: tools.Tools,
        servers: tuple[Server, Server],
        clusters: tuple[Cluster, Cluster],
        results: Results,
        work: Path,
    ):
        self._options = options
        self._programs = programs
        self._servers = servers
        self._clusters = clusters
        self._results = results
        self._work = work

    def small(self, row: Row) -> None:
        """Pairs of one row, each on a fresh store."""
        for pair in range(self._options.pairs):
            if row.name in report.BASES:
                self._base(pair, report.BASES[row.name])
            for server in _in_turn(self._clusters if row.target else self._servers, pair):
                if row.target:
                    server.target = row.target
                server.is_split = row.is_split
                _say(f"{row.title}: pair {pair + 1} of {self._options.pairs}, {server.name}")
                try:
                    server.start(fresh=True)
                    _seed(server)
                    warm = measure(server, row.load, WARM_UP_REQUESTS if row.load.connections > 1 else 500)
                    total = max(1000, round(warm.rate * self._options.seconds, -3))
                    sample = measure(server, row.load, int(total))
                    self._results.add(row, pair, server.name, sample)
                except (NotCounted, client.CallFailed) as why:
                    self._results.reject(row, pair, server.name, str(why))
                finally:
                    server.stop()
                    server.is_split = False

    def lean(self, row: Row) -> None:
        """Pairs of one row, each on a fresh store; the load knows how it is run and checked."""
        for pair in range(self._options.pairs):
            for server in _in_turn(self._clusters if row.target else self._servers, pair):
                if row.target:
                    server.target = row.target
                _say(f"{row.title}: pair {pair + 1} of {self._options.pairs}, {server.name}")
                try:
                    server.start(fresh=True)
                    _seed(server)
                    row.load.prepare(server)
                    warm = row.load.run(server, row.load.warm_up)
                    sample = row.load.run(server, row.load.amount(warm, self._options.seconds))
                    self._results.add(row, pair, server.name, sample)
                except (NotCounted, client.CallFailed) as why:
                    self._results.reject(row, pair, server.name, str(why))
                finally:
                    server.stop()

    def offer(self, row: Row) -> None:
        """Pairs of one row: what etcd does at most, then the same share of it for both."""
        etcd = self._servers[0]
        for pair in range(self._options.pairs):
            _say(f"{row.title}: pair {pair + 1} of {self._options.pairs}, etcd's maximum")
            try:
                etcd.start(fresh=True)
                _seed(etcd)
                rate = row.load.most(etcd, self._options.seconds) * row.load.share
            except (NotCounted, client.CallFailed) as why:
                self._results.reject(row, pair, etcd.name, f"maximum: {why}")
                continue
            finally:
                etcd.stop()
            for server in _in_turn(self._servers, pair):
                _say(f"{row.title}: pair {pair + 1} of {self._options.pairs}, {server.name} at {rate:,.0f}/s")
                try:
                    server.start(fresh=True)
                    _seed(server)
                    self._results.add(row, pair, server.name, row.load.offer(server, rate, self._options.seconds))
                except (NotCounted, client.CallFailed) as why:
                    self._results.reject(row, pair, server.name, str(why))
                finally:
                    server.stop()

    def full_store(self) -> None:
        """Fills both servers, then compares memory, restart and a range over all keys."""
        options = self._options
        for pair in range(options.fills):
            for server in _in_turn(self._servers, pair):
                self._fill(server, pair)
                server.stop()
        row = rows.full_row(options.keys)
        for pair in range(options.pairs):
            for server in _in_turn(self._servers, pair):
                _say(f"{options.keys:,} keys: restart and range, pair {pair + 1} of {options.pairs}, {server.name}")
                try:
                    self._results.add_value("restart_s", pair, server.name, server.start())
                    warm = measure(server, row.load, 10)
                    total = max(10, int(warm.rate * options.seconds))
                    self._results.add(row, pair, server.name, measure(server, row.load, total))
                    measure(server, rows.more_puts(self._programs, options.keys), KILL_PUTS)
                    server.kill()
                    self._results.add_value("killed_restart_s", pair, server.name, server.start())
                except (NotCounted, client.CallFailed) as why:
                    self._results.reject(row, pair, server.name, str(why))
                finally:
                    server.stop()

    def _fill(self, server: Server, pair: int) -> None:
        server.start(fresh=True)
        for row, first, count in rows.fill_rows(self._programs, self._options.keys):
            _say(f"fill {pair + 1} of {self._options.fills}, {server.name}: keys {first:,} to {first + count:,}")
            try:
                sample = measure(server, row.load, count)
                if row.title:
                    self._results.add(row, pair, server.name, sample)
            except (NotCounted, client.CallFailed) as why:
                self._results.reject(row, pair, server.name, str(why))
        _say(f"fill {pair + 1} of {self._options.fills}, {server.name}: memory")
        time.sleep(SETTLE_S)
        full = server.memory()
        self._results.add_value("memory_mb", pair, server.name, full.own_mb)
        self._results.add_value("mapped_mb", pair, server.name, full.mapped_mb)
        try:
            measure(server, rows.list_load(), 1)
            self._results.add_value("memory_after_list_mb", pair, server.name, server.memory().own_mb)
            if pair < SETTLED_FILLS:
                _say(f"fill {pair + 1} of {self._options.fills}, {server.name}: {self._options.settle:g} s without work")
                time.sleep(self._options.settle)
                self._results.add_value("memory_settled_mb", pair, server.name, server.memory().own_mb)
        except (NotCounted, client.CallFailed) as why:
            self._results.reject(rows.full_row(self._options.keys), pair, server.name, f"list of all: {why}")

    def _base(self, pair: int, base: report.Base) -> None:
        command = [self._programs.bench, "base", "--dir", self._work, "--seconds", self._options.seconds / 4]
        command += ["--writers", base.writers]
        said = json.loads(subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, check=True).stdout)
        self._results.add_value(base.round_trip, pair, "machine", said["round_trip_us"]["median"])
        self._results.add_value(base.fdatasync, pair, "machine", said["fdatasync_us"]["median"])


def _in_turn(both: tuple, pair: int) -> tuple:
    first, second = both
    return (first, second) if pair % 2 == 0 else (second, first)


def _seed(server: Server) -> None:
    """The key that the reads ask for."""
    with client.Client(server.port) as control:
        control.put(rows.KEY, rows.VALUE)


def _say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one second, two pairs, 100,000 keys: a first look only")
    parser.add_argument("--pairs", type=int, help="interleaved pairs for each row (5)")
    parser.add_argument("--fills", type=int, help="how often each server is filled (5)")
    parser.add_argument("--seconds", type=float, help="length of a run (3)")
    parser.add_argument("--keys", type=int, help="keys in the full store (1,000,000)")
    parser.add_argument("--settle", type=float, help="seconds after a list until memory is read again (150: Go collects every 120)")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="only these rows; `full` is all about the full store")
    parser.add_argument("--port", type=int, default=24790, help="first of 20 ports")
    parser.add_argument("--work", type=Path, help="directory for the data, on the disk to measure (target directory)")
    parser.add_argument("--out", type=Path, default=tools.target_dir() / "bench", help="directory of the reports")
    options = parser.parse_args()
    usual = {"pairs": 2, "fills": 1, "seconds": 1.0, "keys": 100_000, "settle": 10.0} if options.quick else {}
    for name, value in ({"pairs": 5, "fills": 5, "seconds": 3.0, "keys": 1_000_000, "settle": 150.0} | usual).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.work is None:
        options.work = tools.target_dir() / "bench"
        options.work.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    try:
        main()
    except (ServerFailed, OSError) as failure:
        sys.exit(str(failure))
