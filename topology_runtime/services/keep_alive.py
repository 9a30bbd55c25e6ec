"""One HTTP connection per thread, kept open between requests."""

from __future__ import annotations

import http.client

TIMEOUT_S = 30.0


class KeepAlive:
    """GET requests to one host. OSError when it does not answer."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S, tls: bool = False) -> None:
        kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
        self._connection = kind(host, port, timeout=timeout_s)

    def connect(self) -> None:
        self._connection.connect()

    def get(self, path: str) -> tuple[int, bytes]:
        """(status, body). A server may close an idle connection, so a kept one is tried once more."""
        kept = self._connection.sock is not None
        try:
            return self._get(path)
        except ConnectionError:
            if not kept:
                raise
            return self._get(path)

    def _get(self, path: str) -> tuple[int, bytes]:
        try:
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            self.close()
            raise
        except http.client.HTTPException as error:  # no HTTP, or a body cut short
            self.close()
            raise ConnectionError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._connection.close()
