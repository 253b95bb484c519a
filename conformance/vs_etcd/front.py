"""A program between clients and a member: `gateway start` or `grpc-proxy start`, of either binary."""

import signal
import socket
import subprocess
import time
from pathlib import Path

import accounting
from server import ServerFailed

_START_S_MAX = 30.0


class Front:
    """`kind` is the sub-command; `name` says whose it is. Usable in a `with` statement."""

    def __init__(self, name: str, kind: str, binary: Path, work: Path, port: int, member_port: int):
        self.name, self.kind, self.port = name, kind, port
        self._log_path = work / f"{name}-{kind}.log"
        link = work / f"{name}-{kind}" / "etcd"
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(binary.resolve())
        self._command = [link, kind, "start", f"--listen-addr=127.0.0.1:{port}", f"--endpoints=127.0.0.1:{member_port}"]
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> "Front":
        with open(self._log_path, "ab") as log:
            # etcd's proxy keeps certificates where it is started.
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self._log_path.parent)
        until = time.monotonic() + _START_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                if self._process.poll() is not None or time.monotonic() > until:
                    self.__exit__()
                    raise ServerFailed(f"{self.name}'s {self.kind} does not listen; see {self._log_path}") from None
                time.sleep(0.01)

    def __exit__(self, *_unused) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def usage(self) -> accounting.Usage:
        """Counters of the process and the machine."""
        return accounting.usage(self._pid)

    def memory_mb(self) -> float:
        """Memory that the process has for itself."""
        return accounting.memory(self._pid).own_mb

    @property
    def _pid(self) -> int:
        if self._process.poll() is not None:
            raise ServerFailed(f"{self.name}'s {self.kind} has ended; see {self._log_path}")
        return self._process.pid
