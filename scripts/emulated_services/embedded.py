"""Blobs and a table without Azure: `python -P -m emulated_services.embedded --directory D …`.

One process: `GET /headgate/blob-0003` gives a file (a `Range` is obeyed), `GET /headgate/17` a row of SQLite
as JSON, each on its own port under the same terms as the proxy's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from emulated_services.contents import COLUMNS
from emulated_services.heads import (
    BACKLOG,
    END,
    HEAD_MOST_BYTES,
    PIECE_BYTES,
    Head,
    RequestRefused,
    answer_head,
    head_of,
    range_of,
    refusal,
)
from emulated_services.limits import Gate, Terms
from emulated_services.seeding import blob_folder, table_file
from headgate.topology_runtime.services.addresses import HOST
from headgate.topology_runtime.services.names import CONTAINER, TABLE

BLOB_PATH = re.compile(rf"/{CONTAINER}/([A-Za-z0-9_-]{{1,64}})")
ROW_PATH = re.compile(rf"/{TABLE}/([0-9]{{1,12}})")
ROW = f"SELECT {', '.join(COLUMNS)} FROM rows WHERE key = ?"

Answer = Callable[[Head, asyncio.StreamWriter], Awaitable[None]]


class BlobFiles:
    """Blobs: the files of a folder."""

    def __init__(self, folder: Path, gate: Gate) -> None:
        self._folder = folder
        self._gate = gate

    async def answer(self, head: Head, writer: asyncio.StreamWriter) -> None:
        name = BLOB_PATH.fullmatch(head.path)
        try:
            file = open(self._folder / name[1], "rb") if name else None  # noqa: SIM115 – closed below
        except FileNotFoundError:
            file = None
        if file is None:
            raise RequestRefused(404)
        with file:
            size = os.fstat(file.fileno()).st_size
            part = range_of(head.fields.get("range"), size)
            first, end = part or (0, size)
            more = ["Accept-Ranges: bytes"]
            if part:
                more.append(f"Content-Range: bytes {first}-{end - 1}/{size}")
            writer.write(answer_head(206 if part else 200, end - first, "application/octet-stream", *more))
            while head.method == "GET" and first < end:
                piece = os.pread(file.fileno(), min(PIECE_BYTES, end - first), first)
                await self._gate.data(len(piece))
                writer.write(piece)
                await writer.drain()
                first += len(piece)


class Rows:
    """The table: rows of a file of SQLite by their key. sqlite3.Error when it holds no such table."""

    def __init__(self, file: Path, gate: Gate) -> None:
        self._database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        self._gate = gate
        self._row(0)

    def close(self) -> None:
        self._database.close()

    def _row(self, key: int) -> Any:
        return self._database.execute(ROW, (key,)).fetchone()

    async def answer(self, head: Head, writer: asyncio.StreamWriter) -> None:
        key = ROW_PATH.fullmatch(head.path)
        found = self._row(int(key[1])) if key else None
        if found is None:
            raise RequestRefused(404)
        body = msgspec.json.encode(dict(zip(COLUMNS, found, strict=True)))
        await self._gate.data(len(body))
        writer.write(
            answer_head(200, len(body), "application/json") + (body if head.method == "GET" else b"")
        )
        await writer.drain()


class Server:
    """Keeps connections open, one request after the other."""

    def __init__(self, answer: Answer, gate: Gate) -> None:
        self._answer = answer
        self._gate = gate

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = head_of(await reader.readuntil(END))
                await reader.readexactly(head.body_bytes)
                if head.method not in ("GET", "HEAD"):
                    raise RequestRefused(405)
                await self._gate.request()
                try:
                    await self._answer(head, writer)
                except RequestRefused as error:
                    if error.status != 404:
                        raise
                    writer.write(answer_head(404, 0))
                if head.fields.get("connection", "").lower() == "close":
                    return
        except RequestRefused as error:
            writer.write(refusal(error.status))
        except asyncio.LimitOverrunError:
            writer.write(refusal(431))
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the client left
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def run(directory: Path, blob: tuple[int, Terms], table: tuple[int, Terms]) -> None:
    """Until SIGTERM or SIGINT. OSError when a port is taken."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gates = Gate(blob[1]), Gate(table[1])
    files, rows = BlobFiles(blob_folder(directory), gates[0]), Rows(table_file(directory), gates[1])
    async with contextlib.AsyncExitStack() as servers:
        servers.callback(rows.close)
        for port, answer, gate in ((blob[0], files.answer, gates[0]), (table[0], rows.answer, gates[1])):
            server = Server(answer, gate)
            started = await asyncio.start_server(
                server.serve, HOST, port, limit=HEAD_MOST_BYTES, backlog=BACKLOG
            )
            servers.callback(started.close)
        await stop.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="emulated_services.embedded", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="with blobs/ and rows.sqlite")
    for name in ("blob", "table"):
        parser.add_argument(f"--{name}-port", type=int, required=True)
        parser.add_argument(f"--{name}-terms", default="{}", help="JSON, see limits.Terms")
    a = parser.parse_args()
    try:
        blob, table = (msgspec.json.decode(text, type=Terms) for text in (a.blob_terms, a.table_terms))
        asyncio.run(run(a.directory, (a.blob_port, blob), (a.table_port, table)))
    except msgspec.DecodeError as error:
        print(f"error: the terms are wrong: {error}", file=sys.stderr)
        return 3
    except sqlite3.Error as error:
        print(f"error: {table_file(a.directory)}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        ports = f"{a.blob_port}, {a.table_port}"
        print(f"error: cannot listen on {HOST} at {ports}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
