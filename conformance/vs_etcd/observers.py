#!/usr/bin/env python3
"""What observers cost the leader, how linearizable reads grow with them, and what lists on one do to the members.

1. Three members; up to ten observers in a tree under a follower, each with 1,000 watches of a key of its own that is put twice a second,
   while 2,000 other puts a second go to the leader, at times fixed beforehand: the leader's processor time for a put.
2. One member with none, one and two observers, each process confined to a part of one processor, so that the processors of this machine are
   not what is measured, and once more without that: reads a second of one key over all of them. A client writes numbers meanwhile and reads
   them back at each process: a linearizable read that shows a lower number than one that was acknowledged before it began is stale.
3. Puts and gets of one client at a member, quiet and while 64 clients list 8,000 keys each: at an observer, and at the member itself. Who
   lists, and the observer, run at the lowest priority, as if they were on another machine.

`make bench-observers` runs this; it needs an idle machine. `--quick` is a small form for a first look.
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
from contextlib import ExitStack, contextmanager
from pathlib import Path

import accounting
import client
import tools
from cluster import Cluster
from load import NotCounted
from server import Server, ServerFailed

KEY, VALUE_BYTES = "benchkey", 256
OBSERVERS = (0, 1, 10)
WATCHES, WATCH_STREAMS, WATCHED_PUT_RATE = 1_000, 10, 2
PUT_RATE = 2_000
READ_CONNECTIONS, READ_CLIENTS = 30, 1_000
"""For each process that is read. Reads at an observer wait for the answer of a member that has all it can do, so few clients would measure
that wait."""
PERIOD_US, SHARE = 10_000, 0.15
"""A confined process gets this part of one processor, in each period."""
LIST_KEYS, LIST_CLIENTS = 8_000, 64
SMALL_RATE, SMALL_CLIENTS = 500, 32
IDLE_SHARE_MIN = 0.9
CPU_RATIO_MAX, P99_RATIO_MAX = 1.1, 1.2
LOAD_S_MAX = 300.0
CGROUP = Path("/sys/fs/cgroup/cpu")


class Observer(Server):
    """A process that follows others, on a directory of its own; `low`: at the lowest priority."""

    def __init__(self, name: str, binary: Path, work: Path, port: int, follows: Server, low: bool = False):
        super().__init__(name, binary, work, port)
        self._follows, self._low = follows, low

    def launch(self, fresh: bool = False) -> float:
        here, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.port + 1}"
        command = [self.binary, "serve", "--observer", f"--follow=http://127.0.0.1:{self._follows.port + 1}"]
        command += [f"--name={self.name}", f"--data-dir={self.data}", "--log-level=warn"]
        command += [f"--listen-client-urls={here}", f"--advertise-client-urls={here}"]
        command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
        with open(self._log_path, "ab") as log:
            started = time.monotonic()
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=self._low)
        if self._low:
            lower(self._process.pid)
        return started


class Bench:
    """The load generator, `cairn bench`."""

    def __init__(self, binary: Path, work: Path):
        self._binary, self._work, self._runs = binary, work, 0

    def begin(self, servers: list[Server], *words: str, low: bool = False) -> "Load":
        """Begins a load over these servers, at the lowest priority if told so."""
        self._runs += 1
        endpoints = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        return Load([self._binary, "bench", f"--endpoints={endpoints}", *words], self._work / f"bench-{self._runs}.json", low)

    def run(self, servers: list[Server], *words: str) -> dict:
        """Runs a load to its end; its first report."""
        return self.begin(servers, *words).result()


class Load:
    """A generator that runs."""

    def __init__(self, command: list, report: Path, low: bool):
        self._words, self._report = command, report
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [*command, f"--json={report}"], stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=low)
        if low:
            lower(self._process.pid)

    def result(self) -> dict:
        """Waits for its end; its first report. A run with a request that failed does not count."""
        said, _ = self._process.communicate(timeout=LOAD_S_MAX)
        lines = self._report.read_text().splitlines() if self._report.exists() else []
        reports = [json.loads(line) for line in lines]
        if self._process.returncode != 0 or not reports or any(report["wrong"] or report["failed"] for report in reports):
            raise NotCounted(f"{' '.join(map(str, self._words[2:]))}: {said[-500:]}")
        return reports[0]

    def end(self) -> dict:
        """Asks it to end, and waits."""
        self._process.send_signal(signal.SIGINT)
        return self.result()


def main() -> None:
    """Runs the three parts, prints their tables and writes them to files."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cairn = tools.cairn()
    idle = accounting.idle_share(2.0)
    if idle < IDLE_SHARE_MIN:
        _say(f"the machine is only {idle:.0%} idle: these figures are none")
    about = accounting.machine() | {"idle_before": idle, "command": " ".join(["conformance/vs_etcd/observers.py", *sys.argv[1:]])}
    about["when"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    parts, texts = {}, []
    for name, measure, table in (("leader", _leader, _leader_table), ("reads", _reads, _reads_table), ("lists", _lists, _lists_table)):
        if options.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="observers-", dir=options.work) as work:
                parts[name] = measure(cairn, Path(work), options)
            texts.append(table(parts[name]))
            print(texts[-1] + "\n", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "observers.md").write_text("\n\n".join(texts) + "\n")
    (options.out / "observers.json").write_text(json.dumps({"about": about} | parts, indent=1) + "\n")
    print(f"Markdown and JSON: {options.out}/observers.{{md,json}}")


