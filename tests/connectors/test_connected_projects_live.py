"""`headgate new --source … --sink …`: each source and sink once, over real services, read by clients of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import duckdb
import pytest
from patience import PATIENCE_S, until

from headgate.dashboards.headgate_command import main
from real_services import Kafka, Mosquitto, Nats, Postgres, RabbitMQ, Redis, Service

pytestmark = pytest.mark.live
COLUMNS = ("sensor", "minute", "readings", "mean")
ROWS = [(f"s{n % 10}", n // 60, 18 + n * 7 % 50 / 10) for n in range(1_000)]  # as the project sends them


def last_means() -> dict[tuple[str, int], tuple[int, float]]:
    """(sensor, minute) → readings and mean, by the plainest way."""
    groups: dict[tuple[str, int], list[float]] = {}
    for sensor, minute, celsius in ROWS:
        groups.setdefault((sensor, minute), []).append(celsius)
    return {key: (len(found), round(sum(found) / len(found), 2)) for key, found in groups.items()}


def newest(rows: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, float]]:
    """Of all means that were written, the last of each sensor and minute."""
    found: dict[tuple[str, int], tuple[int, float]] = {}
    for row in rows:
        key = str(row["sensor"]), int(row["minute"])
        found[key] = max(found.get(key, (0, 0.0)), (int(row["readings"]), float(row["mean"])))
    return found


class Project:
    """A project that was made here, and what runs of it."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.messages = folder, folder / "messages"
        self.environ = {**os.environ, **environ, "XDG_CACHE_HOME": str(folder / "cache")}

    def done(self, *command: str) -> str:
        ended = subprocess.run([sys.executable, *command], cwd=self.folder, env=self.environ,
                               capture_output=True, text=True, timeout=PATIENCE_S)  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    @contextmanager
    def up(self) -> Iterator[Path]:
        log = self.folder / "up.log"
        command = [sys.executable, "-m", "headgate", "up", "city.flow:flow"]
        with open(log, "wb") as file:
            process = subprocess.Popen(command, cwd=self.folder, env=self.environ, stderr=file)
        try:
            yield log
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) in (0, 130), log.read_text()


def addresses(service: Service) -> dict[str, str]:
    """What the project reads from its environment."""
    login = service.login
    return {
        "kafka": {"KAFKA_SERVERS": service.address},
        "mosquitto": {"MQTT_URL": service.url},
        "nats": {"NATS_URL": service.url},
        "redis": {"REDIS_URL": service.url},
        "rabbitmq": {"AMQP_URL": service.url, "AMQP_USER": login.user, "AMQP_PASSWORD": login.password}
        if login
        else {},
        "postgres": {"POSTGRES_URL": service.url, "POSTGRES_PASSWORD": login.password} if login else {},
    }[service.name]


# ── what other clients find in the target ────────────────────────────────────────────────────────


def shell_rows(environ: dict[str, str], code: str) -> list[dict[str, Any]]:
    """JSON lines that a bare client prints, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True,
                          text=True, timeout=PATIENCE_S)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


KAFKA = """
import os, confluent_kafka as kafka
servers = os.environ["KAFKA_SERVERS"]
reader = kafka.Consumer({"bootstrap.servers": servers, "group.id": "x", "enable.partition.eof": True})
reader.assign([kafka.TopicPartition("means", number, 0) for number in range(4)])
ended = 0
while ended < 4:
    message = reader.poll(10)
    if message.error():
        ended += 1
    else:
        print(message.value().decode())
"""
NATS = """
import asyncio, os, nats
async def read():
    client = await nats.connect(os.environ["NATS_URL"])
    stream = client.jetstream()
    for n in range((await stream.stream_info("means")).state.messages):
        print((await stream.get_msg("means", n + 1)).data.decode())
    await client.close()
asyncio.run(read())
"""
REDIS = """
import json, os, redis
for _, row in redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True).xrange("means"):
    print(json.dumps(row))
"""
AMQP = """
import os, pika
server = pika.URLParameters(os.environ["AMQP_URL"])
server.credentials = pika.PlainCredentials(os.environ["AMQP_USER"], os.environ["AMQP_PASSWORD"])
channel = pika.BlockingConnection(server).channel()
while (message := channel.basic_get("means"))[0]:
    print(message[2].decode())
"""
MQTT = """
import os, urllib.parse, paho.mqtt.client as mqtt
broker = urllib.parse.urlsplit(os.environ["MQTT_URL"])
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
client.on_connect = lambda *_: client.subscribe("means/+", qos=1)
client.on_subscribe = lambda *_: print("subscribed", flush=True)
client.on_message = lambda _, __, message: print(message.payload.decode(), flush=True)
client.connect(broker.hostname, broker.port)
client.loop_forever()
"""
POSTGRES = """
import json, os, psycopg
with psycopg.connect(os.environ["POSTGRES_URL"], password=os.environ["POSTGRES_PASSWORD"]) as database:
    if database.execute("select to_regclass('means')").fetchone()[0]:
        for row in database.execute("select sensor, minute, readings, mean from means"):
            print(json.dumps(dict(zip(("sensor", "minute", "readings", "mean"), row))))
