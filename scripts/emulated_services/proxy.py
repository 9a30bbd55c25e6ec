"""Stands before the services and keeps their terms: `python -P -m emulated_services.proxy ROUTE…`.

A ROUTE is JSON: `{"listen": 10000, "upstream": 21000, "terms": {"bytes_per_s": 6e7, "latency_s": 0.1}}`.
Requests are read (where one ends, the next may wait for its turn); answers are passed on as they come, in
large pieces, each after its bytes have been paid. All connections of a route share its terms.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence

import msgspec

from emulated_services.heads import (
    BACKLOG,
    END,
    HEAD_MOST_BYTES,
    PIECE_BYTES,
    RequestRefused,
    head_of,
    refusal,
)
from emulated_services.limits import Gate, Terms
from headgate.topology_runtime.services.addresses import HOST

PAUSE_S = 0.1  # before another connection is taken when one could not be


class ProxyRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ports on loopback, and the terms between them."""

    listen: int
    upstream: int
    terms: Terms


class Proxy:
    """One route."""

    def __init__(self, route: ProxyRoute) -> None:
        self._route = route
        self._gate = Gate(route.terms)

    async def serve(self, client: socket.socket) -> None:
        """One connection, until either side ends it."""
        loop = asyncio.get_running_loop()
        with client, _socket() as service:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            service.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)  # held ready for us
            try:
                await loop.sock_connect(service, (HOST, self._route.upstream))
            except OSError:
                await loop.sock_sendall(client, refusal(502))
                return
            service.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            requests = asyncio.create_task(self._requests(client, service))
            try:
                await self._answers(service, client)
            finally:
                requests.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await requests

    async def _requests(self, client: socket.socket, service: socket.socket) -> None:
        """Each request in its turn; then the service is told that no more will come."""
        how = socket.SHUT_WR
        try:
            await self._each_request(client, service)
        except RequestRefused as error:
            how = socket.SHUT_RDWR
            await asyncio.get_running_loop().sock_sendall(client, refusal(error.status))
        finally:
            with contextlib.suppress(OSError):
                service.shutdown(how)

    async def _each_request(self, client: socket.socket, service: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        data = b""
        while True:
            while (end := data.find(END)) < 0:
                if len(data) > HEAD_MOST_BYTES:
                    raise RequestRefused(431)
                more = await loop.sock_recv(client, HEAD_MOST_BYTES)
                if not more:
                    return
                data += more
            whole = end + len(END)
            left = whole + head_of(data[:whole]).body_bytes
            await self._gate.request()
            while left > len(data):
                await self._pay(service, data)
                left -= len(data)
                data = await loop.sock_recv(client, PIECE_BYTES)
                if not data:
                    return
            await self._pay(service, data[:left])
            data = data[left:]

    async def _pay(self, service: socket.socket, data: bytes) -> None:
        await self._gate.data(len(data))
        await asyncio.get_running_loop().sock_sendall(service, data)

    async def _answers(self, service: socket.socket, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        piece = memoryview(bytearray(PIECE_BYTES))
        while size := await loop.sock_recv_into(service, piece):
            await self._gate.data(size)
            await loop.sock_sendall(client, piece[:size])


def _socket() -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    return made


async def accept(route: ProxyRoute, listener: socket.socket) -> None:
    """Serve whoever connects. Where no connection can be taken (no file left, say) it says so once and
    goes on when it can."""
    proxy, loop = Proxy(route), asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()
    told = False
    while True:
        try:
            client, _ = await loop.sock_accept(listener)
        except OSError as error:
            if not told:
                print(f"port {route.listen} takes none: {error.strerror}", file=sys.stderr, flush=True)
            told = True
            await asyncio.sleep(PAUSE_S)
            continue
        told = False
        task = asyncio.create_task(_quietly(proxy, client))
        running.add(task)
        task.add_done_callback(running.discard)


async def _quietly(proxy: Proxy, client: socket.socket) -> None:
    with contextlib.suppress(OSError):  # one side left in the middle of a request
        await proxy.serve(client)


async def run(routes: Sequence[ProxyRoute]) -> None:
    """Until SIGTERM or SIGINT. OSError when a port is taken."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with contextlib.ExitStack() as listeners:
        tasks = []
        for route in routes:
            listener = listeners.enter_context(_socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, route.listen))
            listener.listen(BACKLOG)
            tasks.append(asyncio.create_task(accept(route, listener)))
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="emulated_services.proxy", description=__doc__)
    parser.add_argument("routes", nargs="+", metavar="ROUTE")
    texts = parser.parse_args().routes
    try:
        routes = [msgspec.json.decode(text, type=ProxyRoute) for text in texts]
        asyncio.run(run(routes))
    except msgspec.DecodeError as error:
        print(f"error: a route is wrong: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        ports = ", ".join(str(route.listen) for route in routes)
        print(f"error: cannot listen on {HOST} at {ports}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
