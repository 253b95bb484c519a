#!/usr/bin/env python3
"""What `cairn backup` costs the member that it follows: processor time of the member at a fixed rate of puts, with an archive and without, in turn.

Each run has a member of its own, with 100,000 keys. An open loop puts at the rate; with an archive, `cairn backup --to file://...` has its base
and ships what is applied every five seconds. Processor time is that of the member's process; the backup's stands beside it. `make bench-archive` runs this; it
needs an idle machine and takes six minutes. `--quick` is a small form that shows only whether it works.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import accounting
import client
import tools
from server import Server, ServerFailed
from tails import Load, LoadFailed, look_at_machine

KEYS = 100_000
EVERY_S = 5
LEAD_S = 4.0
COST_MAX = 0.05


def main() -> None:
    """Runs the rounds and prints the table."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    idle = look_at_machine()
    cairn = tools.cairn()
    runs: list[dict] = []
    try:
        for number in range(options.rounds):
            for archived in (False, True) if number % 2 == 0 else (True, False):
                with tempfile.TemporaryDirectory(prefix="archive-", dir=options.work) as work:
                    _say(f"{options.rate:,} puts/s {'with an archive' if archived else 'alone'}")
                    runs.append(_measure(cairn, Path(work), archived, options) | {"round": number})
    finally:
        # What there is, also when a later run ends it all.
        if runs:
            print(_table(runs), flush=True)
    if options.out:
        about = accounting.machine() | {"idle_before": idle, "rate": options.rate, "seconds": options.seconds}
        options.out.write_text(json.dumps({"about": about, "runs": runs}, indent=1) + "\n")


def _measure(cairn: Path, work: Path, archived: bool, options) -> dict:
    server, archive = Server("cairn", cairn, work, options.port), work / "archive"
    backup = None
    try:
        server.start(fresh=True)
        Load(cairn, server, ["--total", str(KEYS), "--key-space-size", str(KEYS)]).result()
        if archived:
            command = [cairn, "backup", f"--endpoints=127.0.0.1:{server.port}", f"--to=file://{archive}", f"--every={EVERY_S}s", f"--scratch-dir={work}"]
            backup = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        # For the base, and as long without one.
        time.sleep(2 * EVERY_S)
        load = Load(cairn, server, ["--rate", str(options.rate), "--duration", f"{options.seconds + 2 * LEAD_S:.0f}s", "--key-space-size", str(KEYS)])
        time.sleep(LEAD_S)
        before, other, bytes_before, revision = server.usage(), _usage(backup), _archived_bytes(archive), _revision(server)
        time.sleep(options.seconds)
        used, other_s = server.usage().since(before), _usage(backup) - other
        puts, shipped = _revision(server) - revision, _archived_bytes(archive) - bytes_before
        result = load.result()
        if backup and (backup.poll() is not None or shipped <= 0):
            backup.kill()
            raise LoadFailed(f"nothing was archived: {backup.communicate()[1][-1000:]}")
    finally:
        if backup and backup.poll() is None:
            backup.send_signal(signal.SIGINT)
            try:
                backup.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                backup.kill()
                backup.communicate()
        server.stop()
    return {
        "archived": archived, "puts": puts, "cpu_us": used.cpu_s * 1e6 / puts, "cpu_share": used.cpu_s / options.seconds, "backup_cpu_us": other_s * 1e6 / puts,
        "shipped_bytes": shipped, "idle_share": used.idle_share, "failed": result["failed"], "unsent": result["unsent"],
        "p99_ms": result["latency_us"]["p99"] / 1000,
    }


def _usage(process: subprocess.Popen | None) -> float:
    return accounting.usage(process.pid).cpu_s if process else 0.0


def _archived_bytes(archive: Path) -> int:
    total = 0
    for file in archive.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue  # it had a name of its own while it was written
    return total


def _revision(server: Server) -> int:
    with client.Client(server.port) as one:
        return one.revision()


def _table(runs: list[dict]) -> str:
    lines = ["| | member's CPU of a put | of a processor | backup's CPU of a put | archived | p99 of puts | machine idle | refused, not sent |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for run in sorted(runs, key=lambda run: run["archived"]):
        lines.append(
            f"| {'with an archive' if run['archived'] else 'alone'} | {run['cpu_us']:.2f} us | {run['cpu_share']:.1%} | {run['backup_cpu_us']:.2f} us | "
            f"{run['shipped_bytes'] / 1e6:,.0f} MB | {run['p99_ms']:.1f} ms | {run['idle_share']:.0%} | {run['failed']:,}, {run['unsent']:,} |")
    pairs = {}
    for run in runs:
        pairs.setdefault(run["round"], {})[run["archived"]] = run["cpu_us"]
    costs = sorted(pair[True] / pair[False] - 1 for pair in pairs.values() if len(pair) == 2)
    if costs:
        lines += ["", f"An archive costs the member {statistics.median(costs):+.1%} ({costs[0]:+.1%} to {costs[-1]:+.1%}, {len(costs)} pairs); goal: at most {COST_MAX:.0%}."]
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=20_000, help="puts per second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3, help="how many pairs of runs")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORTS", "18800").split("-")[0]), help="first of two ports")
    parser.add_argument("--work", type=Path, default=None, help="where the data directories go")
    parser.add_argument("--out", type=Path, default=None, help="a file for the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a small form; its figures mean nothing")
    options = parser.parse_args()
    if options.quick:
        options.rate, options.seconds, options.rounds = 500, 10.0, 1
    return options


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except (LoadFailed, ServerFailed, OSError) as failure:
        sys.exit(str(failure))
