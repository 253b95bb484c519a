"""Where a suite runs: a network of its own with nothing in it but one of the two servers, on the ports that the suite expects."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

READY = b"ready to serve client requests"
START_S_MAX = 60.0


class ServerFailed(Exception):
    """A server did not start."""


@dataclass(frozen=True)
class Place:
    """`server` is `etcd` or `cairn`. `programs` has it under the name `etcd`, and the genuine `etcdctl`; it is the first folder of PATH. `prepared`
    is what the suite has built, its programs in `bin`, and `scratch` an empty folder of this run."""

    server: str
    programs: Path
    prepared: Path
    scratch: Path

    def member(
        self, *flags: str, name: str = "default", client: str = "http://localhost:2379", peer: str = "http://localhost:2380", cluster: str = ""
    ) -> subprocess.Popen:
        """Starts a member and waits until it is ready. It founds a cluster of its own unless `cluster` names the members. Later flags win. It
        ends with the place, if not before."""
        return self.members([(name, client, peer, flags)], cluster or f"{name}={peer}")[0]

    def members(self, wanted: list[tuple[str, str, str, tuple[str, ...]]], cluster: str) -> list[subprocess.Popen]:
        """Starts members, each with its name, URL for clients, URL for peers and further flags, and waits until all are ready."""
        started = [self._launch(name, client, peer, cluster, flags) for name, client, peer, flags in wanted]
        for (name, *_), process in zip(wanted, started):
            self._await(name, process)
        return started

    def _launch(self, name: str, client: str, peer: str, cluster: str, flags: tuple[str, ...]) -> subprocess.Popen:
        line = [
            "etcd",
            f"--name={name}",
            f"--data-dir={self.scratch / name}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={cluster}",
            *flags,
        ]
        with (self.scratch / f"{name}.log").open("wb") as log:
            return subprocess.Popen(line, env=self._environment({}), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _await(self, name: str, process: subprocess.Popen) -> None:
        log = self.scratch / f"{name}.log"
        end = time.monotonic() + START_S_MAX
        while READY not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > end:
                raise ServerFailed(f"member `{name}` is not ready:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.02)

    def end(self, member: subprocess.Popen) -> None:
        """Ends a member, for another one on its ports."""
        member.terminate()
        member.wait()

    def hosts(self, names: Mapping[str, str]) -> None:
        """Gives loopback addresses names, by a file that hides /etc/hosts in this place."""
        file = self.scratch / "hosts"
        file.write_text("".join(f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **names}.items()))
        subprocess.run(["mount", "--bind", file, "/etc/hosts"], check=True)

    def script(self, path: str, text: str) -> None:
        """Writes a shell script to a path that tests call. Its folder has nothing else in it in this place; outside, an empty folder stays."""
        file = Path(path)
        file.parent.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", file.parent], check=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def ctl(self, *words: str) -> str:
        """The genuine etcdctl on the member at the usual port; it must succeed."""
        line = ["etcdctl", "--endpoints=http://localhost:2379", *words]
        return subprocess.run(line, env=self._environment({}), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout

    def run(self, folder: Path, *line: str | Path, environment: Mapping[str, str] | None = None, seconds_max: float = 900) -> str:
        """Runs a command of the suite; its output, whatever it exits with. One that takes too long is killed with what it started."""
        words = [str(word) for word in line]
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=self._environment(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            output += f"\nkilled after {seconds_max:.0f} s\n".encode()
        text = output.decode(errors="replace")
        with (self.scratch / "output").open("a") as kept:
            kept.write(f"$ {' '.join(words)}\n{text}\n")
        return text

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("ETCD", "http_proxy", "https_proxy"))}
        return plain | {"PATH": f"{self.programs}:{self.prepared / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(self.scratch)} | dict(more)
