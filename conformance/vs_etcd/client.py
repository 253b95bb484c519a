"""A gRPC client for the benchmark's own questions: one call at a time over HTTP/2, and `/metrics` over HTTP/1.1."""

import http.client
import re
import socket

import proto

DATA, HEADERS, RESET, GOAWAY = 0, 1, 3, 7
_SETTINGS, _PING, _WINDOW_UPDATE = 4, 6, 8
END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_WINDOW_MAX = (1 << 31) - 1


class CallFailed(Exception):
    """The server ended a call without a message, or closed the connection."""


class Client:
    """One connection. Usable in a `with` statement."""

    def __init__(self, port: int, timeout_s: float = 60.0):
        self.port = port
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = self._socket.makefile("rb", buffering=1 << 20)
        self._stream = -1
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        window = _frame(_SETTINGS, 0, 0, b"\0\4" + _WINDOW_MAX.to_bytes(4, "big"))
        self._socket.sendall(preface + window + _frame(_WINDOW_UPDATE, 0, 0, (_WINDOW_MAX - 65_535).to_bytes(4, "big")))

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_unused) -> None:
        self._input.close()
        self._socket.close()

    def call(self, path: str, message: bytes) -> bytes:
        """One unary call; the answer's message."""
        self.send(path, message)
        answer = self._receive(path)
        if len(answer) < 5 or int.from_bytes(answer[1:5], "big") != len(answer) - 5:
            raise CallFailed(f"{path}: the answer is an error, or not one whole message")
        return bytes(answer[5:])

    def send(self, path: str, message: bytes) -> int:
        """Begins a call, whose request is this message; the number of its stream."""
        self._stream += 2
        block = b"\x83\x86" + b"".join(
            _literal(name, value)
            for name, value in (
                (b"\x01", f"127.0.0.1:{self.port}"),
                (b"\x04", path),
                (b"\x0f\x10", "application/grpc"),
                (b"\x00\x02te", "trailers"),
            )
        )
        self._socket.sendall(
            _frame(HEADERS, _END_HEADERS, self._stream, block)
            + _frame(DATA, END_STREAM, self._stream, proto.grpc_frame(message))
        )
        return self._stream

    def frame(self) -> tuple[int, int, int, bytes]:
        """The next frame: its kind, flags, stream and payload. Settings and pings are answered."""
        head = self._input.read(9)
        if len(head) < 9:
            raise CallFailed("the server closed the connection")
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:9], "big")
        payload = self._input.read(int.from_bytes(head[:3], "big"))
        if kind == _SETTINGS and not flags & _ACK:
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._socket.sendall(_frame(_PING, _ACK, 0, payload))
        return kind, flags, stream, payload

    def _receive(self, path: str) -> bytearray:
        answer = bytearray()
        while True:
            kind, flags, stream, payload = self.frame()
            if kind == GOAWAY or (kind == RESET and stream == self._stream):
                raise CallFailed(f"{path}: the server ended the call: {payload!r}")
            if kind in (DATA, HEADERS) and stream == self._stream:
                if kind == DATA:
                    answer += payload
                    if payload:
                        self._socket.sendall(_frame(_WINDOW_UPDATE, 0, 0, len(payload).to_bytes(4, "big")))
                if flags & END_STREAM:
                    return answer

    def put(self, key: bytes, value: bytes) -> bytes:
        """KV.Put"""
        return self.call("/etcdserverpb.KV/Put", proto.put_request(key, value))

    def range(self, *arguments, **named) -> bytes:
        """KV.Range; arguments as proto.range_request."""
        return self.call("/etcdserverpb.KV/Range", proto.range_request(*arguments, **named))

    def revision(self) -> int:
        """The current revision of the store."""
        return proto.header_revision(self.range(b"\0", limit=1))


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _literal(name: bytes, value: str) -> bytes:
    """A header that the dynamic table does not keep, after its name as HPACK writes it."""
    return name + bytes((len(value),)) + value.encode()


_HANDLED = re.compile(r"^grpc_server_handled_total\{(.*)\} (\S+)$", re.MULTILINE)


def gauge(port: int, name: str) -> int | None:
    """A metric without labels; None if the server has none of this name."""
    found = re.search(rf"^{name} (\S+)$", _metrics(port), re.MULTILINE)
    return int(float(found[1])) if found else None


def _metrics(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def handled(port: int) -> dict[tuple[str, str], int]:
    """Calls the server has finished, by (method, code), from its own counters."""
    counts = {}
    for labels, count in _HANDLED.findall(_metrics(port)):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        counts[label["grpc_method"], label["grpc_code"]] = int(float(count))
    return counts
