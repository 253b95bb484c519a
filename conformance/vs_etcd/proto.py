"""The few protobuf messages that the benchmark sends and reads, written and taken apart by hand."""

from typing import Iterator

EVERYTHING = b"\0"


def varint(number: int) -> bytes:
    """One base-128 number."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number_field(tag: int, number: int) -> bytes:
    """A number; zero is left out, as proto3 does."""
    return varint(tag << 3) + varint(number) if number else b""


def bytes_field(tag: int, value: bytes) -> bytes:
    """A length-delimited field; empty is left out."""
    return varint(tag << 3 | 2) + varint(len(value)) + value if value else b""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (number, value) of a message; values are ints or bytes."""
    at = 0

    def take() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(message):
        key = take()
        if key & 7 == 0:
            yield key >> 3, take()
        elif key & 7 == 2:
            length = take()
            yield key >> 3, message[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {key & 7} is not expected in any answer")


def grpc_frame(message: bytes) -> bytes:
    """A message with gRPC's five bytes before it."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def put_request(key: bytes, value: bytes) -> bytes:
    """etcdserverpb.PutRequest"""
    return bytes_field(1, key) + bytes_field(2, value)


def range_request(
    key: bytes, range_end: bytes = b"", limit: int = 0, serializable: bool = False, count_only: bool = False
) -> bytes:
    """etcdserverpb.RangeRequest"""
    fields_up_to_7 = bytes_field(1, key) + bytes_field(2, range_end) + number_field(3, limit) + number_field(7, serializable)
    return fields_up_to_7 + number_field(9, count_only)


def header_revision(response: bytes) -> int:
    """The revision in the ResponseHeader (field 1 of every answer)."""
    header = dict(fields(response))[1]
    return dict(fields(header)).get(3, 0)


def put_response_bytes(examples: list[tuple[bytes, int]], first: int, last: int) -> int:
    """What the answers to the puts of revisions first..last take as gRPC frames, told from one answer of each member and how
    many it gave. They differ only in the length of the revision.
    """
    total = 0
    for example, count in examples:
        header_bytes = len(dict(fields(example))[1]) - len(varint(header_revision(example)))
        total += count * (5 + 2 + header_bytes)
    while first <= last:
        width = len(varint(first))
        until = min(last, (1 << 7 * width) - 1)
        total += (until - first + 1) * width
        first = until + 1
    return total
