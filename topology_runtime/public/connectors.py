"""Sources and sinks of other systems, by name: `from headgate.connectors import SqliteSink`. Each is imported on first
use."""

from __future__ import annotations

from headgate import _imported, _places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headgate.topology_runtime.connectors.databases.duckdb_sink import DuckdbSink as DuckdbSink
    from headgate.topology_runtime.connectors.databases.postgres_changes import (
        PostgresChanges as PostgresChanges,
    )
    from headgate.topology_runtime.connectors.databases.postgres_sink import PostgresSink as PostgresSink
    from headgate.topology_runtime.connectors.databases.postgres_source import (
        PostgresSource as PostgresSource,
    )
    from headgate.topology_runtime.connectors.databases.sqlite_sink import SqliteSink as SqliteSink
    from headgate.topology_runtime.connectors.files import FilesSource as FilesSource
    from headgate.topology_runtime.connectors.http.http_sink import HttpSink as HttpSink
    from headgate.topology_runtime.connectors.http.http_source import HttpSource as HttpSource
    from headgate.topology_runtime.connectors.http.prometheus_sink import PrometheusSink as PrometheusSink
    from headgate.topology_runtime.connectors.http.tcp_lines_source import TcpLinesSource as TcpLinesSource
    from headgate.topology_runtime.connectors.http.web_socket_source import WebSocketSource as WebSocketSource
    from headgate.topology_runtime.connectors.lake.delta_sink import DeltaSink as DeltaSink
    from headgate.topology_runtime.connectors.lake.folder_sink import FolderSink as FolderSink
    from headgate.topology_runtime.connectors.lake.folder_source import FolderSource as FolderSource
    from headgate.topology_runtime.connectors.messaging.kafka_sink import KafkaSink as KafkaSink
    from headgate.topology_runtime.connectors.messaging.kafka_source import KafkaSource as KafkaSource
    from headgate.topology_runtime.connectors.messaging.mqtt_sink import MqttSink as MqttSink
    from headgate.topology_runtime.connectors.messaging.mqtt_source import MqttSource as MqttSource
    from headgate.topology_runtime.connectors.messaging.nats_sink import NatsSink as NatsSink
    from headgate.topology_runtime.connectors.messaging.nats_source import NatsSource as NatsSource
    from headgate.topology_runtime.connectors.queues.amqp_sink import AmqpSink as AmqpSink
    from headgate.topology_runtime.connectors.queues.amqp_source import AmqpSource as AmqpSource
    from headgate.topology_runtime.connectors.queues.redis_sink import RedisSink as RedisSink
    from headgate.topology_runtime.connectors.queues.redis_source import RedisSource as RedisSource

PLACES = (
    _places("connectors", {"files": "FilesSource"})
    | _places(
        "connectors.databases",
        {
            "duckdb_sink": "DuckdbSink",
            "postgres_changes": "PostgresChanges",
            "postgres_sink": "PostgresSink",
            "postgres_source": "PostgresSource",
            "sqlite_sink": "SqliteSink",
        },
    )
    | _places(
        "connectors.http",
        {
            "http_sink": "HttpSink",
            "http_source": "HttpSource",
            "prometheus_sink": "PrometheusSink",
            "tcp_lines_source": "TcpLinesSource",
            "web_socket_source": "WebSocketSource",
        },
    )
    | _places(
        "connectors.lake",
        {"delta_sink": "DeltaSink", "folder_sink": "FolderSink", "folder_source": "FolderSource"},
    )
    | _places(
        "connectors.messaging",
        {
            "kafka_sink": "KafkaSink",
            "kafka_source": "KafkaSource",
            "mqtt_sink": "MqttSink",
            "mqtt_source": "MqttSource",
            "nats_sink": "NatsSink",
            "nats_source": "NatsSource",
        },
    )
    | _places(
        "connectors.queues",
        {
            "amqp_sink": "AmqpSink",
            "amqp_source": "AmqpSource",
            "redis_sink": "RedisSink",
            "redis_source": "RedisSource",
        },
    )
)
__all__ = list(PLACES)


def __getattr__(name: str) -> Any:
    return _imported("headgate.connectors", PLACES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
