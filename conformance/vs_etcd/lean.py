"""Loads of our own generator (`cairn-bench`) and of etcd's `benchmark`, and the proof that the server did the work.

`cairn-bench` decodes every answer and compares it with what it has to be, and does not count an error as a success. `benchmark`
does not look at what it gets, so the server's own counters have to show its calls, with OK.
"""

import json
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from cluster import Cluster
from load import NotCounted, Sample, check_handled, handled
from server import Server


@dataclass(frozen=True)
class Lean:
    """`cairn-bench` with these arguments. `scale` is the flag that says how much there is to do: it is set to what fits the time
    of a run, in steps of `step`; a run of `warm_up` comes before. `unit` is how many of what is counted come of one. `fill` is
    run once, first."""

    generator: Path
    arguments: tuple[str, ...]
    scale: str = "--requests"
    unit: int = 1
    step: int = 1
    warm_up: int = 20_000
    fill: tuple[str, ...] | None = None

    def prepare(self, server: Server | Cluster) -> None:
        """Writes what the load reads."""
        if self.fill:
            _clean(_cairn_bench(self.generator, self.fill, server))

    def run(self, server: Server | Cluster, amount: int) -> Sample:
        """One run over `amount` of `scale`."""
        before = server.usage()
        said = _clean(_cairn_bench(self.generator, (*self.arguments, self.scale, str(amount)), server))
        used = server.usage().since(before)
        return _sample(said, used)

    def amount(self, sample: Sample, seconds: float) -> int:
        """How much of `scale` takes about so long, going by a sample."""
        return max(self.step, round(sample.rate * seconds / self.unit / self.step) * self.step)


@dataclass(frozen=True)
class SameOffer:
    """The same open loop against both servers: `share` of what etcd does at most. Latencies count from the time at which a request
    was due, so that a server that falls behind cannot hide it."""

    closed: Lean
    share: float = 0.7

    def most(self, server: Server | Cluster, seconds: float) -> float:
        """Requests per second in a closed loop."""
        self.closed.prepare(server)
        warm = self.closed.run(server, 20_000)
        return self.closed.run(server, self.closed.amount(warm, seconds)).rate

    def offer(self, server: Server | Cluster, rate: float, seconds: float) -> Sample:
        """A run at `rate`; the sample has its 99th percentile."""
        self.closed.prepare(server)
        arguments = (*self.closed.arguments, "--rate", f"{rate:.0f}")
        _clean(_cairn_bench(self.closed.generator, (*arguments, "--seconds", "1"), server))
        before = server.usage()
        said = _clean(_cairn_bench(self.closed.generator, (*arguments, "--seconds", str(seconds)), server))
        used = server.usage().since(before)
        return replace(_sample(said, used), p99_us=said["latency_us"]["p99"])


@dataclass(frozen=True)
class Benchmark:
    """etcd's `benchmark` as the client."""

    program: Path
    arguments: tuple[str, ...]
    connections: int
    clients: int
    method: str
    warm_up: int = 20_000

    def prepare(self, _server: Server | Cluster) -> None:
        """Nothing: the key is there."""

    def run(self, server: Server | Cluster, amount: int) -> Sample:
        """`amount` requests."""
        endpoints = ",".join(f"127.0.0.1:{port}" for port in server.ports)
        command = [str(self.program), f"--endpoints={endpoints}", f"--conns={self.connections}"]
        command += [f"--clients={self.clients}", *self.arguments, f"--total={amount}"]
        counts = handled(server.ports)
        before = server.usage()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        used = server.usage().since(before)
        found = re.search(r"Requests/sec:\s*([0-9.]+)", done.stdout)
        if done.returncode != 0 or found is None or "Error distribution" in done.stdout:
            raise NotCounted(f"benchmark ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-500:]}")
        check_handled(server.ports, counts, self.method, amount)
        return Sample(
            requests=amount,
            rate=float(found.group(1)),
            cpu_us=used.cpu_s * 1e6 / amount,
            switches=(used.switches_voluntary + used.switches_forced) / amount,
            idle_share=used.idle_share,
        )

    def amount(self, sample: Sample, seconds: float) -> int:
        """How many requests take about so long."""
        return max(1000, int(round(sample.rate * seconds, -3)))


def _cairn_bench(generator: Path, arguments: tuple[str, ...], server: Server | Cluster) -> dict:
    endpoints = ",".join(f"127.0.0.1:{port}" for port in server.ports)
    load, *flags = arguments
    command = [str(generator), load, "--endpoints", endpoints, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        raise NotCounted(f"{' '.join(command[1:])} ended with {done.returncode}: {done.stderr.strip()[-500:]}") from None


def _clean(said: dict) -> dict:
    if said["succeeded"] != said["requests"] or said["failed"] or said["wrong"]:
        what = {name: said[name] for name in ("requests", "succeeded", "failed", "errors", "wrong")}
        raise NotCounted(f"not everything was answered as it should be: {what}")
    return said


def _sample(said: dict, used) -> Sample:
    count = said["succeeded"]
    return Sample(
        requests=count,
        rate=said["rate"],
        cpu_us=used.cpu_s * 1e6 / count,
        switches=(used.switches_voluntary + used.switches_forced) / count,
        idle_share=used.idle_share,
        client_cpu_us=said["client_cpu_us"],
    )
