"""A server that is posted to, for tests of sinks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Target:
    """A server that notes what comes, and answers as `answers` says: (status, headers, body) of a request."""

    def __init__(self) -> None:
        self.answers: Callable[[Any, bytes], tuple[int, dict[str, str], bytes]] = lambda *_: (200, {}, b"ok")
        self.came: list[tuple[dict[str, str], bytes]] = []
        self.connections = self.now = self.most = 0
        self.lock = threading.Lock()
        target = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                target.connections += 1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with target.lock:
                    target.came.append(({k.lower(): v for k, v in self.headers.items()}, body))
                    target.now += 1
                    target.most = max(target.most, target.now)
                status, headers, said = target.answers(self, body)
                with target.lock:
                    target.now -= 1
                self.send_response(status)
                for name, value in (headers | {"Content-Length": str(len(said))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/rows?to=a"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def keys(self) -> list[str]:
        return [headers["idempotency-key"] for headers, _ in self.came]

    @property
    def rows(self) -> list[Any]:
        return [json.loads(body) for _, body in self.came]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()
