"""A port that lines are sent to."""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

from headgate.topology_runtime.api.logic import Context, LiveSource
from headgate.topology_runtime.connectors.formats.format import MOST_BYTES
from headgate.topology_runtime.connectors.formats.format_factory import open_format
from headgate.topology_runtime.connectors.http.ports import checked_port, listen, port_of
from headgate.topology_runtime.errors import BadRow, InvalidInput

CONNECTIONS_MOST = 64
READ_BYTES, CALL_BYTES = 64 * 1024, 4 << 20  # of one connection, and of one call, about


class TcpLinesSource(LiveSource[Any]):
    """Lines that clients send over TCP, each a message of `format` (with its options). Partition k listens on `port` +
    k. Nobody is asked who he is, and nothing is answered: what was sent and not read is lost with a worker. While rows
    wait, senders wait.

    A line that is no row, is longer than a row may be, or has no end is a dead letter.

    >>> source = TcpLinesSource(9000, format="csv", columns=["sensor", "value"])
    """

    def __init__(
        self,
        port: int,
        *,
        host: str = "127.0.0.1",
        format: str = "json",
        type: str | None = None,
        **options: Any,
    ) -> None:
        if faults := checked_port(port):
            raise InvalidInput("invalid TcpLinesSource", faults=faults)
        self.port, self.host = port, host
        self._format = open_format(format, type=type, **options)
        self._selector = selectors.DefaultSelector()
        self._listening: socket.socket | None = None
        self._lines: dict[socket.socket, _Lines] = {}
        self._ready: deque[bytes | BadRow] = deque()

    def open(self, context: Context) -> None:
        self.port = port_of(self.port, context)

    def poll(self, limit: int) -> Sequence[Any]:
        if self._listening is None:
            self._listening = listen(self.host, self.port)
            self._listening.setblocking(False)
            self._accepts(True)
        size = 0
        while len(self._ready) < limit and size < CALL_BYTES and (events := self._selector.select(0)):
            for key, _ in events:
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj is self._listening:
                    self._accept()
                elif len(self._ready) < limit:
                    size += self._read(key.fileobj)
        return [self._row(self._ready.popleft()) for _ in range(min(limit, len(self._ready)))]

    def close(self) -> None:
        for one in (*self._lines, *([self._listening] if self._listening is not None else [])):
            one.close()
        self._selector.close()
        self._format.close()

    def _row(self, line: bytes | BadRow) -> Any:
        if isinstance(line, BadRow):
            return line
        try:
            return self._format.decode(line)
        except BadRow as error:
            return error

    def _accepts(self, more: bool) -> None:
        assert self._listening is not None
        if more != (self._listening in self._selector.get_map()):
            if more:
                self._selector.register(self._listening, selectors.EVENT_READ)
            else:
                self._selector.unregister(self._listening)

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            client, _ = self._listening.accept()
        except (BlockingIOError, ConnectionError):  # it has gone already
            return
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._lines[client] = _Lines()
        self._selector.register(client, selectors.EVENT_READ)
        self._accepts(len(self._lines) < CONNECTIONS_MOST)

    def _read(self, client: socket.socket) -> int:
        """How many bytes came."""
        try:
            data = client.recv(READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:  # it broke
            data = b""
        lines = self._lines[client]
        if data:
            self._ready.extend(lines.of(data))
            return len(data)
        self._ready.extend(lines.end())
        self._selector.unregister(client)
        del self._lines[client]
        client.close()
        self._accepts(True)
        return 0


class _Lines:
    """Of one connection."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skipped = 0  # bytes of a line that is too long

    def of(self, data: bytes) -> list[bytes | BadRow]:
        *whole, rest = data.split(b"\n")
        found: list[bytes | BadRow] = []
        for part in whole:
            self._add(part)
            if self._skipped:
                text = f"a line of {self._skipped:,} bytes is longer than a row may be, {MOST_BYTES:,} bytes"
                found.append(BadRow(text))
            elif line := bytes(self._rest).strip(b"\r"):
                found.append(line)
            self._rest.clear()
            self._skipped = 0
        self._add(rest)
        return found

    def end(self) -> list[BadRow]:
        """The connection is over: half a line is none."""
        if not (self._rest or self._skipped):
            return []
        begins = repr(bytes(self._rest[:80]))
        return [BadRow("a connection ended in the middle of a line", cause=f"it begins {begins}")]

    def _add(self, part: bytes) -> None:
        if self._skipped or len(self._rest) + len(part) > MOST_BYTES:
            self._skipped += len(self._rest) + len(part)
            self._rest.clear()
        else:
            self._rest += part
