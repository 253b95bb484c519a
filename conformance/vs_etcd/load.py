"""One measured load against one server, and the proof that the server did the work."""

import json
import re
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import client
import proto
from cluster import Cluster
from server import TLS_OFFSET, Server


class NotCounted(Exception):
    """A run that does not count, and why."""


@dataclass(frozen=True)
class Sample:
    """What one run measured. CPU and switches are the server's, per request; `client_cpu_us` is the generator's, where it says so, and
    `p99_us` is there for open loops only."""

    requests: int
    rate: float
    cpu_us: float
    switches: float
    idle_share: float
    client_cpu_us: float | None = None
    p99_us: float | None = None

    def as_dict(self) -> dict[str, float]:
        """For the JSON file."""
        return {name: value for name, value in asdict(self).items() if value is not None}


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
    secure: bool = False

    def run(self, ports: list[int], shares: list[int]) -> Outcome:
        """Sends each port its share of the requests, over its share of the connections, all at once."""
        with tempfile.NamedTemporaryFile() as body:
            body.write(proto.grpc_frame(self.message))
            body.flush()
            commands = []
            for port, share in zip(ports, shares):
                connections = min(max(1, self.connections // len(ports)), share)
                command = ["h2load", "-n", str(share), "-c", str(connections), "-m", str(self.streams), "-t", "1"]
                command += ["-d", body.name, "-H", "content-type: application/grpc", "-H", "te: trailers"]
                origin = f"https://127.0.0.1:{port + TLS_OFFSET}" if self.secure else f"http://127.0.0.1:{port}"
                commands.append(command + [origin + self.path])
            began = time.monotonic()
            texts = _run(commands)
            seconds = time.monotonic() - began
        found = [
            (
                int(_found(r" (\d+) succeeded, 0 failed, 0 errored, 0 timeout", text)),
                float(_found(r"finished in \S+, (\S+) req/s", text)),
                int(_found(r"traffic:.*\((\d+)\) data", text)),
            )
            for text in texts
        ]
        # Several generators do not end together: what all of them did counts over the time that the last one took.
        rate = found[0][1] if len(found) == 1 else sum(shares) / seconds
        return Outcome(sum(succeeded for succeeded, _, _ in found), rate, sum(data for _, _, data in found))


@dataclass(frozen=True)
class ManyKeys:
    """`cairn-bench`: each request puts another key out of `keys`, all over the key space. Keys have 16 digits, values 256 letters."""

    generator: Path
    keys: int
    first: int = 0
    connections: int = 100
    streams: int = 10
    path: str = "/etcdserverpb.KV/Put"

    def run(self, ports: list[int], shares: list[int]) -> Outcome:
        """Sends one port its requests, the first with number `first`."""
        [port], [total] = ports, shares
        command = [self.generator, "put", "--endpoints", f"127.0.0.1:{port}", "--requests", str(total)]
        command += ["--key", "0" * 7, "--keys", str(self.keys), "--scattered", "true", "--first", str(self.first)]
        command += ["--connections", str(self.connections), "--streams", str(self.streams)]
        [text] = _run([[str(part) for part in command]])
        said = json.loads(text)
        return Outcome(said["succeeded"], said["rate"], said["data_bytes"])


def measure(server: Server | Cluster, load: SameRequest | ManyKeys, total: int) -> Sample:
    """Runs a load and checks it from three sides.

    `h2load` takes a gRPC error for a success, so its count of successes proves nothing: the revision must have
    moved by exactly the number of puts, the bytes received must be those of full answers, and the server's own
    counters must show these calls, with OK, and no other.
    """
    method = load.path.rpartition("/")[2]
    puts = total if method == "Put" else 0
    ports, pages = server.ports, server.page_ports
    shares = [total // len(ports) + (number < total % len(ports)) for number in range(len(ports))]
    examples = []
    for port, share in zip(ports, shares):
        with client.Client(port) as control:
            example = control.put(b"bench-example", b"x") if puts else control.call(load.path, load.message)
            examples.append((example, share))
    with client.Client(ports[0]) as control:
        revision = control.revision()
        counts = handled(pages)
        before = server.usage()
        outcome = load.run(ports, shares)
        used = server.usage().since(before)
        check_handled(pages, counts, method, total)
        moved = control.revision() - revision

    if outcome.succeeded != total:
        raise NotCounted(f"{outcome.succeeded} of {total} requests were answered")
    if moved != puts:
        raise NotCounted(f"the revision moved by {moved}, expected {puts}")
    if puts:
        bytes_due = proto.put_response_bytes(examples, revision + 1, revision + puts)
    else:
        bytes_due = sum(share * (5 + len(example)) for example, share in examples)
    if outcome.data_bytes != bytes_due:
        raise NotCounted(f"{outcome.data_bytes} bytes of answers, expected {bytes_due}")
    return Sample(
        requests=total,
        rate=outcome.rate,
        cpu_us=used.cpu_s * 1e6 / total,
        switches=(used.switches_voluntary + used.switches_forced) / total,
        idle_share=used.idle_share,
    )


def handled(ports: list[int]) -> Counter:
    """Calls that the servers at `ports` have finished together, by (method, code)."""
    counts = Counter()
    for port in ports:
        counts.update(client.handled(port))
    return counts


def check_handled(ports: list[int], before: Counter, method: str, total: int) -> None:
    """Fails unless exactly `total` calls of `method` have ended since `before`, all with OK."""
    for attempt in range(50):
        moved = {call: count for call, count in (handled(ports) - before).items() if count}
        if moved == {(method, "OK"): total}:
            return
        # A server may count a call a moment after its answer is out.
        time.sleep(0.02)
    raise NotCounted(f"grpc_server_handled_total moved by {moved}, expected {total} {method} with OK")


def _run(commands: list[list[str]]) -> list[str]:
    """Runs commands side by side; what each said."""
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) for command in commands]
    ended = [(process, *process.communicate()) for process in running]
    for process, said, complaint in ended:
        if process.returncode != 0:
            raise NotCounted(f"{process.args[0]} ended with {process.returncode}: {(said + complaint).strip()[-500:]}")
    return [said for _, said, _ in ended]


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise NotCounted(f"h2load did not say `{pattern}`:\n{text}")
    return match.group(1)
