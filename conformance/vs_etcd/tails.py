#!/usr/bin/env python3
"""The slowest requests of Cairn and of etcd while something large happens: an open loop of puts beside it, the two servers in turn.

Each server is filled at full speed. Then puts come at a fixed rate, whatever the answers do, while nothing else happens, a compaction drops
the history, a snapshot is saved, the store is defragmented, lists are read, and the history is hashed. Latency counts from the time at which a put was
due. `make bench-tails` runs this; it needs an idle machine. `--quick` is a small form that shows only whether it works.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import accounting
import client
import proto
import tools
from server import Server

VALUE_BYTES = 256
CONNECTIONS, CLIENTS = 100, 1000
LEAD_S = 1.0
"""How long the puts run before something happens, and after it."""
LIST_KEYS = 10_000
IDLE_SHARE_MIN = 0.9
CALL_S_MAX = 1800.0
FIGURES = ("p50", "p99", "p999", "max")


class LoadFailed(Exception):
    """A load that is no measurement, and why."""


@dataclass(frozen=True)
class Phase:
    """Something that happens once per server under the puts. `act` gets the server; without it they run for `--seconds` alone."""

    title: str
    act: Callable[[Server], None] | None


def main() -> None:
    """Runs both servers and prints the table."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    idle = accounting.idle_share(2.0)
    if idle < IDLE_SHARE_MIN:
        _say(f"the machine is only {idle:.0%} idle: these figures are none")
    etcd, cairn = tools.etcd(), tools.cairn()
    with tempfile.TemporaryDirectory(prefix="tails-", dir=options.work) as work:
        servers = [
            Server("cairn", cairn, Path(work), options.port),
            Server("etcd", etcd, Path(work), options.port + 2),
        ]
        phases = _phases(cairn, Path(work), options)
        results: dict[str, dict[str, dict]] = {}
        try:
            for round_number in range(options.rounds):
                for server in servers if round_number % 2 == 0 else servers[::-1]:
                    if options.only not in (None, server.name):
                        continue
                    _measure(server, cairn, phases, options, results.setdefault(server.name, {}))
        finally:
            for server in servers:
                server.stop()
    about = accounting.machine() | {"idle_before": idle, "puts": options.puts, "keys": options.keys, "rate": options.rate}
    print(_table(results, phases))
    if options.out:
        options.out.write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")


def _measure(server: Server, bench: Path, phases: list[Phase], options, found: dict[str, dict]) -> None:
    _say(f"{server.name}: {options.puts:,} puts at full speed")
    try:
        server.start(fresh=True)
        full = Load(bench, server, ["--total", str(options.puts), "--key-space-size", str(options.keys)])
        _keep(found, "full speed", full.result())
        for phase in phases:
            _say(f"{server.name}: {phase.title}")
            before = _retired_bytes(server)
            load = Load(bench, server, ["--rate", str(options.rate), "--duration", f"{options.longest:.0f}s"])
            time.sleep(LEAD_S)
            began = time.monotonic()
            if phase.act is None:
                time.sleep(options.seconds)
            else:
                phase.act(server)
            took = time.monotonic() - began
            time.sleep(LEAD_S)
            load.end()
            result = load.result() | {"took_s": round(took, 2), "retired_bytes_before": before}
            _keep(found, phase.title, result)
    finally:
        server.stop()


def _keep(found: dict[str, dict], title: str, result: dict) -> None:
    """The worst of all rounds, figure by figure: tails are what is looked for."""
    known = found.get(title)
    if known is None:
        found[title] = result
        return
    worst = {name: max(known["latency_us"][name], result["latency_us"][name]) for name in FIGURES}
    found[title] = result | {"latency_us": worst, "rate": min(known["rate"], result["rate"])}


