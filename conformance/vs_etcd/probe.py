"""One client among many: few puts, each sent when it is due, and what became of every one of them."""

import threading
import time
from dataclasses import dataclass

import client
import proto

_PUT = "/etcdserverpb.KV/Put"
_LAST_S_MAX = 30.0
"""How long answers are awaited once the last put was sent."""


@dataclass(frozen=True)
class Ended:
    """How a put ended, and how long that took from when it was due."""

    seconds: float
    succeeded: bool


class Probe(client.Client):
    """A connection that sends `rate` puts a second, whatever the answers do, from `run` on."""

    def __init__(self, port: int, key: bytes, rate: float):
        super().__init__(port)
        self._request = proto.put_request(key, b"v" * 16)
        self._rate = rate
        self._due: dict[int, float] = {}
        self._lock = threading.Lock()
        self._had_data: set[int] = set()
        self.ended: list[Ended] = []
        self.failed: Exception | None = None

    def run(self, seconds: float) -> None:
        """Sends for so long, and waits for the answers; `ended` has them then, and `failed` why the connection broke."""
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        began = time.monotonic()
        for number in range(int(seconds * self._rate)):
            due = began + number / self._rate
            time.sleep(max(0.0, due - time.monotonic()))
            if self.failed:
                break
            with self._lock:
                self._due[self._stream + 2] = due
                self.send(_PUT, self._request)
        until = time.monotonic() + _LAST_S_MAX
        while self._due and not self.failed and time.monotonic() < until:
            time.sleep(0.01)

    @property
    def unanswered(self) -> int:
        """How many have no answer."""
        return len(self._due)

    def _read(self) -> None:
        try:
            while True:
                kind, flags, stream, payload = self.frame()
                now = time.monotonic()
                if kind == client.GOAWAY:
                    raise client.CallFailed(f"the server ends the connection: {payload!r}")
                if kind == client.DATA and payload:
                    self._had_data.add(stream)
                if kind == client.RESET or (kind in (client.DATA, client.HEADERS) and flags & client.END_STREAM):
                    due = self._due.pop(stream)
                    self.ended.append(Ended(now - due, kind == client.HEADERS and stream in self._had_data))
                    self._had_data.discard(stream)
        except (OSError, ValueError, client.CallFailed) as why:
            self.failed = why
