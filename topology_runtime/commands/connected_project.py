"""`headgate new --source … --sink …`: a project whose rows come from one system and go to another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

TEMPLATES = files("headgate.topology_runtime.project_templates") / "connected"


class System(NamedTuple):
    """One source or sink.

    kind: its class. name: as a sentence has it. params: as the flow has them. variables: what the environment may
    say, with its default (None: it must). service: the file of `services/` that prepares and sends; compose: its
    entry there. extra: of `pip install headgate[…]`. look: a command that shows results. way: of rows to a sink.
    """

    kind: str
    name: str
    params: str
    variables: Mapping[str, str | None] = {}
    service: str = ""
    prepared: bool = False
    compose: str = ""
    extra: str = ""
    look: str = ""
    way: str = ""


KAFKA = {"KAFKA_SERVERS": "localhost:9092"}
MQTT = {"MQTT_URL": "mqtt://127.0.0.1:1883"}
NATS = {"NATS_URL": "nats://127.0.0.1:4222"}
REDIS = {"REDIS_URL": "redis://127.0.0.1:6379"}
AMQP = {"AMQP_URL": "amqp://127.0.0.1:5672", "AMQP_USER": "app", "AMQP_PASSWORD": None}
POSTGRES = {"POSTGRES_URL": "postgresql://app@127.0.0.1:5432/app", "POSTGRES_PASSWORD": None}
AMQP_LOGIN = 'user=AMQP_USER, password="${ENV:AMQP_PASSWORD}"'
SOURCES = {
    "amqp": System("AmqpSource", "a queue of RabbitMQ", f'url=AMQP_URL, queue="readings", {AMQP_LOGIN}',
                   AMQP, "amqp", True, "amqp", "amqp"),
    "folder": System("FolderSource", "files of a folder", 'folder=os.path.abspath("readings")', {}, "folder", True),
    "http": System("HttpSource", "HTTP", 'port=int(HTTP_PORT)',
                   {"HTTP_PORT": "8080"}, "http", extra="http"),
    "kafka": System("KafkaSource", "a topic of Kafka", 'servers=KAFKA_SERVERS, topic="readings", threads=4',
                    KAFKA, "kafka", True, "kafka", "kafka"),
    "mqtt": System("MqttSource", "topics of MQTT", 'url=MQTT_URL, topic="readings/+", client_id="PACKAGE"',
                   MQTT, "mqtt", False, "mqtt", "mqtt"),
    "nats": System("NatsSource", "a stream of NATS", 'url=NATS_URL, stream="readings"',
                   NATS, "nats", True, "nats", "nats"),
    "postgres": System("PostgresSource", "a table of PostgreSQL",
                       'url=POSTGRES_URL, password="${ENV:POSTGRES_PASSWORD}", table="readings", order_by="id"',
                       POSTGRES, "postgres", True, "postgres", "postgres"),
    "redis": System("RedisSource", "a stream of Redis", 'url=REDIS_URL, stream="readings"',
                    REDIS, "redis", False, "redis", "redis"),
    "tcp": System("TcpLinesSource", "lines over TCP", 'port=int(TCP_PORT)',
                  {"TCP_PORT": "9000"}, "tcp"),
}  # fmt: skip
KEY = 'key=["sensor", "minute"], newest="readings"'
SQL = "select * from means order by minute, sensor limit 10"
SINKS = {
    "amqp": System("AmqpSink", "a queue of RabbitMQ", f'url=AMQP_URL, routing_key="means", {AMQP_LOGIN}',
                   AMQP, "amqp", True, "amqp", "amqp", "docker compose -f services/compose.yaml exec rabbitmq "
                   "rabbitmqctl list_queues"),
    "duckdb": System("DuckdbSink", "DuckDB", f'path=os.path.abspath("means.duckdb"), table="means", {KEY}',
                     extra="sql", look="# after Ctrl-C, as one process at a time may open it:\n"
                     f"    python -c 'import duckdb; duckdb.connect(\"means.duckdb\").sql(\"{SQL}\").show()'",
                     way=".to_one()"),
    "folder": System("FolderSink", "a folder of JSON lines",
                     'folder=os.path.abspath("means"), batch_age_s=2.0',
                     look="head means/*.jsonl"),
    "kafka": System("KafkaSink", "a topic of Kafka", 'servers=KAFKA_SERVERS, topic="means", key="sensor"',
                    KAFKA, "kafka", True, "kafka", "kafka", "kcat -b localhost:9092 -t means -e | tail",
                    way='.by("sensor")'),
    "mqtt": System("MqttSink", "topics of MQTT", 'url=MQTT_URL, topic="means/{sensor}", retain=True',
                   MQTT, "mqtt", False, "mqtt", "mqtt", "mosquitto_sub -t 'means/+' -C 10", way='.by("sensor")'),
    "nats": System("NatsSink", "a stream of NATS", 'url=NATS_URL, subject="means.{sensor}"',
                   NATS, "nats", True, "nats", "nats", "nats stream view means", way='.by("sensor")'),
    "postgres": System("PostgresSink", "PostgreSQL",
                       f'url=POSTGRES_URL, password="${{ENV:POSTGRES_PASSWORD}}", table="means", {KEY}, create=True',
                       POSTGRES, "", False, "postgres", "postgres",
                       f'psql "postgresql://app:$POSTGRES_PASSWORD@127.0.0.1/app" -c "{SQL}"'),
    "redis": System("RedisSink", "a stream of Redis", 'url=REDIS_URL, stream="means"',
                    REDIS, "redis", False, "redis", "redis", "redis-cli xrevrange means + - count 10"),
    "sqlite": System("SqliteSink", "SQLite", f'path=os.path.abspath("means.sqlite"), table="means", {KEY}',
                     look=f'sqlite3 means.sqlite "{SQL}"'),
}  # fmt: skip


def about(source: str, sink: str) -> str:
    """In a sentence.

    >>> about("mqtt", "postgres")
    'Readings of sensors come from topics of MQTT; the mean of each sensor and minute goes to PostgreSQL.'
    """
    return (
        f"Readings of sensors come from {SOURCES[source].name}; "
        f"the mean of each sensor and minute goes to {SINKS[sink].name}."
    )


def connected_files(name: str, package: str, source: str, sink: str) -> dict[str, str]:
    """path → text of the flow, its test, README and services. source, sink: of SOURCES and SINKS."""
    read, written = SOURCES[source], SINKS[sink]
    variables = {**read.variables, **written.variables}
    words = {
        "PROJECT": name,
        "INSTALL": "headgate" + (f"[{','.join(extras)}]" if (extras := extras_of(source, sink)) else ""),
        "SOURCE_NAME": read.name,
        "SINK_NAME": written.name,
        "IMPORTS": ", ".join(sorted((read.kind, written.kind))),
        "ADDRESSES": _addresses(variables),
        "SOURCE_PARAMS": _call(read).replace("PACKAGE", package),
        "SINK_PARAMS": _call(written),
        "STORE_WAY": written.way,
        "PACKAGE": package,
        "with_SOURCE": f"with_{read.service}",
        "START": "\n".join(_start(read, written)),
        "LOOK": f"    {written.look}",
        "WHAT": _what(read, written),
        "VARIABLES": _told(variables),
    }
    made = {
        f"{package}/flow.py": _filled("flow.py.txt", words),
        "tests/test_flow.py": _filled("test_flow.py.txt", words),
        "README.md": _filled("README.md.txt", words),
        "services/send.py": _filled("services/send.py.txt", words),
    }
    for one in {read.service, written.service if written.prepared else ""} - {""}:
        made[f"services/with_{one}.py"] = _filled(f"services/{one}.py.txt", {})
    if lines := _prepared(read, written):
        made["services/prepare.py"] = lines
    if entries := sorted({read.compose, written.compose} - {""}):
        made["services/compose.yaml"] = _compose(entries)
    if "mqtt" in entries:
        made["services/mosquitto.conf"] = _filled("compose/mosquitto.conf.txt", {})
    return made


def extras_of(source: str, sink: str) -> list[str]:
    return sorted({SOURCES[source].extra, SINKS[sink].extra} - {""})


def _filled(template: str, words: dict[str, str]) -> str:
    text: Any = (TEMPLATES / template).read_text(encoding="utf-8")
    named = "|".join(rf"(?<![A-Z_]){word}\b" for word in words) or "(?!)"
    return re.sub(named, lambda at: words[at[0]], text)


def _addresses(variables: Mapping[str, str | None]) -> str:
    """Lines of the flow. Secrets are no part of them."""
    lines = [
        f'{name} = os.environ.get("{name}", "{default}")' for name, default in variables.items() if default
    ]
    return "\n".join([*lines, ""])


def _call(system: System) -> str:
    """The arguments, one a line when they are long."""
    params = f"{system.kind}, {system.params}"
    return params if len(params) < 80 else "\n    " + _broken(params) + ",\n"


def _broken(params: str) -> str:
    return re.sub(r", (?=\w+=|[A-Z]+_)", ",\n    ", params)


def _start(read: System, written: System) -> list[str]:
    lines = []
    if read.compose or written.compose:
        lines.append("docker compose -f services/compose.yaml up -d   # or servers of yours")
    if read.prepared or written.prepared:
        lines.append("python services/prepare.py           # makes what must be there, once")
    return [f"    {line}" for line in lines] or ["    # no service is needed"]


def _what(read: System, written: System) -> str:
    parts = ["containers for your machine"] if read.compose or written.compose else []
    parts += ["what must be there"] if read.prepared or written.prepared else []
    return ", ".join([*parts, "readings to try it with"])


def _prepared(read: System, written: System) -> str:
    wanted = [(one.service, name) for one, name in ((read, "readings"), (written, "means")) if one.prepared]
    if not wanted:
        return ""
    imports = "\n".join(f"import with_{service}" for service in sorted({service for service, _ in wanted}))
    calls = "\n".join(f'with_{service}.prepare("{name}")' for service, name in wanted)
    return f'"""Makes what must be there before the flow runs:  python services/prepare.py"""\n\n{imports}\n\n{calls}\n'


def _compose(entries: list[str]) -> str:
    parts = [_filled(f"compose/{entry}.yaml.txt", {}) for entry in entries]
    named = re.findall(r'"(\w+):/', "".join(parts))
    volumes = f"volumes: {{{', '.join(f'{name}: {{}}' for name in named)}}}\n" if named else ""
    return "services:\n" + "".join(parts) + volumes


def _told(variables: Mapping[str, str | None]) -> str:
    if not variables:
        return "In a notebook or a script, `flow.run(rows=20)` shows the first rows as they arrive."
    due = [f"`{name}`" for name, default in variables.items() if default is None]
    rest = [f"`{name}`" for name, default in variables.items() if default is not None]
    lines = [f"Other addresses: {', '.join(rest)}."]
    if due:
        lines.insert(0, f"Set {' and '.join(due)} in every terminal first: `export {due[0][1:-1]}=…`.")
    return "\n".join(lines)