class Load:
    """A running load of puts by `cairn bench`."""

    def __init__(self, bench: Path, server: Server, arguments: list[str]):
        self._file = tempfile.NamedTemporaryFile(suffix=".json")
        command = [bench, "bench", f"--endpoints=127.0.0.1:{server.port}", f"--conns={CONNECTIONS}", f"--clients={CLIENTS}"]
        command += ["put", "--sequential-keys", f"--val-size={VALUE_BYTES}", f"--json={self._file.name}", *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._said = ""
        # What it says is read meanwhile, so that it never waits for that.
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        self._said = self._process.stdout.read()

    def end(self) -> None:
        """Ends the load, as Ctrl-C does: it reports what there is."""
        self._process.send_signal(signal.SIGINT)

    def result(self) -> dict:
        """The line that the load has added to its file."""
        code = self._process.wait(CALL_S_MAX)
        self._reader.join()
        lines = Path(self._file.name).read_text().splitlines()
        if code not in (0, 130) or not lines:
            raise LoadFailed(f"the load ended with {code}: {self._said[-2000:]}")
        line = json.loads(lines[-1])
        if line["wrong"] or line["failed"]:
            raise LoadFailed(f"wrong answers and errors: {line['wrong']} {line['errors']}")
        return {name: line[name] for name in ("rate", "succeeded", "unsent", "latency_us")}


def _phases(cairn: Path, work: Path, options) -> list[Phase]:
    def compact(server: Server) -> None:
        with client.Client(server.port, CALL_S_MAX) as one:
            # Physical: the answer comes when the history is dropped.
            message = proto.number_field(1, one.revision()) + proto.number_field(2, 1)
            one.call("/etcdserverpb.KV/Compact", message)

    def save(server: Server) -> None:
        target = work / "saved.db"
        command = [cairn, "ctl", f"--endpoints=127.0.0.1:{server.port}", "snapshot", "save", target]
        subprocess.run(command, check=True, capture_output=True)
        os.unlink(target)

    def defragment(server: Server) -> None:
        with client.Client(server.port, CALL_S_MAX) as one:
            one.call("/etcdserverpb.Maintenance/Defragment", b"")

    def read_lists(server: Server) -> None:
        until = time.monotonic() + options.seconds
        with client.Client(server.port, CALL_S_MAX) as one:
            while time.monotonic() < until:
                one.range(b"\0", b"\0", limit=LIST_KEYS)

    def hash_history(server: Server) -> None:
        with client.Client(server.port, CALL_S_MAX) as one:
            one.call("/etcdserverpb.Maintenance/HashKV", b"")

    return [
        Phase("right after it", None),
        Phase("hash of the history", hash_history),
        Phase("snapshot save", save),
        Phase("compaction", compact),
        Phase("right after that", None),
        Phase("defragment", defragment),
        Phase(f"lists of {LIST_KEYS:,} keys", read_lists),
    ]


def _retired_bytes(server: Server) -> int | None:
    """What waits to be given back to the disk, if the server says so."""
    return client.gauge(server.port, "cairn_disk_retired_bytes")


def _table(results: dict[str, dict[str, dict]], phases: list[Phase]) -> str:
    names = list(results)
    head = "| puts beside | " + " | ".join(f"{name}: p50, p99, p99.9, slowest (ms)" for name in names) + " |"
    lines = [head, "|---|" + "---|" * len(names)]
    for title in ["full speed", *(phase.title for phase in phases)]:
        cells = []
        for name in names:
            result = results[name].get(title)
            if result is None:
                cells.append("")
                continue
            figures = ", ".join(f"{result['latency_us'][figure] / 1000:.1f}" for figure in FIGURES)
            beside = f" in {result['took_s']:.1f} s" if "took_s" in result else ""
            cells.append(f"{figures} ({result['rate']:,.0f}/s{beside})")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--puts", type=int, default=10_000_000, help="puts at full speed")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys that they go to in turn")
    parser.add_argument("--rate", type=int, default=5_000, help="puts per second of the open loop")
    parser.add_argument("--seconds", type=float, default=20, help="how long a phase without an end lasts")
    parser.add_argument("--longest", type=float, default=1800, help="the most that a phase may take")
    parser.add_argument("--rounds", type=int, default=1, help="how often each server is measured; the worst counts")
    parser.add_argument("--only", choices=("cairn", "etcd"), default=None, help="one of the two servers")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORTS", "18800").split("-")[0]))
    parser.add_argument("--work", type=Path, default=None, help="where the data directories go")
    parser.add_argument("--out", type=Path, default=None, help="a file for the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a small form; its figures mean nothing")
    options = parser.parse_args()
    if options.quick:
        options.puts, options.keys, options.rate, options.seconds = 100_000, 20_000, 500, 2
    return options


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
