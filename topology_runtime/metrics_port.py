"""`/metrics` of one process, in Prometheus's text form: a thread of its own that only reads.

Whoever owns the figures swaps in a new frozen view now and then; a scrape formats the newest one, so that
nobody waits for it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from topology_runtime.errors import Unreachable

PATH = "/metrics"
POLL_S = 0.1  # how long closing may take
CONNECTIONS_MOST = 32
CLIENT_TIMEOUT_S = 10.0  # then whoever connected and says nothing is dropped

Families = Callable[[], Iterable[Metric]]


class _Reading(Collector):
    """A collector that asks for the families at each scrape."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()


class _Server(ThreadingHTTPServer):
    """A thread for each connection, of which there are so many at most: the oldest makes room."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            if len(self._open) > CONNECTIONS_MOST:
                _hang_up(next(iter(self._open)))
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            super().shutdown_request(request)


def _hang_up(sock: socket.socket) -> None:
    """Whoever waits for it goes on, and closes it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class MetricsPort:
    """Answers on host:port until it is closed. Raises Unreachable when it cannot listen there."""

    def __init__(self, host: str, port: int, families: Families) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Reading(families))
        try:
            self._server = _Server((host, port), _handler(registry))
        except (OSError, OverflowError) as error:
            raise Unreachable(
                f"metrics cannot be told on {host}:{port}",
                cause=str(error),
                hint="choose another port, or stop what uses it",
            ) from error
        self.address = f"{host}:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, args=[POLL_S], name="metrics", daemon=True
        ).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_TIMEOUT_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                return self._answer(404, "text/plain; charset=utf-8", f"see {PATH}\n".encode())
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, kind, encode(registry))

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *words: object) -> None:
            """Scrapes are not logged."""

    return Handler