"""
MAKE_TOPICS = """
import os, confluent_kafka as kafka
client = kafka.Producer({"bootstrap.servers": os.environ["KAFKA_SERVERS"]})
assert all(len(client.list_topics(name, 10).topics[name].partitions) for name in ("readings", "means"))
"""
CLIENTS = {"kafka": KAFKA, "nats": NATS, "redis": REDIS, "amqp": AMQP, "postgres": POSTGRES}


@contextmanager
def subscriber(project: Project) -> Iterator[None]:
    """Of MQTT: the broker keeps the last message of each topic alone, and rows of a sensor may overtake each other."""
    with open(project.messages, "wb") as file:
        process = subprocess.Popen([sys.executable, "-c", MQTT], env=project.environ, stdout=file)
    try:
        until(lambda: project.messages.read_text().startswith("subscribed"), str, process)
        yield
    finally:
        process.kill()
        process.wait()


def found_in(sink: str, project: Project) -> list[dict[str, Any]]:
    if sink == "mqtt":
        _, *lines, _ = project.messages.read_text().split("\n")
        return [json.loads(line) for line in lines]
    if sink in CLIENTS:
        return shell_rows(project.environ, CLIENTS[sink])
    if sink == "folder":
        files = (project.folder / "means").glob("*.jsonl")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]
    if sink == "duckdb":
        query = "select sensor, minute, readings, mean from means"
        with duckdb.connect(str(project.folder / "means.duckdb"), read_only=True) as file:
            return [dict(zip(COLUMNS, row, strict=True)) for row in file.execute(query).fetchall()]
    if not (project.folder / "means.sqlite").exists():
        return []
    with sqlite3.connect(project.folder / "means.sqlite") as database:
        if not database.execute("select 1 from sqlite_master where name = 'means'").fetchall():
            return []
        rows = database.execute("select sensor, minute, readings, mean from means").fetchall()
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


# ── the projects ────────────────────────────────────────────────────────────────────────────────

PAIRS = [
    ("kafka", "postgres", (Kafka, Postgres)),
    ("mqtt", "sqlite", (Mosquitto,)),
    ("tcp", "kafka", (Kafka,)),
    ("redis", "nats", (Redis, Nats)),
    ("amqp", "redis", (RabbitMQ, Redis)),
    ("http", "amqp", (RabbitMQ,)),
    ("nats", "mqtt", (Nats, Mosquitto)),
    ("folder", "folder", ()),
    ("postgres", "duckdb", (Postgres,)),
]


@pytest.fixture
def own_services(service_folder: Path) -> Iterator[Callable[[type[Service]], Service]]:
    """Fresh ones: the projects' names are always the same."""
    with ExitStack() as until_end:

        def start(kind: type[Service]) -> Service:
            if why := kind.missing():
                pytest.skip(why)
            return until_end.enter_context(kind(service_folder.parent / kind.name))

        yield start


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def said(log: Path) -> str:
    """What a run said, but for the state of each second: only the last of them."""
    lines = log.read_text().splitlines()
    return "\n".join([line for line in lines if " | " not in line] + lines[-1:])


def probed(project: Project, log: Path) -> bool:
    """A row that is no reading came through: it is a dead letter."""
    project.done("-c", "import sys; sys.path.insert(0, 'services'); import with_mqtt; "
                 "with_mqtt.send('readings', [{'sensor': 'probe'}])")  # fmt: skip
    return "KeyError" in log.read_text()


@pytest.mark.parametrize(("source", "sink", "kinds"), PAIRS, ids=[f"{a} to {b}" for a, b, _ in PAIRS])
def test_a_project_takes_what_its_service_has_to_its_sink(
    source: str,
    sink: str,
    kinds: tuple[type[Service], ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_services: Callable[[type[Service]], Service],
    free_port: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "city", "--source", source, "--sink", sink]) == 0
    environ = {"HTTP_PORT": str(free_port), "TCP_PORT": str(free_port)}
    for kind in kinds:
        environ |= addresses(own_services(kind))
    project = Project(tmp_path / "city", environ)
    if Kafka in kinds:  # the mock makes topics when they are asked for, and has no request that makes one
        project.done("-c", MAKE_TOPICS)
    elif (project.folder / "services/prepare.py").exists():
        project.done("services/prepare.py")
    with subscriber(project) if sink == "mqtt" else nullcontext(), project.up() as log:
        until(lambda: "in force" in log.read_text(), lambda: said(log))
        if source == "mqtt":  # which keeps nothing for who has not subscribed yet
            until(lambda: probed(project, log), lambda: said(log), every_s=0.2)
        project.done("services/send.py")
        wanted = last_means()
        if sink == "duckdb":  # which one process may open
            until(lambda: f"acked {len(ROWS):,} " in log.read_text(), lambda: said(log))
        else:
            until(lambda: newest(found_in(sink, project)) == wanted, lambda: said(log))
    assert newest(found_in(sink, project)) == wanted
