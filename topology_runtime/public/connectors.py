"""Sources and sinks of other systems, by name: `from headgate.connectors import SqliteSink`. Each is imported on first
use."""

from __future__ import annotations

from headgate import _imported, _places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headgate.topology_runtime.connectors.databases.duckdb_sink import DuckdbSink as DuckdbSink
    from headgate.topology_runtime.connectors.databases.postgres_sink import PostgresSink as PostgresSink
    from headgate.topology_runtime.connectors.databases.sqlite_sink import SqliteSink as SqliteSink
    from headgate.topology_runtime.connectors.files import FilesSource as FilesSource
    from headgate.topology_runtime.connectors.lake.folder_sink import FolderSink as FolderSink
    from headgate.topology_runtime.connectors.queues.amqp_sink import AmqpSink as AmqpSink
    from headgate.topology_runtime.connectors.queues.amqp_source import AmqpSource as AmqpSource
    from headgate.topology_runtime.connectors.queues.redis_sink import RedisSink as RedisSink
    from headgate.topology_runtime.connectors.queues.redis_source import RedisSource as RedisSource

PLACES = (
    _places("connectors", {"files": "FilesSource"})
    | _places(
        "connectors.databases",
        {"duckdb_sink": "DuckdbSink", "postgres_sink": "PostgresSink", "sqlite_sink": "SqliteSink"},
    )
    | _places("connectors.lake", {"folder_sink": "FolderSink"})
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
