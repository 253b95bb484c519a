"""One server under test: started on a directory of its own, told apart from the other by nothing but its binary."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import accounting
import client

_START_S_MAX = 300.0
_QUOTA_BYTES = 8 << 30
TLS_OFFSET = 16
"""The https port of a server that has a certificate, after its plain one."""
PAGES_OFFSET = 17
"""The port of a server that serves HTTP/1.1 apart, after its plain one."""


class ServerFailed(Exception):
    """The server did not start, or ended while it was needed."""


class Server:
    """`binary` runs under the name `etcd`, with etcd's flags, whichever of the two it is. `founders` are the peer ports of the
    members it is founded with, by name: itself alone, if none are given. `joins` is for a member that was added to a running cluster of
    these; `environment` is added to that of this process."""

    def __init__(
        self,
        name: str,
        binary: Path,
        work: Path,
        port: int,
        founders: dict[str, int] | None = None,
        certificate: tuple[Path, Path] | None = None,
        joins: bool = False,
        environment: dict[str, str] | None = None,
        quota_bytes: int = _QUOTA_BYTES,
    ):
        self.name = name
        self.port = port
        self.data = work / name / "data"
        self.binary = binary
        self._certificate = certificate
        self._joins = joins
        self._environment = environment or {}
        self._quota_bytes = quota_bytes
        self._founders = founders or {name: port + 1}
        self._log_path = work / name / "log"
        self._link = work / name / "etcd"
        self._process: subprocess.Popen | None = None
        self.is_split = False
        self._link.parent.mkdir(parents=True, exist_ok=True)
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(binary.resolve())

    @property
    def ports(self) -> list[int]:
        """Where loads are sent."""
        return [self.port]

    @property
    def page_ports(self) -> list[int]:
        """Where its metrics are read: with `is_split`, HTTP/1.1 has a port of its own, and the others speak gRPC only."""
        return [self.port + PAGES_OFFSET if self.is_split else self.port]

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None or self._process.poll() is not None:
            raise ServerFailed(f"{self.name} is not running; its log: {self._log_path}")
        return self._process.pid

    def start(self, fresh: bool = False) -> float:
        """Starts the server; returns the seconds from exec to the first answered linearizable read."""
        started = self.launch(fresh)
        self.wait(started)
        return time.monotonic() - started

    def launch(self, fresh: bool = False) -> float:
        """Starts the process; returns when."""
        if fresh:
            shutil.rmtree(self.data, ignore_errors=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ETCD_")} | self._environment
        with open(self._log_path, "ab") as log:
            started = time.monotonic()
            self._process = subprocess.Popen(
                [self._link, *(f"--{flag}={value}" for flag, value in self.flags().items())],
                stdout=log,
                stderr=log,
                env=environment,
            )
        return started

    def flags(self) -> dict[str, object]:
        """What it is started with."""
        peer = f"http://127.0.0.1:{self.port + 1}"
        here = f"http://127.0.0.1:{self.port}"
        flags = {
            "name": self.name,
            "data-dir": self.data,
            "listen-client-urls": here,
            "advertise-client-urls": here,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in self._founders.items()),
            "quota-backend-bytes": self._quota_bytes,
            "log-level": "warn",
        }
        if self._joins:
            flags |= {"initial-cluster-state": "existing"}
        if self._certificate:
            cert, key = self._certificate
            secure = f"https://127.0.0.1:{self.port + TLS_OFFSET}"
            flags |= {"cert-file": cert, "key-file": key}
            flags |= {"listen-client-urls": f"{here},{secure}", "advertise-client-urls": f"{here},{secure}"}
        if self.is_split:
            flags |= {"listen-client-http-urls": f"http://127.0.0.1:{self.page_ports[0]}"}
        return flags

    def wait(self, started: float) -> None:
        """Waits for the first answered linearizable read."""
        while True:
            try:
                with client.Client(self.port, timeout_s=10) as probe:
                    probe.range(b"\0", limit=1)
                return
            except (OSError, client.CallFailed):
                if self._process.poll() is not None:
                    raise ServerFailed(f"{self.name} ended with {self._process.returncode}; see {self._log_path}")
                if time.monotonic() - started > _START_S_MAX:
                    raise ServerFailed(f"{self.name} did not answer within {_START_S_MAX:.0f} s; see {self._log_path}")
                time.sleep(0.002)

    def kill(self) -> None:
        """Ends the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Asks the server to end, as an operator would, and waits for it."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise ServerFailed(f"{self.name} did not end within 30 s of SIGTERM; see {self._log_path}")
        self._process = None

    def version(self) -> str:
        """What the binary says about itself."""
        out = subprocess.run([self._link, "--version"], capture_output=True, text=True, check=False)
        return (out.stdout.strip().splitlines() or ["unknown"])[0]

    def usage(self) -> accounting.Usage:
        """Counters of the process and the machine."""
        return accounting.usage(self.pid)

    def memory(self) -> accounting.Memory:
        """Resident memory now."""
        return accounting.memory(self.pid)
