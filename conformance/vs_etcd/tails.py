#!/usr/bin/env python3
"""The slowest requests of Cairn and of etcd while something large happens: an open loop of puts beside it, the two servers in turn.

Each server takes the puts of the open loop on an empty store, and is then filled at full speed. Then puts come at a fixed rate, whatever the answers do, while nothing else happens, a compaction drops
the history, its files shrink, a snapshot is saved, the store is defragmented, lists are read, the history is hashed, and an empty learner catches up. Latency counts from
the time at which a put was due. `make bench-tails` runs this; it needs an idle machine. `--quick` is a small form that shows only whether it works.
`--disk-mb-s` and `--disk-iops` put Cairn on a disk of that speed (slow_disk.c); etcd, which is not linked to the C library, cannot be.
"""

import argparse
import json
import os
import shutil
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
from cluster import Cluster
from server import Server

VALUE_BYTES = 256
CONNECTIONS, CLIENTS = 100, 1000
LEAD_S = 1.0
"""How long the puts run before something happens, and after it."""
LIST_KEYS = 10_000
IDLE_SHARE_MIN = 0.9
CALL_S_MAX = 1800.0
LIVE_GAUGE = "etcd_mvcc_db_total_size_in_use_in_bytes"
SHRUNK_RATIO_MAX, SHRINK_S_GOAL, SHRINK_STEP_S = 1.5, 120.0, 2.0
QUIET = "nothing, an empty store"
FIGURES = ("p50", "p99", "p999", "max")


class LoadFailed(Exception):
    """A load that is no measurement, and why."""


@dataclass(frozen=True)
class Phase:
    """Something that happens once per server under the puts. `act` gets the server, and may return figures; without it they run for `--seconds` alone."""

    title: str
    act: Callable[[Server], dict | None] | None
    tidy: Callable[[Server], None] | None = None
    """Done once the load has ended: to remove a large file is a load of its own where the disk is told of it at once."""


