"""A TCP relay that breaks in the ways that networks do."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from typing import Literal

Mode = Literal["open", "silent", "deaf", "refusing"]


class BrokenLine:
    """Relays one endpoint. open: all passes. silent: nothing does, either way. deaf: nothing does from who
    connected, all does back. refusing: every connection is reset. What was held back passes when it is open
    again, as TCP would do it."""

    def __init__(self, endpoint: str) -> None:
        where, _, key = endpoint.partition("#")
        self._host, _, port = where.removeprefix("tcp://").rpartition(":")
        self._port, self._mode = int(port), "open"
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._forth, self._back = asyncio.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._do(self._listen())
        self.endpoint = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}#{key}"
        self.become("open")

    def become(self, mode: Mode) -> None:
        self._do(self._become(mode))

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, what):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _become(self, mode: Mode) -> None:
        self._mode = mode
        (self._forth.set if mode == "open" else self._forth.clear)()
        (self._back.set if mode in ("open", "deaf") else self._back.clear)()
        if mode == "refusing":
            self._reset()

    async def _end(self) -> None:
        self._server.close()
        self._reset()

    def _reset(self) -> None:
        for writer in list(self._writers):
            reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "refusing":
            reset(writer)
            return
        try:
            there, on = await asyncio.open_connection(self._host, self._port)
        except ConnectionRefusedError:  # whom it leads to is away
            return reset(writer)
        self._writers |= {writer, on}
        pumps = (pump(reader, on, self._forth), pump(there, writer, self._back))
        await asyncio.gather(*pumps, return_exceptions=True)
        self._writers -= {writer, on}


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_pass: asyncio.Event) -> None:
    try:
        while data := await reader.read(65536):
            await may_pass.wait()
            writer.write(data)
            await writer.drain()
    finally:
        await may_pass.wait()
        writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Nothing where both ends had closed: its socket is gone before the relay has forgotten it."""
    sock: socket.socket = writer.get_extra_info("socket")
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
