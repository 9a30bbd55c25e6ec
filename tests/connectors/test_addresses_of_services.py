"""Addresses with a login that was written by mistake: refused, and neither the error nor what led to it shows it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from headgate.topology_runtime.connectors.databases.postgres_changes import PostgresChanges
from headgate.topology_runtime.connectors.databases.postgres_sink import PostgresSink
from headgate.topology_runtime.connectors.formats.schema_registry import SchemaRegistry
from headgate.topology_runtime.connectors.http.http_sink import HttpSink
from headgate.topology_runtime.connectors.http.web_socket_source import WebSocketSource
from headgate.topology_runtime.connectors.messaging.mqtt_sink import MqttSink
from headgate.topology_runtime.connectors.messaging.nats_sink import NatsSink
from headgate.topology_runtime.connectors.queues.amqp_source import AmqpSource
from headgate.topology_runtime.connectors.queues.redis_source import RedisSource
from headgate.topology_runtime.errors import InvalidInput

PART = "s3cret"
MADE: dict[str, Callable[[str], Any]] = {
    "postgresql": lambda url: PostgresSink(url, table="t"),
    "postgres": lambda url: PostgresChanges(url, slot="s", publication="p"),
    "mqtt": lambda url: MqttSink(url, "t"),
    "nats": lambda url: NatsSink(url, "s"),
    "redis": lambda url: RedisSource(url, "s"),
    "amqp": lambda url: AmqpSource(url, "q"),
    "ws": WebSocketSource,
    "http": HttpSink,
    "https": SchemaRegistry,
}


def refused(scheme: str, rest: str) -> None:
    with pytest.raises(InvalidInput) as found:
        MADE[scheme](rest.format(scheme))
    told = traceback.TracebackException.from_exception(found.value)
    assert PART not in " ".join(found.value.lines())
    while told is not None:
        assert PART not in str(told)
        told = told.__cause__ or (None if told.__suppress_context__ else told.__context__)  # type: ignore[assignment]


@pytest.mark.parametrize("scheme", MADE)
@pytest.mark.parametrize(
    "rest",
    [
        f"{{}}://ada:{PART}/1@host/name",  # not quoted: what stands before / is no port
        f"{{}}://ada:1\uff0f{PART}@host/name",
        f"{{}}://host:{PART}/name",
        f"{{}}:ada:{PART}@host",
        f"{{}}://[{PART}",
        f"host=host password={PART}",
    ],
)
def test_a_password_in_an_address_that_cannot_be_is_not_shown(scheme: str, rest: str) -> None:
    refused(scheme, rest)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "mqtt", "nats", "redis", "amqp"])
@pytest.mark.parametrize(
    "rest", [f"{{}}://ada:{PART}@host/name", f"{{}}://host/name?password={PART}", f"{{}}://host?x={PART}"]
)
def test_a_login_in_an_address_is_refused(scheme: str, rest: str) -> None:
    refused(scheme, rest)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada@one:5432,two:5433/shop?target_session_attrs=read-write",
        "postgres://[::1]:5432/shop",
        "postgresql:///shop",
    ],
)
def test_addresses_of_postgres_that_libpq_takes(url: str) -> None:
    assert str(PostgresSink(url, table="t").address) == url.partition("?")[0]
