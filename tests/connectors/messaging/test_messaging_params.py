"""Params of the sources and sinks of messages, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.topology_runtime.connectors.messaging.message_params import PlaceOf
from headgate.topology_runtime.connectors.messaging.mqtt_sink import MqttSink
from headgate.topology_runtime.connectors.messaging.mqtt_source import MqttSource
from headgate.topology_runtime.connectors.messaging.nats_sink import NatsSink
from headgate.topology_runtime.connectors.messaging.nats_source import NatsSource, overlap
from headgate.topology_runtime.errors import BadRow, InvalidInput

GOOD: dict[Any, dict[str, Any]] = {
    MqttSource: {"url": "mqtt://h", "topic": "t", "client_id": "c"},
    MqttSink: {"url": "mqtt://h", "topic": "t"},
    NatsSource: {"url": "nats://h", "stream": "S"},
    NatsSink: {"url": "nats://h,nats://other", "subject": "s"},
}


@pytest.mark.parametrize(
    ("kind", "given", "fault"),
    [
        (MqttSource, {"qos": 2}, "qos"),
        (MqttSource, {"topic": "a/#/b"}, "topic"),
        (MqttSource, {"client_id": ""}, "client_id"),
        (MqttSource, {"url": "http://x"}, "url"),
        (MqttSource, {"passwort": "x"}, "passwort"),
        (MqttSink, {"topic": "a/+"}, "topic"),
        (MqttSink, {"url": "mqtt://u:s3cret@h"}, "url"),
        (NatsSource, {"stream": "a.b"}, "stream"),
        (NatsSource, {"start": "middle"}, "start"),
        (NatsSource, {"on_gap": "hope"}, "on_gap"),
        (NatsSource, {"url": "http://x"}, "url"),
        (NatsSink, {"subject": "a.*"}, "subject"),
        (NatsSink, {"subject": "a..b"}, "subject"),
        (NatsSink, {"url": "nats://u:s3cret@h"}, "url"),
        (MqttSource, {"topic": "$share/g/t"}, "topic"),
        (NatsSource, {"password": 7}, "password"),
    ],
)
def test_params_that_cannot_be_are_refused(kind: Any, given: dict[str, Any], fault: str) -> None:
    kind(**GOOD[kind])
    with pytest.raises(InvalidInput) as refused:
        kind(**(GOOD[kind] | given))
    assert refused.value.faults[0].startswith(fault) and "s3cret" not in " ".join(refused.value.lines())


@pytest.mark.parametrize("row", [{}, {"to": None}, {"to": ""}, {"to": "a/b"}, {"to": [1]}, 7])
def test_rows_that_say_no_place_are_bad(row: Any) -> None:
    place = PlaceOf("plant/{to}", lambda part: "/" not in part)
    assert place({"to": 7}) == "plant/7"
    with pytest.raises(BadRow, match="cannot stand in"):
        place(row)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.>", "a.b.c", True),
        ("*.b", "a.>", True),
        ("a", "a.>", False),
        ("a.b", "a.c", False),
        ("a.*", "a.b.c", False),
    ],
)
def test_subjects_that_both_filters_have(first: str, second: str, same: bool) -> None:
    assert overlap(first, second) is overlap(second, first) is same
