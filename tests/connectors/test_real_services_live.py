"""Each real service: a round trip with its own client, `kill -9`, started again at the same address, and what it had
confirmed is still there (or gone, for the two that keep all in memory and say so)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emulated_services.service_processes import PACKAGES
from real_services import (
    S3,
    Certificates,
    Kafka,
    Login,
    Mosquitto,
    Nats,
    Postgres,
    RabbitMQ,
    Redis,
    Service,
)

pytestmark = pytest.mark.live
PATIENCE_S = 60
ROWS = [b"row %d" % number for number in range(20)]
ADA = Login("ada", "s3cret")
Write = Callable[[Service, list[bytes]], None]
Read = Callable[[Service], list[bytes]]


# ── what the bare clients write and read; each has its own place for the rows ─────────────────────


def write_mqtt(broker: Service, rows: list[bytes]) -> None:
    """For a session that is away: a subscriber comes once, so that the broker has a queue for it."""
    with mqtt_client(broker, "reader"):
        pass
    with mqtt_client(broker, "writer") as client:
        for row in rows:
            client.publish("rows", row, qos=1).wait_for_publish(PATIENCE_S)
    # the broker writes its file a moment after the first change, and tells nobody
    file = broker.folder / "mosquitto.db"
    eventually(lambda: file.exists() and rows[-1] in file.read_bytes())


def read_mqtt(broker: Service) -> list[bytes]:
    found: list[bytes] = []
    with mqtt_client(broker, "reader", found):
        eventually(lambda: len(found) >= len(ROWS))
    return found


@contextlib.contextmanager
def mqtt_client(broker: Service, name: str, found: list[bytes] | None = None):  # type: ignore[no-untyped-def]
    from paho.mqtt.client import Client, MQTTv5
    from paho.mqtt.enums import CallbackAPIVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTv5)
    if broker.login is not None:
        client.username_pw_set(*broker.login)
    if broker.tls is not None:
        client.tls_set_context(broker.tls.client_context())
    stays = Properties(PacketTypes.CONNECT)
    stays.SessionExpiryInterval = 3600
    answers, subscribed = [], []
    client.on_connect = lambda *words: answers.append(words[3])
    client.on_subscribe = lambda *words: subscribed.append(words)
    client.on_message = lambda _, __, message: found.append(message.payload) if found is not None else None
    client.connect(broker.host, broker.port, clean_start=False, properties=stays)
    client.loop_start()
    try:
        eventually(lambda: answers)
        if answers[0].is_failure:
            raise ConnectionRefusedError(str(answers[0]))
        if name == "reader" and found is None:
            client.subscribe("rows", qos=1)
            eventually(lambda: subscribed)
        yield client
    finally:
        client.loop_stop()
        client.disconnect()


def write_redis(server: Service, rows: list[bytes]) -> None:
    with redis_client(server) as client:
        for row in rows:
            client.xadd("rows", {"row": row})


def read_redis(server: Service) -> list[bytes]:
    with redis_client(server) as client:
        return [fields[b"row"] for _, fields in client.xrange("rows")]


def redis_client(server: Service):  # type: ignore[no-untyped-def]
    from redis import Redis as Client

    more = {}
    if server.login is not None:
        more = {"username": server.login.user, "password": server.login.password}
    if server.tls is not None:
        more |= {"ssl": True, "ssl_ca_certs": str(server.tls.authority)}
        more |= {"ssl_certfile": str(server.tls.client), "ssl_keyfile": str(server.tls.client_key)}
    return Client(server.host, server.port, **more)


def write_postgres(server: Service, rows: list[bytes]) -> None:
    with postgres_client(server) as client:
        client.execute("create table rows (number serial primary key, row bytea)")
        client.cursor().executemany("insert into rows (row) values (%s)", [(row,) for row in rows])


def read_postgres(server: Service) -> list[bytes]:
    with postgres_client(server) as client:
        return [row for (row,) in client.execute("select row from rows order by number")]


def postgres_client(server: Service):  # type: ignore[no-untyped-def]
    import psycopg

    assert server.login is not None
    more = {"password": server.login.password}
    if server.tls is not None:
        more |= {"sslrootcert": str(server.tls.authority), "sslcert": str(server.tls.client)}
        more |= {"sslkey": str(server.tls.client_key)}
    return psycopg.connect(server.url, **more)


def write_amqp(broker: Service, rows: list[bytes]) -> None:
    import pika

    with amqp_client(broker) as client:
        channel = client.channel()
        channel.queue_declare("rows", durable=True)
        channel.confirm_delivery()
        for row in rows:
            channel.basic_publish("", "rows", row, pika.BasicProperties(delivery_mode=2), mandatory=True)


def read_amqp(broker: Service) -> list[bytes]:
    with amqp_client(broker) as client:
        channel = client.channel()
        return [channel.basic_get("rows", auto_ack=True)[2] for _ in ROWS]


def amqp_client(broker: Service):  # type: ignore[no-untyped-def]
    import pika

    assert broker.login is not None
    tls = None if broker.tls is None else pika.SSLOptions(broker.tls.client_context(), broker.host)
    login = pika.PlainCredentials(*broker.login)
    return pika.BlockingConnection(
        pika.ConnectionParameters(broker.host, broker.port, credentials=login, ssl_options=tls)
    )


def write_nats(server: Service, rows: list[bytes]) -> None:
    async def write() -> None:
        async with await nats_client(server) as client:
            stream = client.jetstream()
            await stream.add_stream(name="rows", subjects=["rows"])
            for row in rows:
                await stream.publish("rows", row)

    asyncio.run(write())


def read_nats(server: Service) -> list[bytes]:
    async def read() -> list[bytes]:
        async with await nats_client(server) as client:
            stream = client.jetstream()
            found = []
            for number in range(1, len(ROWS) + 1):
                found.append((await stream.get_msg("rows", number)).data)
            return found

    return asyncio.run(read())


async def nats_client(server: Service):  # type: ignore[no-untyped-def]
    import nats

    more = {}
    if server.login is not None:
        more = {"user": server.login.user, "password": server.login.password}
    if server.tls is not None:
        more["tls"] = server.tls.client_context()
    return await nats.connect(server.url, allow_reconnect=False, **more)


def write_kafka(cluster: Service, rows: list[bytes]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.address})
    for row in rows:
        producer.produce("rows", row, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def read_kafka(cluster: Service) -> list[bytes]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": "reader"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition("rows", 0), timeout=PATIENCE_S)
        consumer.assign([TopicPartition("rows", 0, OFFSET_BEGINNING)])
        return [consumer.poll(PATIENCE_S).value() for _ in range(end)]
    finally:
        consumer.close()


def write_s3(store: Service, rows: list[bytes]) -> None:
    client = s3_client(store)
    client.create_bucket(Bucket="rows")
    for number, row in enumerate(rows):
        client.put_object(Bucket="rows", Key=f"{number:04}", Body=row)


def read_s3(store: Service) -> list[bytes]:
    client = s3_client(store)
    if "rows" not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        return []
    listed = client.list_objects_v2(Bucket="rows")["Contents"]
    return [client.get_object(Bucket="rows", Key=one["Key"])["Body"].read() for one in listed]


def s3_client(store: Service):  # type: ignore[no-untyped-def]
    import boto3

    assert store.login is not None
    key, secret = store.login
    return boto3.client(
        "s3",
        endpoint_url=store.url,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name="us-east-1",
    )


CLIENTS: dict[type[Service], tuple[Write, Read]] = {
    Kafka: (write_kafka, read_kafka),
    Mosquitto: (write_mqtt, read_mqtt),
    Nats: (write_nats, read_nats),
    Postgres: (write_postgres, read_postgres),
    RabbitMQ: (write_amqp, read_amqp),
    Redis: (write_redis, read_redis),
    S3: (write_s3, read_s3),
}
EVERY = pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.name)
SECURE = pytest.mark.parametrize(
    "kind", [Mosquitto, Nats, Postgres, RabbitMQ, Redis], ids=lambda kind: kind.name
)


def eventually(true: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def started(kind: type[Service], folder: Path, **settings: object) -> Service:
    if why := kind.missing():
        pytest.skip(why)
    return kind(folder, **settings)  # type: ignore[arg-type]


# ── tests ─────────────────────────────────────────────────────────────────────────────────────────


@EVERY
def test_what_a_service_has_confirmed_is_there_after_a_kill(
    kind: type[Service], service_folder: Path
) -> None:
    write, read = CLIENTS[kind]
    with started(kind, service_folder) as service:
        before = service.address
        write(service, ROWS)
        if not kind.keeps_data:
            assert read(service) == ROWS
        service.kill()
        assert not service.pids
        service.start_again()
        assert (service.address == before) or kind is Kafka
        if kind.keeps_data:
            try:
                found = read(service)
            except Exception as error:
                if "no queue 'rows'" not in str(error):  # of RabbitMQ, after 1 of 95 kills
                    raise
                pytest.skip("the broker came back without the queue, and with it all that was in it")
            assert found == ROWS
        else:
            write(service, ROWS[:3])
            assert read(service) == ROWS[:3]
    assert not service.pids


@SECURE
def test_a_service_takes_its_login_by_tls_with_client_certificates(
    kind: type[Service], service_folder: Path, certificates: Certificates
) -> None:
    write, read = CLIENTS[kind]
    settings = {"login": ADA, "tls": certificates, "client_certificates": True}
    with started(kind, service_folder, **settings) as service:
        write(service, ROWS)
        assert read(service) == ROWS
        service.login = Login("ada", "wrong")
        with pytest.raises(Exception):  # noqa: B017 - each client has its own
            write(service, ROWS)


def test_the_command_starts_what_is_named_and_stops_exactly_that(service_folder: Path) -> None:
    def command(word: str, *names: str) -> list[dict[str, object]]:
        module = [sys.executable, "-P", "-m", "emulated_services.control", word, *names]
        env = {**os.environ, "PYTHONPATH": str(PACKAGES)}
        done = subprocess.run(
            [*module, "--folder", str(service_folder), "-o", "jsonl"], capture_output=True, text=True, env=env
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    if why := Redis.missing() or Nats.missing():
        pytest.skip(why)
    try:
        rows = command("start", "redis", "nats")
        assert [(row["service"], row["state"]) for row in rows] == [("redis", "up"), ("nats", "up")]
        again = command("start", "redis")
        assert again == rows[:1]
        ended = command("stop", "redis")
        assert [[row["pid"]] for row in ended] == [rows[0]["pids"]]
        assert command("status") == rows[1:]
    finally:
        command("stop")
    assert command("status") == []


def test_a_port_stays_reserved_while_its_service_is_down(service_folder: Path) -> None:
    with started(Redis, service_folder) as service:
        service.kill()
        with socket.socket() as other, pytest.raises(OSError):
            other.bind((service.host, service.port))
        service.start_again()
        assert read_redis(service) == []
