"""Kafka: librdkafka's mock cluster (PyPI's confluent-kafka) in a process of its own."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from pathlib import Path

from headgate.topology_runtime.errors import InvalidInput
from real_services.service import Login, Service

API_VERSIONS = struct.pack(">hhih", 18, 0, 7, -1)  # version 0, correlation 7, no client id


class Kafka(Service):
    """A cluster in memory, whose port librdkafka chooses: after `kill` and `start_again` the rows are gone
    and `address` is another one. It has no TLS, no logins, no admin calls and no true transactions."""

    name = "kafka"
    module = "confluent_kafka"
    keeps_data = False

    def __init__(self, folder: Path, port: int = 0, *, brokers: int = 1, login: Login | None = None) -> None:
        if port or login:
            raise InvalidInput("kafka: the mock cluster takes no port and no login", hint="a real broker")
        super().__init__(folder)
        self.brokers = brokers

    @property
    def url(self) -> str:
        return self.address

    @property
    def port(self) -> int:
        """Of the first broker."""
        return int(self.bootstrap.split(",")[0].rpartition(":")[2])

    @property
    def bootstrap(self) -> str:
        """All brokers, as `bootstrap.servers` takes them."""
        return (self.folder / "brokers").read_text("ascii")

    def prepare(self) -> None:
        (self.folder / "brokers").unlink(missing_ok=True)

    def commands(self) -> Mapping[str, list[str]]:
        words = ["-P", "-m", "real_services.kafka_mock", str(self.brokers), str(self.folder / "brokers")]
        return {"kafka": [sys.executable, *words]}

    def start_again(self) -> None:
        self.kill()
        self.prepare()
        super().start_again()

    def answers(self) -> bool:
        if not (self.folder / "brokers").exists():
            return False
        with self.connection() as broker:
            broker.sendall(struct.pack(">i", len(API_VERSIONS)) + API_VERSIONS)
            return broker.recv(8)[4:] == struct.pack(">i", 7)