def main() -> None:
    """Runs both servers and prints the table."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    idle = look_at_machine()
    etcd, cairn = tools.etcd(), tools.cairn()
    if bool(options.disk_mb_s) != bool(options.disk_iops):
        sys.exit("--disk-mb-s and --disk-iops belong together")
    if options.disk_mb_s and options.only != "cairn":
        sys.exit("a disk of a given speed is for Cairn alone: --only cairn")
    with tempfile.TemporaryDirectory(prefix="tails-", dir=options.work) as work:
        if options.disk_mb_s:
            _say(f"the disk takes {options.disk_mb_s} MB/s and {options.disk_iops} operations/s")
        servers = [
            Server("cairn", cairn, Path(work), options.port, environment=_slow_disk(Path(work), options)),
            Server("etcd", etcd, Path(work), options.port + 2),
        ]
        phases = [phase for phase in _phases(cairn, Path(work), options) if not options.phases or phase.title in options.phases]
        if len(phases) < len(set(options.phases)):
            sys.exit(f"of {options.phases}, only {[phase.title for phase in phases]} are phases")
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
            # What there is, also when a later phase ends the run.
            if results:
                print(_table(results, phases), flush=True)
    about = accounting.machine() | {"idle_before": idle, "puts": options.puts, "keys": options.keys, "rate": options.rate}
    if options.out:
        options.out.write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")


def look_at_machine() -> float:
    """The idle share of the machine; says so if that is too little to measure anything."""
    idle = accounting.idle_share(2.0)
    if idle < IDLE_SHARE_MIN:
        _say(f"the machine is only {idle:.0%} idle: these figures are none")
    return idle


def _measure(server: Server, bench: Path, phases: list[Phase], options, found: dict[str, dict]) -> None:
    try:
        server.start(fresh=True)
        _say(f"{server.name}: an empty store")
        quiet = Load(bench, server, ["--rate", str(options.rate), "--duration", f"{options.seconds:.0f}s"])
        _keep(found, QUIET, quiet.result())
        _say(f"{server.name}: {options.puts:,} puts at full speed")
        full = Load(bench, server, ["--total", str(options.puts), "--key-space-size", str(options.keys)])
        _keep(found, "full speed", full.result())
        for phase in phases:
            _say(f"{server.name}: {phase.title}")
            before = _retired_bytes(server)
            load = Load(bench, server, ["--rate", str(options.rate), "--duration", f"{options.longest:.0f}s"])
            time.sleep(LEAD_S)
            began, figures = time.monotonic(), None
            if phase.act is None:
                time.sleep(options.seconds)
            else:
                figures = phase.act(server)
            took = time.monotonic() - began
            time.sleep(LEAD_S)
            load.end()
            result = load.result() | {"took_s": round(took, 2), "retired_bytes_before": before} | (figures or {})
            _keep(found, phase.title, result)
            if phase.tidy:
                phase.tidy(server)
    finally:
        server.stop()


def _keep(found: dict[str, dict], title: str, result: dict) -> None:
    """The worst of all rounds, figure by figure: tails are what is looked for."""
    known = found.get(title)
    if known is None:
        found[title] = result
        return
    worst = {name: max(known["latency_us"][name], result["latency_us"][name]) for name in FIGURES}
    failed = known["failed"] + result["failed"]
    found[title] = result | {"latency_us": worst, "rate": min(known["rate"], result["rate"]), "failed": failed}


class Load:
    """A running load of puts by `cairn bench`."""

    def __init__(self, bench: Path, server: Server | Cluster, arguments: list[str], connections: int = CONNECTIONS, clients: int = CLIENTS):
        self._file = tempfile.NamedTemporaryFile(suffix=".json")
        command = [bench, "bench", f"--endpoints=127.0.0.1:{server.port}", f"--conns={connections}", f"--clients={clients}"]
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
        if code not in (0, 1, 130) or not lines:
            raise LoadFailed(f"the load ended with {code}: {self._said[-2000:]}")
        line = json.loads(lines[-1])
        if line["wrong"]:
            raise LoadFailed(f"wrong answers: {line['wrong']}")
        # Puts that a server refuses, or that time out, are a result, too.
        figures = {name: line[name] for name in ("rate", "requests", "succeeded", "errors", "unsent", "seconds", "latency_us")}
        return figures | {"failed": sum(line["failed"].values())}


def _phases(cairn: Path, work: Path, options) -> list[Phase]:
    saved = work / "saved.db"

    def compact(server: Server) -> None:
        with client.Client(server.port, CALL_S_MAX) as one:
            # Physical: the answer comes when the history is dropped.
            message = proto.number_field(1, one.revision()) + proto.number_field(2, 1)
            one.call("/etcdserverpb.KV/Compact", message)
        compacted[server.name] = time.monotonic()

    compacted: dict[str, float] = {}

    def shrink(server: Server) -> dict:
        """Looks until all files are small beside what lives. Its time counts from the answer to the compaction."""
        seen, began = [], compacted.get(server.name, time.monotonic())
        while True:
            looked = time.monotonic() - began
            live = client.gauge(server.port, LIVE_GAUGE)
            database, log = _file_bytes(server.data)
            seen.append({"s": round(looked, 1), "live": live, "database": database, "log": log})
            _say(f"  {looked:5.0f} s: the database {database / live:.2f}, with the log {(database + log) / live:.2f} of {live / 1e6:,.0f} MB that live")
            if database + log <= SHRUNK_RATIO_MAX * live or looked > options.shrink_seconds:
                return {"shrinking": seen}
            time.sleep(SHRINK_STEP_S)

    def save(server: Server) -> None:
        command = [cairn, "ctl", f"--endpoints=127.0.0.1:{server.port}", "snapshot", "save", saved]
        subprocess.run(command, check=True, capture_output=True)

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

    learners: list[tuple[Server, int]] = []

    def catch_up(server: Server) -> None:
        port = options.port + 4
        with client.Client(server.port, CALL_S_MAX) as one:
            peer = f"http://127.0.0.1:{port + 1}".encode()
            added = one.call("/etcdserverpb.Cluster/MemberAdd", proto.bytes_field(1, peer) + proto.number_field(2, 1))
            member = dict(proto.fields(dict(proto.fields(added))[2]))
            founders = {server.name: server.port + 1, "learner": port + 1}
            learner = Server("learner", server.binary, work, port, founders, joins=True)
            learners.append((learner, member[1]))
            learner.launch(fresh=True)
            wanted = _applied(one)
        until = time.monotonic() + CALL_S_MAX
        while time.monotonic() < until:
            try:
                with client.Client(port, CALL_S_MAX) as one:
                    if _applied(one) >= wanted:
                        return
            except (OSError, client.CallFailed):
                pass
            time.sleep(0.2)
        raise LoadFailed("the learner has not caught up")

    def remove_learner(server: Server) -> None:
        learner, member = learners.pop()
        with client.Client(server.port, CALL_S_MAX) as one:
            one.call("/etcdserverpb.Cluster/MemberRemove", proto.number_field(1, member))
        learner.kill()
        shutil.rmtree(learner.data, ignore_errors=True)

    return [
        Phase("right after it", None),
        Phase("hash of the history", hash_history),
        Phase("snapshot save", save, lambda _: saved.unlink(missing_ok=True)),
        Phase("a learner catches up", catch_up, remove_learner),
        Phase("compaction", compact),
        Phase("the files shrink", shrink),
        Phase("right after that", None),
        Phase("defragment", defragment),
        Phase(f"lists of {LIST_KEYS:,} keys", read_lists),
    ]


def _file_bytes(data: Path) -> tuple[int, int]:
    """What the files of the database take of the disk, and those of the Raft log."""
    database = log = 0
    for file in data.rglob("*"):
        try:
            taken = file.lstat().st_blocks * 512
        except FileNotFoundError:
            continue  # it was removed meanwhile
        if file.parent.name == "wal":
            log += taken
        else:
            database += taken
    return database, log


def _applied(one: client.Client) -> int:
    """Index of the last entry that the server has applied."""
    return dict(proto.fields(one.call("/etcdserverpb.Maintenance/Status", b""))).get(7, 0)


def _slow_disk(work: Path, options) -> dict[str, str]:
    """What makes the disk of a server slow, for its environment."""
    if not options.disk_mb_s:
        return {}
    library = work / "slow_disk.so"
    source = Path(__file__).with_name("slow_disk.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-lpthread"], check=True)
    return {
        "LD_PRELOAD": str(library),
        "DISK_BYTES_PER_S": str(options.disk_mb_s * 1_000_000),
        "DISK_OPERATIONS_PER_S": str(options.disk_iops),
    }


def _retired_bytes(server: Server) -> int | None:
    """What waits to be given back to the disk, if the server says so."""
    return client.gauge(server.port, "cairn_disk_retired_bytes")


def _table(results: dict[str, dict[str, dict]], phases: list[Phase]) -> str:
    names = list(results)
    head = "| puts beside | " + " | ".join(f"{name}: p50, p99, p99.9, slowest (ms)" for name in names) + " |"
    lines = [head, "|---|" + "---|" * len(names)]
    for title in [QUIET, "full speed", *(phase.title for phase in phases)]:
        cells = []
        for name in names:
            result = results[name].get(title)
            if result is None:
                cells.append("")
                continue
            figures = ", ".join(f"{result['latency_us'][figure] / 1000:.1f}" for figure in FIGURES)
            beside = f" in {result['took_s']:.1f} s" if "took_s" in result else ""
            failed = f"; **{result['failed']:,} failed**" if result["failed"] else ""
            cells.append(f"{figures} ({result['rate']:,.0f}/s{beside}{failed})")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    for name in names:
        seen = results[name].get("the files shrink", {}).get("shrinking")
        if seen:
            lines += ["", f"{name}, after the compaction (goal: {SHRUNK_RATIO_MAX:g} of what lives within {SHRINK_S_GOAL:.0f} s): {_shrunk(seen)}"]
    return "\n".join(lines)


def _shrunk(seen: list[dict]) -> str:
    """When the files were small enough, and how large they were at first and at last."""

    def parts(title: str, of: Callable[[dict], int]) -> str:
        first = next((look["s"] for look in seen if of(look) <= SHRUNK_RATIO_MAX * look["live"]), None)
        when = f"not within {seen[-1]['s']:.0f} s" if first is None else f"after {first:.0f} s"
        ratios = [of(look) / look["live"] for look in (seen[0], seen[-1])]
        return f"{title} {when} ({ratios[0]:.2f} at first, {ratios[1]:.2f} at last)"

    database = parts("the files of the database", lambda look: look["database"])
    return f"{database}, {parts('with the Raft log', lambda look: look['database'] + look['log'])}, {seen[-1]['live'] / 1e6:,.0f} MB live"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--puts", type=int, default=10_000_000, help="puts at full speed")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys that they go to in turn")
    parser.add_argument("--drop", type=float, help="as many keys, instead, as make a compaction drop this part of what was written: 0.9")
    parser.add_argument("--shrink-seconds", type=float, default=1.5 * SHRINK_S_GOAL, help="how long the files may take to shrink after the compaction")
    parser.add_argument("--rate", type=int, default=5_000, help="puts per second of the open loop")
    parser.add_argument("--seconds", type=float, default=20, help="how long a phase without an end lasts")
    parser.add_argument("--longest", type=float, default=1800, help="the most that a phase may take")
    parser.add_argument("--rounds", type=int, default=1, help="how often each server is measured; the worst counts")
    parser.add_argument("--disk-mb-s", type=int, default=0, help="a disk that writes so much, for Cairn alone")
    parser.add_argument("--disk-iops", type=int, default=0, help="and so many operations a second")
    parser.add_argument("--phases", nargs="+", default=[], help='these alone, in the usual order: compaction "the files shrink"')
    parser.add_argument("--only", choices=("cairn", "etcd"), default=None, help="one of the two servers")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORTS", "18800").split("-")[0]))
    parser.add_argument("--work", type=Path, default=None, help="where the data directories go")
    parser.add_argument("--out", type=Path, default=None, help="a file for the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a small form; its figures mean nothing")
    options = parser.parse_args()
    if options.quick:
        options.puts, options.keys, options.rate, options.seconds = 100_000, 20_000, 500, 2
        options.shrink_seconds = 6
    if options.drop is not None:
        options.keys = max(1, round(options.puts * (1 - options.drop)))
    return options


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
