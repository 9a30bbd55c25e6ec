"""Asks a service about each event's subject: a task that waits instead of computing."""

from __future__ import annotations

import socket
import time
from time import sleep
from typing import Any, TypeVar

KEY_MOST_BYTES = 200  # the service takes lines of up to 1 KiB
PATIENCE_S = 2.0  # a service that restarts is back by then
PAUSE_S = 0.05
ANSWER_MOST_BYTES = 64


class Lookup:
    """Gives {id, weight}: what the service at `service` ("host:port", see `tasks.service`) answers.

    One connection per thread, kept open. An error closes it and is raised, so that the runtime tries
    the row again on a fresh one."""

    def __init__(self, service: str, timeout_s: float = 5.0) -> None:
        host, _, port = service.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"service: {service!r} is not host:port")
        self._address = host, int(port)
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"], "weight": self.ask(str(row["subject"]))}

    def ask(self, key: str) -> int:
        """The weight of a key. OSError or ValueError when the service does not give one."""
        line = " ".join(key.split()).encode("utf-8", "replace")[:KEY_MOST_BYTES] + b"\n"
        try:
            if self._socket is None:
                self._socket = self._connect()
            self._socket.sendall(line)
            return int(self._answer(self._socket))
        except (OSError, ValueError):
            self.close()  # the answer may still come: never read it as the next one's
            raise

    def _answer(self, connection: socket.socket) -> bytes:
        answer = b""
        while not answer.endswith(b"\n"):
            part = connection.recv(ANSWER_MOST_BYTES)
            if not part:
                raise ConnectionError("the look-up service closed the connection")
            answer += part
            if len(answer) > ANSWER_MOST_BYTES:
                raise ValueError("the look-up service sent no line")
        return answer

    def _connect(self) -> socket.socket:
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                connection = socket.create_connection(self._address, self._timeout_s)
            except ConnectionRefusedError:
                if time.monotonic() >= give_up_s:
                    raise
                time.sleep(PAUSE_S)
            else:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


# ── A task that waits: for trying out plans ─────────────────────────────────────────────────────────────

Row = TypeVar("Row")


class Wait:
    """Sleeps `ms` per row, then gives the row on."""

    def __init__(self, ms: float = 20.0) -> None:
        self._s = ms / 1000.0

    def __call__(self, row: Row) -> Row:
        sleep(self._s)
        return row
