#!/usr/bin/env python3
"""What each thread of a member takes for a put: one member, and the leader and the followers of three, under 1,000 clients.

Processor time of each thread comes from /proc/PID/task/TID/schedstat, puts from the store's revision. Then calls of futex are counted for as long, by `perf stat`,
or where that is not allowed by `strace -c`, which slows the member down but not the count for a put by much. Only a lock that somebody else
holds, and a thread that waits for another, make such a call. `make bench-threads` runs this; it needs an idle machine and takes two minutes.
`--quick` is a small form that shows only whether it works.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import accounting
import client
import tools
from cluster import Cluster
from server import Server, ServerFailed
from tails import Load, LoadFailed, look_at_machine

KEYS = 100_000
LEAD_S = 3.0
SHOWN_US_MIN = 0.005
GOALS_US = {"consensus": 0.6, "apply": 0.7}


def main() -> None:
    """Runs one member and three, and prints the table."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    idle = look_at_machine()
    cairn = tools.cairn()
    columns: dict[str, dict] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="threads-", dir=options.work) as work:
            for size in (1, 3):
                _say(f"{size} member{'s' if size > 1 else ''}")
                cluster = Cluster(f"cairn-of-{size}", cairn, Path(work), options.port, size)
                try:
                    columns |= _measure(cluster, cairn, options)
                finally:
                    cluster.stop()
    finally:
        # What there is, also when the second part ends the run.
        if columns:
            print(_table(columns), flush=True)
    if options.out:
        about = accounting.machine() | {"idle_before": idle, "clients": options.clients, "seconds": options.seconds}
        options.out.write_text(json.dumps({"about": about, "columns": columns}, indent=1) + "\n")


def _measure(cluster: Cluster, cairn: Path, options) -> dict[str, dict]:
    cluster.start(fresh=True)
    leader = cluster.leader()
    roles = {"one member": leader} if len(cluster.members) == 1 else {"leader of three": leader}
    roles |= {f"follower {number}": member for number, member in enumerate((m for m in cluster.members if m is not leader), 1)}
    seconds = 2 * options.seconds + 2 * LEAD_S + 5
    arguments = ["--duration", f"{seconds:.0f}s", "--key-space-size", str(KEYS)]
    load = Load(cairn, leader, arguments, min(options.clients, 100), options.clients)
    time.sleep(LEAD_S)
    revision, before = _revision(leader), {role: (_threads(member.pid), member.usage()) for role, member in roles.items()}
    began = time.monotonic()
    time.sleep(options.seconds)
    after = {role: (_threads(member.pid), member.usage()) for role, member in roles.items()}
    puts, took = _revision(leader) - revision, time.monotonic() - began
    found = {}
    for role in roles:
        used = after[role][1].since(before[role][1])
        found[role] = {
            "puts": puts, "rate": puts / took, "threads_us": _used(before[role][0], after[role][0], puts), "cpu_us": used.cpu_s * 1e6 / puts,
            "switches": (used.switches_voluntary + used.switches_forced) / puts, "idle_share": used.idle_share,
        }
    revision = _revision(leader)
    counting = {role: Futexes(member.pid, options.seconds) for role, member in roles.items()}
    calls = {role: count.result() for role, count in counting.items()}
    puts = _revision(leader) - revision
    for role, (count, tool) in calls.items():
        found[role] |= {"futex": count / puts if count is not None else None, "counted_by": tool}
    load.end()
    load.result()
    return found


def _threads(pid: int) -> dict[int, tuple[str, int]]:
    """Name and nanoseconds of processor time of each thread."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[int(task.name)] = (task.joinpath("comm").read_text().strip(), int(task.joinpath("schedstat").read_text().split()[0]))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended meanwhile
    return found


def _used(before: dict[int, tuple[str, int]], after: dict[int, tuple[str, int]], puts: int) -> dict[str, float]:
    """Microseconds of each put by the threads' names; numbers at their ends do not tell them apart."""
    used = Counter()
    for task, (name, time_ns) in after.items():
        used[re.sub(r"[-_ ]?\d+$", "", name)] += time_ns - before.get(task, (name, 0))[1]
    return {name: ns / 1000 / puts for name, ns in used.most_common()}


class Futexes:
    """Counts the calls of futex of a process for so many seconds, from now on."""

    def __init__(self, pid: int, seconds: float):
        # In the order of what they cost.
        if shutil.which("perf") and _perf_may(pid):
            self._tool, command = "perf", ["perf", "stat", "-x;", "-e", "syscalls:sys_enter_futex", "-p", str(pid), "sleep", f"{seconds:.1f}"]
        elif shutil.which("strace"):
            self._tool, command = "strace", ["timeout", "-s", "INT", f"{seconds:.1f}", "strace", "-f", "-c", "-e", "trace=futex", "-p", str(pid)]
        else:
            self._tool, command = "nothing", ["true"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def result(self) -> tuple[int | None, str]:
        """How many, if they could be counted, and by what."""
        _, said = self._process.communicate()
        pattern = r"^(\d+);" if self._tool == "perf" else r"^\s*\S+\s+\S+\s+\S+\s+(\d+)\s.*\bfutex$"
        found = re.search(pattern, said, re.MULTILINE)
        return (int(found[1]), self._tool) if found else (None, self._tool)


def _perf_may(pid: int) -> bool:
    command = ["perf", "stat", "-x;", "-e", "syscalls:sys_enter_futex", "-p", str(pid), "sleep", "0.2"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _revision(server: Server) -> int:
    with client.Client(server.port) as one:
        return one.revision()


def _table(columns: dict[str, dict]) -> str:
    names = list(dict.fromkeys(name for column in columns.values() for name, us in column["threads_us"].items() if us >= SHOWN_US_MIN or name in GOALS_US))
    names.sort(key=lambda name: name not in GOALS_US)
    lines = ["| CPU of a put, us | " + " | ".join(columns) + " |", "|---|" + "--:|" * len(columns)]
    for name in names:
        goal = f" (goal {GOALS_US[name]:g})" if name in GOALS_US else ""
        lines.append(f"| `{name}`{goal} | " + " | ".join(f"{column['threads_us'].get(name, 0):.2f}" for column in columns.values()) + " |")
    rows = [
        ("the whole member", lambda c: f"{c['cpu_us']:.2f}"),
        ("puts a second", lambda c: f"{c['rate']:,.0f}"),
        ("context switches of a put", lambda c: f"{c['switches']:.3f}"),
        ("calls of futex of a put", lambda c: f"{c['futex']:.3f} ({c['counted_by']})" if c.get("futex") is not None else ""),
        ("machine idle", lambda c: f"{c['idle_share']:.0%}"),
    ]
    lines += [f"| {what} | " + " | ".join(text(column) for column in columns.values()) + " |" for what, text in rows]
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000, help="each with one put at a time")
    parser.add_argument("--seconds", type=float, default=15.0, help="for processor time, and again for futex")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORTS", "18800").split("-")[0]), help="first of six ports")
    parser.add_argument("--work", type=Path, default=None, help="where the data directories go")
    parser.add_argument("--out", type=Path, default=None, help="a file for the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a small form; its figures mean nothing")
    options = parser.parse_args()
    if options.quick:
        options.seconds = 3.0
    return options


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except (LoadFailed, ServerFailed, OSError) as failure:
        sys.exit(str(failure))
