"""What the source and the sink of Kafka refuse before they run."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.connectors import KafkaSink, KafkaSource
from headgate.topology_runtime.errors import InvalidInput


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InvalidInput) as found:
        KafkaSource("", "", start="yesterday", options={"enable.auto.commit": True, "sasl.password": ["x"]})
    assert [fault.partition(":")[0] for fault in found.value.faults] == [
        "servers",
        "topic",
        "options",
        "options",
        "start",
    ]
    assert "'enable.auto.commit' is set by this source" in found.value.faults[2]


@pytest.mark.parametrize("start", ["earliest", "latest", "2026-11-28", "2026-11-28T07:00:00+01:00"])
def test_a_source_begins_at_a_place_or_a_time(start: str) -> None:
    assert KafkaSource("host:1", "clicks", start=start).start == start


def test_committed_offsets_need_a_group() -> None:
    assert (
        KafkaSource("host:1", "clicks", start="committed", options={"group.id": "mine"}).start == "committed"
    )
    with pytest.raises(InvalidInput):
        KafkaSource("host:1", "clicks", start="committed")


@pytest.mark.parametrize("option", ["enable.idempotence", "acks", "transactional.id", "message.timeout.ms"])
def test_a_sink_keeps_what_its_guarantee_rests_on(option: str) -> None:
    with pytest.raises(InvalidInput) as found:
        KafkaSink("host:1", "clicks", options={option: "0"})
    assert option in found.value.faults[0]


@pytest.mark.parametrize("cls", [KafkaSource, KafkaSink])
def test_an_unknown_format_is_refused(cls: Any) -> None:
    with pytest.raises(InvalidInput, match="no format 'xml'"):
        cls("host:1", "clicks", format="xml")
    cls("host:1", "clicks", format={"format": "csv", "columns": ["id", "name"]})
