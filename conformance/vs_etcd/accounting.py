"""What a process and the machine have used, from /proc."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """A reading of the counters; the difference of two is what a run cost."""

    cpu_s: float
    switches_voluntary: int
    switches_forced: int
    machine_idle_s: float
    machine_total_s: float

    def since(self, before: "Usage") -> "Usage":
        """This reading less an earlier one."""
        return Usage(*(getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__))

    @property
    def idle_share(self) -> float:
        """Share of the machine's processors that had nothing to do."""
        return self.machine_idle_s / self.machine_total_s if self.machine_total_s else 0.0


def idle_share(seconds: float) -> float:
    """Share of the machine's processors that have nothing to do while nothing of ours runs."""
    before = usage(os.getpid())
    time.sleep(seconds)
    return usage(os.getpid()).since(before).idle_share


def usage(pid: int) -> Usage:
    """Reads the counters of one process (all its threads) and of the machine."""
    # The name in brackets may hold spaces, so the fields are counted from behind it.
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(after_name[11]) + int(after_name[12])) / _TICKS_PER_S
    voluntary = forced = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            values = _status(status)
        except OSError:
            continue  # the thread has ended meanwhile
        voluntary += values.get("voluntary_ctxt_switches", 0)
        forced += values.get("nonvoluntary_ctxt_switches", 0)
    machine = [int(n) / _TICKS_PER_S for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return Usage(cpu_s, voluntary, forced, machine[3] + machine[4], sum(machine))


@dataclass(frozen=True)
class Memory:
    """Resident memory: `own` is RssAnon + RssShmem, `mapped` the file pages beside it."""

    own_mb: float
    mapped_mb: float


def memory(pid: int) -> Memory:
    """Resident memory of a process in MB (10^6 bytes)."""
    values = _status(Path(f"/proc/{pid}/status"))
    return Memory((values["RssAnon"] + values["RssShmem"]) * 1024 / 1e6, values["RssFile"] * 1024 / 1e6)


def _status(path: Path) -> dict[str, int]:
    values = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        first = rest.split()[0] if rest.split() else ""
        if first.isdigit():
            values[name] = int(first)
    return values


def machine() -> dict[str, str]:
    """The machine in words, for the report."""
    cpu = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown")
    total = next(int(l.split()[1]) for l in open("/proc/meminfo") if l.startswith("MemTotal"))
    return {
        "cpu": f"{os.cpu_count()} x {cpu}",
        "memory": f"{total * 1024 / 1e9:.0f} GB",
        "kernel": f"{os.uname().sysname} {os.uname().release}",
    }
