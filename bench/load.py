"""One measured load against one server, and the proof that the server did the work."""

import json
import re
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import client
import proto
from server import Server


class NotCounted(Exception):
    """A run that does not count, and why."""


@dataclass(frozen=True)
class Sample:
    """What one run measured. CPU and switches are the server's, per request."""

    requests: int
    rate: float
    cpu_us: float
    switches: float
    idle_share: float

    def as_dict(self) -> dict[str, float]:
        """For the JSON file."""
        return asdict(self)


@dataclass(frozen=True)
class Outcome:
    """What a generator says about its run."""

    succeeded: int
    rate: float
    data_bytes: int


@dataclass(frozen=True)
class SameRequest:
    """`h2load` sending one request again and again."""

    path: str
    message: bytes
    connections: int
    streams: int

    def run(self, server: Server, total: int) -> Outcome:
        """Sends `total` requests."""
        connections = min(self.connections, total)
        with tempfile.NamedTemporaryFile() as body:
            body.write(proto.grpc_frame(self.message))
            body.flush()
            command = ["h2load", "-n", str(total), "-c", str(connections), "-m", str(self.streams), "-t", "1"]
            command += ["-d", body.name, "-H", "content-type: application/grpc", "-H", "te: trailers"]
            text = _run(command + [f"http://127.0.0.1:{server.port}{self.path}"])
        return Outcome(
            succeeded=int(_found(r" (\d+) succeeded, 0 failed, 0 errored, 0 timeout", text)),
            rate=float(_found(r"finished in \S+, (\S+) req/s", text)),
            data_bytes=int(_found(r"traffic:.*\((\d+)\) data", text)),
        )


@dataclass(frozen=True)
class ManyKeys:
    """Our own generator: each request puts another key out of `keys`."""

    generator: Path
    keys: int
    first: int = 0
    connections: int = 100
    streams: int = 10
    path: str = "/etcdserverpb.KV/Put"

    def run(self, server: Server, total: int) -> Outcome:
        """Sends `total` requests, the first with number `first`."""
        command = [self.generator, "put", "--address", f"127.0.0.1:{server.port}", "--total", str(total)]
        command += ["--first", str(self.first), "--keys", str(self.keys)]
        command += ["--connections", str(self.connections), "--streams", str(self.streams)]
        said = json.loads(_run([str(part) for part in command]))
        return Outcome(said["requests"] - said["failed"], said["rate"], said["data_bytes"])


def measure(server: Server, load: SameRequest | ManyKeys, total: int) -> Sample:
    """Runs a load and checks it from three sides.

    The generators take a gRPC error for a success, so the count of successes proves nothing: the revision must have
    moved by exactly the number of puts, the bytes received must be those of full answers, and the server's own
    counters must show these calls, with OK, and no other.
    """
    method = load.path.rpartition("/")[2]
    puts = total if method == "Put" else 0
    with client.Client(server.port) as control:
        example = control.put(b"bench-example", b"x") if puts else control.call(load.path, load.message)
        revision = control.revision()
        handled = client.handled(server.port)
        before = server.usage()
        outcome = load.run(server, total)
        used = server.usage().since(before)
        _check_handled(server.port, handled, method, total)
        moved = control.revision() - revision

    if outcome.succeeded != total:
        raise NotCounted(f"{outcome.succeeded} of {total} requests were answered")
    if moved != puts:
        raise NotCounted(f"the revision moved by {moved}, expected {puts}")
    if puts:
        bytes_due = proto.put_response_bytes(example, revision + 1, revision + puts)
    else:
        bytes_due = total * (5 + len(example))
    if outcome.data_bytes != bytes_due:
        raise NotCounted(f"{outcome.data_bytes} bytes of answers, expected {bytes_due}")
    return Sample(
        requests=total,
        rate=outcome.rate,
        cpu_us=used.cpu_s * 1e6 / total,
        switches=(used.switches_voluntary + used.switches_forced) / total,
        idle_share=used.idle_share,
    )


def _check_handled(port: int, before: dict[tuple[str, str], int], method: str, total: int) -> None:
    for attempt in range(50):
        moved = {k: n - before.get(k, 0) for k, n in client.handled(port).items() if n != before.get(k, 0)}
        if moved == {(method, "OK"): total}:
            return
        # A server may count a call a moment after its answer is out.
        time.sleep(0.02)
    raise NotCounted(f"grpc_server_handled_total moved by {moved}, expected {total} {method} with OK")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotCounted(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise NotCounted(f"h2load did not say `{pattern}`:\n{text}")
    return match.group(1)
