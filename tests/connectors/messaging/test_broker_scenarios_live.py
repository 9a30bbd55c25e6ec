"""MQTT and NATS on real brokers: the scenarios of every connector."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from service_under_test import LOGIN, OnService

from headgate.testing import SinkUnderTest, SourceUnderTest, scenarios
from headgate.topology_runtime.testing.conformance.under_test import MISSING
from real_services import Mosquitto, Nats

pytestmark = pytest.mark.live
PATIENCE_S = 60
PLACE = "headgate.topology_runtime.connectors.messaging"
Rows = Sequence[dict[str, Any]]


class Topic(OnService):
    """Rows for the session are kept by the broker before anybody reads them."""

    kind = Mosquitto

    def start(self) -> None:
        if shutil.which("mosquitto_sub") is None:
            pytest.skip("needs mosquitto-clients of Debian")
        super().start()
        subprocess.run([*self.subscriber(), "-E"], check=True, timeout=PATIENCE_S)

    def kill(self) -> None:
        """A broker that has written what it confirmed: it does not do so by itself for those who are connected."""
        file = self.service.folder / "mosquitto.db"
        before, end = file.stat().st_mtime_ns, time.monotonic() + PATIENCE_S
        os.kill(self.service.pids[0], signal.SIGUSR1)
        while file.stat().st_mtime_ns == before:
            assert time.monotonic() < end
            time.sleep(0.01)
        super().kill()

    def client(self, program: str) -> list[str]:
        login = ["-u", LOGIN.user, "-P", LOGIN.password]
        return [program, "-h", self.service.host, "-p", str(self.service.port), "-V", "5", "-q", "1", *login]

    def subscriber(self) -> list[str]:
        session = ["-c", "-i", f"{self.name}-0", "-x", "3600", "-t", f"{self.name}/+"]
        return [*self.client("mosquitto_sub"), *session]


class MqttSource(Topic, SourceUnderTest):
    connector = f"{PLACE}.mqtt_source:MqttSource"
    exactly_once = False
    flood = 1_000, 10_000

    def params(self) -> dict[str, Any]:
        return super().params() | {"client_id": self.name, "topic": f"{self.name}/+"}

    def produce(self, rows: Rows, partition: int = 0) -> None:
        self.send(b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    def send(self, lines: bytes) -> None:
        command = [*self.client("mosquitto_pub"), "-t", f"{self.name}/in", "-l"]
        subprocess.run(command, input=lines, check=True, timeout=PATIENCE_S)

    def produce_bad(self) -> None:
        self.send(b'{"n": \xff\n')


class MqttSink(Topic, SinkUnderTest):
    connector = f"{PLACE}.mqtt_sink:MqttSink"

    def start(self) -> None:
        """Mosquitto's own subscriber writes into a file."""
        super().start()
        self.seen = Path(self.folder) / "seen"
        with self.seen.open("wb") as file:
            self.reader = subprocess.Popen(self.subscriber(), stdout=file, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        if hasattr(self, "reader"):
            self.reader.kill()
            self.reader.wait()
        super().stop()

    def params(self) -> dict[str, Any]:
        return super().params() | {"topic": f"{self.name}/{{to}}"}

    def row(self, row: dict[str, Any]) -> Any:
        return row | {"to": "in"}

    def stored(self) -> list[int]:
        self.marks = getattr(self, "marks", 0) - 1
        command = [*self.client("mosquitto_pub"), "-t", f"{self.name}/in", "-m", f'{{"n": {self.marks}}}']
        marked = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 0
        end = time.monotonic() + PATIENCE_S
        while self.marks not in (found := self.numbers()) and marked:
            assert time.monotonic() < end, "the subscriber does not get what was published"
            time.sleep(0.01)
        return [number for number in found if number >= 0]

    def numbers(self) -> list[int]:
        whole, _, _ = self.seen.read_bytes().rpartition(b"\n")
        return [json.loads(line)["n"] for line in whole.splitlines()]

    def bad_row(self) -> Any:
        return {"n": 1, "to": "no/level"}


class Subject(OnService):
    kind = Nats

    def start(self) -> None:
        super().start()
        self.do(lambda streams: streams.add_stream(name=self.name, subjects=[self.name]))

    def do(self, what: Callable[[Any], Any]) -> Any:
        async def done() -> Any:
            client = Client()
            login = {"user": LOGIN.user, "password": LOGIN.password}
            await client.connect(self.service.url, allow_reconnect=False, **login)
            try:
                return await what(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(done())

    def delete(self) -> None:
        self.do(lambda streams: streams.delete_stream(self.name))


class NatsSource(Subject, SourceUnderTest):
    connector = f"{PLACE}.nats_source:NatsSource"
    flood = 2_000, 10_000

    def params(self) -> dict[str, Any]:
        return super().params() | {"stream": self.name}

    def missing(self) -> dict[str, Any]:
        return self.params() | {"stream": MISSING}

    def produce(self, rows: Rows, partition: int = 0) -> None:
        self.send([json.dumps(row).encode() for row in rows])

    def send(self, payloads: Sequence[bytes]) -> None:
        async def all_of(streams: Any) -> None:
            for first in range(0, len(payloads), 100):
                some = payloads[first : first + 100]
                await asyncio.gather(*(streams.publish(self.name, one, timeout=30) for one in some))

        self.do(all_of)

    def produce_bad(self) -> None:
        self.send([b'{"n": \xff'])

    def forget(self) -> None:
        self.do(lambda streams: streams.purge_stream(self.name))


class NatsSink(Subject, SinkUnderTest):
    connector = f"{PLACE}.nats_sink:NatsSink"
    exactly_once = True
    ordered = False

    def params(self) -> dict[str, Any]:
        return super().params() | {"subject": self.name}

    def missing(self) -> dict[str, Any]:
        return self.params() | {"subject": MISSING}

    def stored(self) -> list[int]:
        async def all_of(streams: Any) -> list[int]:
            last = (await streams.stream_info(self.name)).state.last_seq
            return [json.loads((await streams.get_msg(self.name, n)).data)["n"] for n in range(1, last + 1)]

        return list(self.do(all_of))

    def bad_row(self) -> Any:
        return {"n": 1, "text": "x" * 2_000_000}


TestMqttSource = scenarios(MqttSource)
TestMqttSink = pytest.mark.full(scenarios(MqttSink))
TestNatsSource = pytest.mark.full(scenarios(NatsSource))
TestNatsSink = pytest.mark.full(scenarios(NatsSink))