def _leader(cairn: Path, work: Path, options) -> list[dict]:
    """The leader's processor time for a put with each number of observers. Runs go up and down again, so that a machine that gets slower
    or faster meanwhile does not look like observers."""
    bench, found = Bench(cairn, work), []
    cluster = Cluster("member", cairn, work, options.port)
    with ExitStack() as ends:
        ends.callback(cluster.stop)
        cluster.start(fresh=True)
        leader = cluster.leader()
        follower = next(member for member in cluster.members if member is not leader)
        observers = []
        for number in range(max(OBSERVERS)):
            # A tree: the first follows a member, the others one before them, two each.
            follows = observers[(number - 1) // 2] if observers else follower
            observers.append(Observer(f"observer-{number}", cairn, work, options.port + 6 + 2 * number, follows))
        ends.callback(_stop, observers)
        running = 0
        for count in [*OBSERVERS, *OBSERVERS[-2::-1]]:
            for observer in observers[running:count]:
                observer.start(fresh=not observer.data.exists())
            _stop(observers[count:running][::-1])
            running = count
            _say(f"{PUT_RATE:,} puts/s at the leader, {count} observers with {WATCHES:,} watches each")
            found.append(_leader_run(bench, leader, observers[:count], options) | {"observers": count})
    return found


def _leader_run(bench: Bench, leader: Server, observers: list[Server], options) -> dict:
    """Puts at a fixed rate beside watches that hear of their own key."""
    seconds = options.seconds
    total = WATCHED_PUT_RATE * int(seconds + 10)
    # The key is as long as the number says, so that each observer's watches have one of their own.
    watches = [
        bench.begin([observer], "watch-latency", f"--conns={WATCH_STREAMS}", f"--streams={WATCH_STREAMS}",
                    f"--watchers-per-stream={WATCHES // WATCH_STREAMS}", f"--put-rate={WATCHED_PUT_RATE}", f"--put-total={total}",
                    f"--key-size={32 + number}")
        for number, observer in enumerate(observers)
    ]
    time.sleep(2.0)
    puts = bench.begin([leader], "put", f"--rate={PUT_RATE}", f"--duration={seconds + 2:.0f}s", "--key-space-size=10000",
                       "--val-size=256", "--clients=100", "--conns=10")
    time.sleep(1.0)
    before, revision = leader.usage(), _revision(leader)
    time.sleep(seconds)
    used, moved = leader.usage().since(before), _revision(leader) - revision
    report = puts.result()
    heard = [watch.result() for watch in watches]
    return {
        "puts": moved, "cpu_us": used.cpu_s * 1e6 / moved, "idle_share": used.idle_share,
        "p99_ms": report["latency_us"]["p99"] / 1000, "watched_puts": sum(run["succeeded"] for run in heard),
    }


def _leader_table(runs: list[dict]) -> str:
    lines = ["| observers | watches | puts at the leader | leader's CPU of a put | beside none | machine idle | p99 of puts |", "|--:|--:|--:|--:|--:|--:|--:|"]
    first = next(run["cpu_us"] for run in runs if run["observers"] == 0)
    for run in runs:
        lines.append(
            f"| {run['observers']} | {run['observers'] * WATCHES:,} | {run['puts']:,} | {run['cpu_us']:.1f} us | "
            f"{run['cpu_us'] / first:.2f}x | {run['idle_share']:.0%} | {run['p99_ms']:.1f} ms |")
    return "\n".join([*lines, "", f"Goal: at most {CPU_RATIO_MAX:g}x with {max(OBSERVERS)} observers."])


def _reads(cairn: Path, work: Path, options) -> list[dict]:
    """Reads over one, two and three processes, confined and not."""
    bench, found = Bench(cairn, work), []
    with ExitStack() as ends:
        member = Server("member", cairn, work, options.port)
        observers = [Observer(f"observer-{number}", cairn, work, options.port + 6 + 2 * number, member) for number in range(2)]
        processes = [member, *observers]
        ends.callback(_stop, processes[::-1])
        for process in processes:
            process.start(fresh=True)
        with client.Client(member.port) as control:
            control.put(KEY.encode(), b"v" * VALUE_BYTES)
        for confined in (True, False):
            with confine(processes) if confined else ExitStack():
                for consistency in ("l", "s"):
                    for count in (1, 2, 3):
                        kind = "linearizable" if consistency == "l" else "serializable"
                        _say(f"{kind} reads over {count} processes{', confined' if confined else ''}")
                        with Numbers(processes[:count]) as numbers:
                            before = member.usage()
                            report = bench.run(processes[:count], "range", KEY, f"--consistency={consistency}",
                                               f"--conns={READ_CONNECTIONS * count}", f"--clients={READ_CLIENTS * count}", f"--duration={options.seconds:.0f}s")
                            used = member.usage().since(before)
                        found.append({
                            "kind": kind, "processes": count, "confined": confined, "rate": report["rate"], "p99_ms": report["latency_us"]["p99"] / 1000,
                            "idle_share": used.idle_share, "read_back": numbers.read, "stale": numbers.stale,
                        })
    return found


class Numbers:
    """Writes numbers at the first process and reads each back at one of them, in turn, as long as it is open."""

    def __init__(self, processes: list[Server]):
        self._processes, self._ended = processes, threading.Event()
        self._thread = threading.Thread(target=self._count)
        self._failed: Exception | None = None
        self.read = self.stale = 0

    def __enter__(self) -> "Numbers":
        self._thread.start()
        return self

    def __exit__(self, *_unused) -> None:
        self._ended.set()
        self._thread.join()
        if self._failed:
            raise self._failed

    def _count(self) -> None:
        try:
            with ExitStack() as ends:
                controls = [ends.enter_context(client.Client(process.port)) for process in self._processes]
                number = 0
                while not self._ended.wait(0.002):
                    number += 1
                    controls[0].put(b"number", b"%012d" % number)
                    answer = controls[number % len(controls)].range(b"number")
                    self.read += 1
                    # Nobody else writes it, so any other value is an older one.
                    self.stale += b"%012d" % number not in answer
        except (OSError, client.CallFailed) as why:
            self._failed = NotCounted(f"numbers: {why}")


def _reads_table(runs: list[dict]) -> str:
    lines = ["| reads | each process has | processes | rate | beside one | p99 | machine idle | read back, stale |", "|---|---|--:|--:|--:|--:|--:|--:|"]
    for run in runs:
        one = next(other["rate"] for other in runs if (other["kind"], other["confined"], other["processes"]) == (run["kind"], run["confined"], 1))
        has = f"{SHARE:.0%} of a processor" if run["confined"] else "what it gets"
        lines.append(
            f"| {run['kind']} | {has} | {run['processes']} | {run['rate']:,.0f}/s | {run['rate'] / one:.2f}x | {run['p99_ms']:.1f} ms | "
            f"{run['idle_share']:.0%} | {run['read_back']:,}, {run['stale']} |")
    return "\n".join(lines)


def _lists(cairn: Path, work: Path, options) -> list[dict]:
    """Puts and gets at the member: quiet, beside lists at an observer, beside the same lists at the member."""
    bench, found = Bench(cairn, work), []
    with ExitStack() as ends:
        member = Server("member", cairn, work, options.port)
        observer = Observer("observer", cairn, work, options.port + 6, member, low=True)
        ends.callback(_stop, [observer, member])
        member.start(fresh=True)
        observer.start(fresh=True)
        bench.run([member], "put", "--prefix=list/", "--key-size=16", "--sequential-keys", f"--key-space-size={LIST_KEYS}", f"--total={LIST_KEYS}",
                  "--val-size=256", "--clients=32", "--conns=4")
        small = [f"--rate={SMALL_RATE}", f"--clients={SMALL_CLIENTS}", f"--duration={options.seconds:.0f}s"]
        bench.run([member], "put", *small)
        for where in (None, observer, member):
            _say(f"puts and gets, {'quiet' if where is None else f'beside lists at the {where.name}'}")
            lists = None
            if where is not None:
                lists = bench.begin([where], "range", "list/", "--prefix", f"--clients={LIST_CLIENTS}", f"--conns={LIST_CLIENTS}",
                                    f"--duration={2 * options.seconds + 4:.0f}s", low=True)
                time.sleep(1.0)
            run = {"where": where.name if where else None}
            for kind, words in (("puts", ["put"]), ("gets", ["range", KEY])):
                run[kind] = bench.run([member], *words, *small)["latency_us"]
            run["lists"] = lists.result()["rate"] if lists else 0.0
            found.append(run)
    return found


def _lists_table(runs: list[dict]) -> str:
    lines = ["| lists at | lists/s | puts: p50, p99, slowest (ms) | p99 beside quiet | gets | p99 beside quiet |", "|---|--:|--:|--:|--:|--:|"]
    for run in runs:
        cells = []
        for kind in ("puts", "gets"):
            cells.append(", ".join(f"{run[kind][name] / 1000:.2f}" for name in ("p50", "p99", "max")))
            cells.append(f"{run[kind]['p99'] / runs[0][kind]['p99']:.2f}x")
        lines.append(f"| {run['where'] or 'nobody'} | {run['lists']:,.0f} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Goal with lists at an observer: at most {P99_RATIO_MAX:g}x."])


