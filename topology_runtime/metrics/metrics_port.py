"""`/metrics` of one process, in Prometheus's text form, over http or https: a thread of its own that only reads.

Whoever owns the figures swaps in a new frozen view now and then; a scrape formats the newest one, so that
nobody waits for it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import MetricsHandler
from prometheus_client.registry import Collector

from headgate.topology_runtime.errors import Unreachable
from headgate.topology_runtime.platform.http_options import MetricsAt

PATH = "/metrics"
POLL_S = 0.1  # how long closing may take
CONNECTIONS_MOST = 32
CLIENT_TIMEOUT_S = 10.0  # then whoever connected and says nothing is dropped

NOT_PLAIN = "this port speaks https only\n"
REFUSAL = (
    f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(NOT_PLAIN)}\r\n"
    f"Connection: close\r\n\r\n{NOT_PLAIN}"
).encode()  # to whoever speaks plain http

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

    def __init__(self, at: MetricsAt, handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        self._tls = _context(at)
        self.address_family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
        super().__init__((at.host, at.port), handler)

    def get_request(self) -> tuple[Any, Any]:
        """Its handshake is made in its own thread."""
        sock, peer = super().get_request()
        if self._tls is not None:
            sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return sock, peer

    def finish_request(self, request: Any, client_address: Any) -> None:
        if isinstance(request, ssl.SSLSocket) and not _shaken(request):
            return
        super().finish_request(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            if len(self._open) > CONNECTIONS_MOST:
                with contextlib.suppress(OSError):  # its thread goes on, and closes it
                    socket.socket.shutdown(
                        next(iter(self._open)), socket.SHUT_RDWR
                    )  # whatever TLS thinks of it
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            super().shutdown_request(request)


def _context(at: MetricsAt) -> ssl.SSLContext | None:
    """Raises InvalidInput."""
    if at.certificate is None:
        return None
    from headgate.topology_runtime.platform.certificates import server_context

    return server_context(at.certificate)


def _shaken(request: ssl.SSLSocket) -> bool:
    """Who does not speak TLS is told so, and whoever says nothing is left."""
    request.settimeout(CLIENT_TIMEOUT_S)
    try:
        request.do_handshake()
        return True
    except OSError as error:
        if isinstance(error, ssl.SSLError) and error.reason == "HTTP_REQUEST":
            with contextlib.suppress(OSError):
                socket.socket.sendall(request, REFUSAL)
        return False


class MetricsPort:
    """Answers there until it is closed. Raises Unreachable when it cannot listen there, InvalidInput."""

    def __init__(self, at: MetricsAt, families: Families) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Reading(families))
        try:
            self._server = _Server(at, _handler(registry))
        except (OSError, OverflowError) as error:
            raise Unreachable(
                f"metrics cannot be served on {at.host}:{at.port}",
                cause=str(error),
                hint="choose another port, or stop what uses it",
            ) from error
        host = f"[{at.host}]" if ":" in at.host else at.host
        self.address = f"{host}:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, args=[POLL_S], name="metrics", daemon=True
        ).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(MetricsHandler.factory(registry)):  # type: ignore[misc]
        timeout = CLIENT_TIMEOUT_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] == PATH:
                super().do_GET()
                return
            self.send_response(404)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.end_headers()
            self.wfile.write(f"see {PATH}\n".encode())

    return Handler
