"""What the source and the sink of Kafka share: the options of librdkafka, and what its errors mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, ServiceAway
from headgate.topology_runtime.wording import one_line

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException

ANSWER_S = 4.0  # for one question to a broker: a call of a task has 10 s
LOOK_S = 0.25  # between two looks at what the client has to say meanwhile
LOG = {"log_level": 0, "log.connection.close": False}  # errors come by callback; its lines name no task
RECONNECT = {"reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 2000, "socket.timeout.ms": 10_000}
CREDENTIALS = {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL"}
MISSING = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"}


def faults_of(servers: Any, topic: Any, options: Any, own: Mapping[str, str]) -> list[str]:
    """What is wrong with these params. own: options that a user cannot set → what to set instead."""
    faults = []
    if not isinstance(servers, str) or not all(map(str.strip, servers.split(","))):
        faults.append("servers: text such as 'broker1:9092,broker2:9092'")
    if not isinstance(topic, str) or not topic:
        faults.append("topic: the name of one topic")
    if not isinstance(options, Mapping):
        return [*faults, "options: options of librdkafka by name"]
    for name, value in options.items():
        if name in own:
            faults.append(f"options: {name!r} is set by {own[name]}")
        elif not isinstance(value, str | int | float | bool):
            faults.append(f"options: {name!r} is of type {type(value).__name__}")
    return faults


def confluent() -> Any:
    """The package of the client. Raises InvalidInput when it is not installed."""
    return needed("confluent_kafka", "kafka")


def settings(servers: str, tls: Tls | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Of every client; what the user set comes last."""
    found: dict[str, Any] = {"bootstrap.servers": servers, **LOG, **RECONNECT}
    if tls is not None:
        found |= tls.librdkafka()
        sasl = any(name.startswith("sasl.") for name in options)
        found["security.protocol"] = "sasl_ssl" if sasl else "ssl"
    return found | dict(options)


def made(cls: Any, config: dict[str, Any]) -> Any:
    """A client. Raises InvalidInput for options that it does not take."""
    try:
        return cls(config)
    except Exception as error:  # KafkaException, ValueError or TypeError, by option
        told = error.args[0] if error.args else error
        cause = told.str() if hasattr(told, "str") else str(told)
        raise InvalidInput("the client of Kafka does not take its options", cause=one_line(cause)) from error


class ClientErrors:
    """What one client told last, by its error callback. It is called in the thread that polls."""

    def __init__(self) -> None:
        self._credentials: KafkaError | None = None
        self._last: KafkaError | None = None
        self.down = False

    def __call__(self, error: KafkaError) -> None:
        self._last = error
        if error.name() in CREDENTIALS:
            self._credentials = error
        if error.name() in CREDENTIALS | {"_ALL_BROKERS_DOWN"}:
            self.down = True

    def served(self) -> None:
        """It answers."""
        self._credentials = self._last = None
        self.down = False

    def trouble(self, where: str, error: KafkaError | None = None) -> HeadgateError:
        """Why a broker did not do what it was asked for, as far as it is known."""
        if self._credentials is not None:
            return InvalidInput(
                f"{where}: login refused",
                cause=one_line(self._credentials.str()),
                hint="look at `tls`, and at the options sasl.username and sasl.password",
            )
        error = self._last or error
        return ServiceAway(f"{where}: no broker answers", cause=one_line(error.str()) if error else None)


def topics(
    client: Any, said: ClientErrors, serve: Callable[[], object], where: str, *topic: str
) -> dict[str, Any]:
    """Of the brokers: all, or this one. serve: has the client call back. Raises why they do not answer, as soon as that
    is known."""
    end = time.monotonic() + ANSWER_S
    while True:
        try:
            found: dict[str, Any] = client.list_topics(*topic, timeout=LOOK_S).topics
            return found
        except Exception as raised:
            if not isinstance(raised, confluent().KafkaException):
                raise
            serve()
            if said.down or time.monotonic() > end:
                raise said.trouble(where, error_of(raised)) from raised


def error_of(raised: KafkaException) -> KafkaError:
    error: KafkaError = raised.args[0]
    return error


def no_topic(where: str) -> InvalidInput:
    return InvalidInput(f"{where}: there is no such topic", hint="create it, or look at its name")
