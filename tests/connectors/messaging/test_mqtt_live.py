"""MQTT as a source and a sink, on a real broker: kills of it, other clients, and what nobody would guess."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from patience import until

from headgate.topology_runtime.api.logic import Context, RowId
from headgate.topology_runtime.api.user_metrics import UserMetrics
from headgate.topology_runtime.connectors.messaging.mqtt_sink import MqttSink
from headgate.topology_runtime.connectors.messaging.mqtt_source import MqttSource
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from real_services import Certificates, Mosquitto
from real_services.service import Login

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto-clients of Debian"),
]
PATIENCE_S = 40.0


class Broker:
    """A topic of its own, and Mosquitto's own clients."""

    def __init__(self, server: Mosquitto) -> None:
        self.server, self.url = server, server.url
        self.topic = f"plant{secrets.token_hex(4)}"
        self.opened: list[Any] = []
        self.metrics = UserMetrics()

    def source(self, partition: int = 0, partitions: int = 1, **given: Any) -> Asked:
        """It has subscribed."""
        more = {"topic": f"{self.topic}/+", "client_id": self.topic, **given}
        asked = Asked(self._opened(MqttSource(self.url, **more), partition, partitions))
        assert asked.poll(0) == []
        return asked

    def sink(self, **given: Any) -> MqttSink:
        return self._opened(MqttSink(self.url, **({"topic": f"{self.topic}/out"} | given)))

    def _opened(self, made: Any, partition: int = 0, partitions: int = 1) -> Any:
        self.opened.append(made)
        made.open(Context("task", partition + 1, partition, partitions, "", self.metrics))
        return made

    def client(self, program: str) -> list[str]:
        server = self.server
        found = [program, "-h", server.host, "-p", str(server.port), "-V", "5", "-q", "1"]
        return found + (["-u", server.login.user, "-P", server.login.password] if server.login else [])

    def publish(self, lines: Sequence[bytes | str], *more: str) -> None:
        data = b"\n".join(line.encode() if isinstance(line, str) else line for line in lines) + b"\n"
        command = [*self.client("mosquitto_pub"), "-t", f"{self.topic}/in", "-l", *more]
        subprocess.run(command, input=data, check=True, timeout=PATIENCE_S)

    def numbers(self, first: int, count: int) -> None:
        self.publish([json.dumps({"n": n}) for n in range(first, first + count)])

    def subscribed(self, name: str, count: int, *more: str) -> subprocess.Popen[bytes]:
        """Mosquitto's own subscriber, with the session that `keep` made."""
        session = ["-c", "-i", f"{self.topic}{name}", "-x", "3600", "-t", f"{self.topic}/out"]
        command = [*self.client("mosquitto_sub"), *session, "-C", str(count), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    def save(self) -> None:
        """Have the broker write its sessions: for rows of who is connected it does not do so by itself."""
        file = self.server.folder / "mosquitto.db"
        before, end = file.stat().st_mtime_ns, time.monotonic() + PATIENCE_S
        os.kill(self.server.pids[0], signal.SIGUSR1)
        while file.stat().st_mtime_ns == before:
            assert time.monotonic() < end
            time.sleep(0.01)

    def keep(self, name: str) -> None:
        """From now on the broker keeps what is written, for whoever subscribes by this name."""
        session = ["-c", "-i", f"{self.topic}{name}", "-x", "3600", "-t", f"{self.topic}/out", "-E"]
        subprocess.run([*self.client("mosquitto_sub"), *session], check=True, timeout=PATIENCE_S)


@pytest.fixture
def broker(mosquitto: Mosquitto) -> Iterator[Broker]:
    found = Broker(mosquitto)
    yield found
    for one in found.opened:
        one.close()


class Asked:
    """A source as its runtime asks it; `given`: rows so far."""

    def __init__(self, source: MqttSource) -> None:
        self.source, self.given = source, 0

    def poll(self, limit: int = 100) -> list[Any]:
        rows = list(self.source.poll(limit))
        self.given += len(rows)
        return rows

    def durable(self) -> None:
        self.source.durable(self.given)

    def until(self, enough: Callable[[list[Any]], bool], confirm: bool = True) -> list[Any]:
        """What it gives; a broker that is away is asked again."""
        found: list[Any] = []
        end = time.monotonic() + PATIENCE_S
        while not enough(found):
            assert time.monotonic() < end, f"only {len(found)} rows"
            try:
                rows = self.poll()
            except ServiceAway:
                time.sleep(0.05)
                continue
            found += rows
            if confirm:
                self.durable()
            if not rows:
                time.sleep(0.005)
        return found


def of_numbers(count: int) -> Callable[[list[Any]], bool]:
    return lambda rows: len({row["n"] for row in rows if isinstance(row, dict)}) >= count


def written(sink: Any, rows: Sequence[Any], first: int = 0) -> int:
    """As its runtime would; how often the service was away."""
    away, end = 0, time.monotonic() + PATIENCE_S
    while True:
        try:
            sink.write(rows, [RowId("run", "source", 0, first + n, 0) for n in range(len(rows))])
            return away
        except ServiceAway:
            assert time.monotonic() < end
            away += 1
            time.sleep(0.05)


def test_nothing_is_missing_though_the_broker_is_killed_while_it_is_read(broker: Broker) -> None:
    threads = set(threading.enumerate())
    source = broker.source()
    broker.numbers(0, 500)
    found = source.until(of_numbers(200))
    broker.save()
    broker.server.kill()
    with pytest.raises(ServiceAway, match="no MQTT broker at"):
        while True:
            found += source.poll(1)
    broker.server.start_again()
    broker.numbers(500, 500)
    found += source.until(lambda more: of_numbers(1000)(found + more))
    assert {row["n"] for row in found} == set(range(1000))
    assert set(threading.enumerate()) <= threads


def test_rows_that_are_not_on_disk_come_again_to_the_next_worker(broker: Broker) -> None:
    first = broker.source()
    broker.numbers(0, 300)
    given = first.until(lambda rows: len(rows) >= 100, confirm=False)
    first.source.durable(40)
    first.source.close()
    broker.numbers(300, 10)
    again = {row["n"] for row in broker.source().until(of_numbers(270))}
    assert again == set(range(40, 310)) and [row["n"] for row in given[:40]] == list(range(40))


def test_threads_share_the_rows_and_one_that_died_finds_its_own(broker: Broker) -> None:
    sources = [broker.source(partition, 2) for partition in range(2)]
    sources[1].source.close()
    broker.numbers(0, 100)
    mine = sources[0].until(of_numbers(1))
    sources[1] = broker.source(1, 2)
    end = time.monotonic() + PATIENCE_S
    while not of_numbers(100)(mine):
        assert time.monotonic() < end
        for source in sources:
            mine += source.poll()
            source.durable()
    assert {row["n"] for row in mine} == set(range(100))


def test_retained_messages_are_not_given_again_and_again(broker: Broker) -> None:
    broker.publish(['{"n": -1}'], "-r")
    source = broker.source()
    broker.numbers(0, 1)
    assert source.until(lambda rows: bool(rows)) == [{"n": 0}]


def test_what_cannot_be_decoded_is_given_as_a_bad_row(broker: Broker) -> None:
    source = broker.source(with_metadata=True)
    property_ = ["-D", "publish", "user-property", "unit", "°C"]
    broker.publish([b'{"n": \xff', '{"n": 1}'], *property_)
    bad, row = source.until(lambda rows: len(rows) == 2)
    assert isinstance(bad, BadRow)
    assert row == {
        "value": {"n": 1},
        "topic": f"{broker.topic}/in",
        "qos": 1,
        "retain": False,
        "properties": {"UserProperty": [["unit", "°C"]]},
    }


def test_no_more_is_taken_at_once_than_a_worker_has_room_for(broker: Broker) -> None:
    """The broker sends all that it may without being confirmed: 256 messages, however large."""
    asked = broker.source()
    broker.publish([json.dumps({"n": n, "text": "x" * 500_000}) for n in range(60)])
    found: list[int] = []

    def more() -> bool:
        given = asked.poll(1000)
        assert len(given) <= 12
        found.extend(row["n"] for row in given)
        return len(found) == 60

    until(more, lambda: f"for 60 rows; {len(found)} came")
    assert found == list(range(60))


def test_a_session_that_the_broker_lost_is_told(service_folder: Path, capfd: Any) -> None:
    with Mosquitto(service_folder) as server:
        broker = Broker(server)
        source = broker.source()
        server.kill()
        (server.folder / "mosquitto.db").unlink(missing_ok=True)
        server.start_again()
        broker.publish(['{"n": 0}'])
        source.until(lambda _: broker.metrics.counter("sessions_lost").value > 0)
        broker.numbers(1, 1)
        assert source.until(lambda rows: bool(rows)) == [{"n": 1}]
        assert "the broker no longer has the session" in capfd.readouterr().err
        assert broker.metrics.counter("sessions_lost").value == 1
        source.source.close()


def test_two_clients_of_one_name_are_told(broker: Broker) -> None:
    source = broker.source()
    broker.source()
    with pytest.raises((InvalidInput, ServiceAway)) as closed:  # mosquitto 2.0.11 does not say why
        while True:
            source.poll()
    assert "client_id" in (closed.value.hint or "")


def test_a_wrong_password_is_named_and_not_shown(service_folder: Path) -> None:
    with Mosquitto(service_folder, login=Login("ada", "r1ght-secret")) as server:
        for make in (MqttSource(server.url, "a", client_id="a", user="ada", password="wr0ng-secret"),
                     MqttSink(server.url, "a", user="ada", password="wr0ng-secret")):  # fmt: skip
            with pytest.raises(InvalidInput, match="refuses the connection") as refused:
                make.open(Context("task", 1, 0, 1, ""))
                make.poll(1)  # type: ignore[union-attr]
            said = " ".join(refused.value.lines())
            assert "Not authorized" in said and "password" in said and "wr0ng" not in said
        source = MqttSource(server.url, "a", client_id="a", user="ada", password="r1ght-secret")
        source.open(Context("task", 1, 0, 1, ""))
        assert source.poll(1) == []
        source.close()


def test_topics_that_a_client_may_not_have_are_named(service_folder: Path) -> None:
    server = Mosquitto(service_folder)
    with server:
        server.stop()
        rights = server.write("rights", "topic read given/#\n")
        with (server.folder / "mosquitto.conf").open("a") as settings:
            settings.write(f"acl_file {rights}\n")
        server.start_again()
        broker = Broker(server)
        sink = broker.sink()
        with pytest.raises(ServiceAway, match="does not take rows") as away:
            sink.write([{"n": 1}], [RowId("run", "s", 0, 1, 0)])
        assert "Not authorized" in (away.value.cause or "")
        with pytest.raises(BadRow, match="refused"):
            broker.sink(topic="plant/{n}").write([{"n": 1}], [RowId("run", "s", 0, 1, 0)])
        for one in broker.opened:
            one.close()


def test_tls_is_spoken_and_a_stranger_is_refused(service_folder: Path, certificates: Certificates) -> None:
    with Mosquitto(service_folder, tls=certificates) as server:
        tls = {"ca": str(certificates.authority)}
        sink = MqttSink(server.url, "a/b", tls=tls)
        sink.open(Context("task", 1, 0, 1, ""))
        assert written(sink, [{"n": n} for n in range(50)]) == 0
        sink.close()
        source = MqttSource(server.url, "a/b", client_id="a", tls=tls | {"verify": "ca"})
        source.open(Context("task", 1, 0, 1, ""))
        assert source.poll(1) == []
        source.close()
        with pytest.raises(InvalidInput, match="no TLS with"):
            MqttSink(server.url, "a/b").open(Context("task", 1, 0, 1, ""))


def test_nothing_is_missing_though_the_broker_is_killed_while_rows_are_written(broker: Broker) -> None:
    threads = set(threading.enumerate())
    broker.keep("all")
    sink = broker.sink()
    written(sink, [{"n": n} for n in range(20)])
    broker.save()
    broker.server.kill()
    again = threading.Thread(target=broker.server.start_again)
    rows = [{"n": n} for n in range(20, 80)]
    with pytest.raises(ServiceAway):
        sink.write(rows, [RowId("run", "source", 0, 20 + n, 0) for n in range(60)])
    again.start()
    assert written(sink, rows, 20) >= 0
    again.join()
    written(sink, [{"n": 80}], 80)
    sink.close()
    assert set(threading.enumerate()) <= threads
    reader = broker.subscribed("all", 81)
    out, _ = reader.communicate(timeout=PATIENCE_S)
    assert {json.loads(line)["n"] for line in out.splitlines()} == set(range(81))


def test_rows_have_their_name_and_go_where_their_fields_say(broker: Broker) -> None:
    broker.keep("named")
    reader = broker.subscribed("named", 1, "-F", "%t %P %p")
    sink = broker.sink(topic=f"{broker.topic}/{{to}}")
    name = RowId("run", "source", 0, 7, 0)
    with pytest.raises(BadRow, match="cannot stand in"):
        sink.write([{"to": "a/b"}], [name])
    sink.write([{"to": "out", "n": 7}, {"to": "nobody"}], [name, name._replace(position=8)])
    out, _ = reader.communicate(timeout=PATIENCE_S)
    assert out.decode().split(maxsplit=2) == [
        f"{broker.topic}/out",
        f"headgate-id:{name}",
        '{"to":"out","n":7}\n',
    ]