@contextmanager
def confine(servers: list[Server], share: float = SHARE):
    """Gives each process this share of one processor, until the end of the block."""
    groups = []
    try:
        for server in servers:
            group = CGROUP / f"bench-{server.pid}"
            group.mkdir()
            groups.append(group)
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * share)))
            (group / "cgroup.procs").write_text(str(server.pid))
        yield
    finally:
        for group in groups:
            for pid in (group / "cgroup.procs").read_text().split():
                (CGROUP / "cgroup.procs").write_text(pid)
            group.rmdir()


def lower(pid: int) -> None:
    """Gives a process that leads a session what others leave. Linux shares processors between sessions first."""
    try:
        Path(f"/proc/{pid}/autogroup").write_text("19")
    except OSError:
        pass
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(task.name), 19)


def _revision(server: Server) -> int:
    with client.Client(server.port) as control:
        return control.revision()


def _stop(servers: list[Server]) -> None:
    for server in servers:
        server.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small form for a first look")
    parser.add_argument("--seconds", type=float, help="of each run (20)")
    parser.add_argument("--only", choices=("leader", "reads", "lists"), help="one of the three parts")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORTS", "18900").split("-")[0]), help="first of 26 ports")
    parser.add_argument("--work", type=Path, help="directory for the data (target directory)")
    parser.add_argument("--out", type=Path, default=tools.target_dir() / "bench", help="directory of the reports")
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = 3.0 if options.quick else 20.0
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
