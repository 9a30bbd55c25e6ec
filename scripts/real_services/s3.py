"""S3: moto's server (PyPI), the API of Amazon's object store."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from real_services.service import Login, Service

REQUEST = b"GET /moto-api/ HTTP/1.0\r\n\r\n"


class S3(Service):
    """In memory: after `kill` and `start_again` all buckets are gone. Takes any key and secret."""

    name = "s3"
    module = "moto.server"
    keeps_data = False
    default_login = Login("test", "test")

    def __init__(self, folder: Path, port: int = 0) -> None:
        super().__init__(folder, port)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def prepare(self) -> None:
        """It has no settings and keeps no data."""

    def environment(self) -> Mapping[str, str]:
        return {"MOTO_S3_CUSTOM_ENDPOINTS": self.url}

    def commands(self) -> Mapping[str, list[str]]:
        words = ["-P", "-m", "moto.server", "-H", self.host, "-p", str(self.port)]
        return {"s3": [sys.executable, *words]}

    def answers(self) -> bool:
        with self.connection() as server:
            server.sendall(REQUEST)
            return server.recv(64).startswith(b"HTTP/1")
