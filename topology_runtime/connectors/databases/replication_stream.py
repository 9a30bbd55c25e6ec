"""The streaming replication protocol of PostgreSQL on psycopg's own connection. psycopg has no cursor for it, and needs
none: `psycopg.pq` sends and takes the messages of COPY, which is all that there is.

`pg_logical_slot_peek_binary_changes` through plain SQL would decode all since the oldest open transaction again at each
call, and hand over a large transaction in one answer; psycopg2 has a cursor, and is no more the client that is kept.
"""

from __future__ import annotations

import struct
import time
from typing import Any, NamedTuple

from headgate.topology_runtime.connectors.databases.pgoutput import EPOCH_S
from headgate.topology_runtime.connectors.databases.postgres_service import PostgresAddress, connected
from headgate.topology_runtime.connectors.databases.postgres_values import SESSION

_CHANGE, _ALIVE, _STATUS = struct.Struct(">cQQq"), struct.Struct(">cQqB"), struct.Struct(">cQQQqB")


class StreamEnded(Exception):
    """state: SQLSTATE, or ""."""

    def __init__(self, text: str, state: str = "") -> None:
        super().__init__(text)
        self.state = state


class Came(NamedTuple):
    """lsn: of the change, or (without data) up to where all was sent. asks: is an answer wanted?"""

    lsn: int
    data: bytes | None
    asks: bool


class ReplicationStream:
    """Of one slot, from where it was confirmed. Raises ServiceAway when there is no connection, StreamEnded for what
    the server says to the command."""

    def __init__(self, address: PostgresAddress, slot: str, publications: list[str]) -> None:
        import psycopg

        self._errors = psycopg.Error
        self._connection = connected(address, settings=SESSION, autocommit=True, replication="database")
        self._client = self._connection.pgconn
        self._socket = self._client.socket
        names = ",".join('"' + name.replace('"', '""') + '"' for name in publications).replace("'", "''")
        options = f"proto_version '1', publication_names '{names}'"
        result = self._client.exec_(f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 ({options})'.encode())
        if result.status != psycopg.pq.ExecStatus.COPY_BOTH:
            error = _ended(result)
            self.close()
            raise error

    def close(self) -> None:
        self._connection.close()

    def next(self) -> Came | None:
        """A message; None when there is none now. Raises StreamEnded."""
        try:
            size, data = self._client.get_copy_data(1)
            if size == 0:
                self._client.consume_input()
                size, data = self._client.get_copy_data(1)
            if size < 0:
                raise _ended(self._client.get_result())
        except self._errors as error:
            raise StreamEnded(str(error), getattr(error, "sqlstate", None) or "") from error
        if size == 0:
            return None
        if data[:1] == b"w":
            return Came(_CHANGE.unpack_from(data)[1], bytes(data[_CHANGE.size :]), False)
        if data[:1] == b"k":
            _, lsn, _, asks = _ALIVE.unpack_from(data)
            return Came(lsn, None, bool(asks))
        raise StreamEnded(f"a message of unknown kind {bytes(data[:1])!r}")

    def confirm(self, received: int, done: int) -> None:
        """The slot need not keep what lies before `done`. Raises StreamEnded."""
        now_us = int((time.time() - EPOCH_S) * 1e6)  # the server shows it, and goes by its own
        try:
            self._client.put_copy_data(_STATUS.pack(b"r", received, done, done, now_us, 0))
            self._client.flush()
        except self._errors as error:
            raise StreamEnded(str(error)) from error


def _ended(result: Any) -> StreamEnded:
    from psycopg.pq import DiagnosticField

    if result is None or not result.error_message:
        return StreamEnded("the server has ended the stream")
    state = result.error_field(DiagnosticField.SQLSTATE) or b""
    return StreamEnded(result.error_message.decode(errors="replace"), state.decode())
