"""What a broker writes at the end of a transaction: a record that no client gives. The mock cluster writes none."""

from __future__ import annotations

import socket
import struct
import time

TRANSACTIONAL, CONTROL, COMMIT = 0x10, 0x20, 1
PRODUCE, VERSION, ANY = 0, 7, -1


def write_marker(servers: str, topic: str, partition: int = 0) -> None:
    """Behind the rows that are there."""
    record = bytes([0, 0, 0, 8, *struct.pack(">hh", 0, COMMIT), 12, *struct.pack(">hi", 0, 0), 0])
    at_ms = int(time.time() * 1000)
    head = struct.pack(">hiqqqhii", TRANSACTIONAL | CONTROL, 0, at_ms, at_ms, 77, 0, ANY, 1)
    behind = struct.pack(">ibI", 0, 2, 0) + head + bytes([2 * len(record)]) + record
    batch = struct.pack(">qi", 0, len(behind)) + behind
    request = struct.pack(">hhi", PRODUCE, VERSION, 1) + text("") + struct.pack(">hhi", ANY, ANY, 5000)
    request += struct.pack(">i", 1) + text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    host, port = servers.split(":")
    with socket.create_connection((host, int(port))) as broker:
        broker.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", broker.recv(4, socket.MSG_WAITALL))
        answer = broker.recv(size, socket.MSG_WAITALL)
    error = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)[0]
    assert error == 0, f"error {error}"


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()
