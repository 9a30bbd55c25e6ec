"""Samples that are written to Prometheus: what it is asked to take, on a server of our own and on the real one."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow
import pytest
from http_target import Target

from headgate.connectors import PrometheusSink
from headgate.topology_runtime.api.logic import RowId
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from real_services import Prometheus

SinkOf = Callable[..., PrometheusSink]


@pytest.fixture
def sink_of() -> Iterator[SinkOf]:
    made: list[PrometheusSink] = []

    def make(url: str, **given: Any) -> PrometheusSink:
        made.append(PrometheusSink(url, **({"metric": "celsius", "labels": ["room"]} | given)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def write(sink: PrometheusSink, *rows: Any) -> None:
    sink.write(rows, [RowId("run", "in", 0, n, 0) for n in range(len(rows))])


def row(at: Any, value: Any, room: Any = "a") -> dict[str, Any]:
    return {"time": at, "value": value, "room": room}


def parts(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message, read by hand: (number, bytes, whole number or float)."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 1:
            at += 8
            yield tag >> 3, struct.unpack("<d", data[at - 8 : at])[0]
        else:
            size = varint()
            at += size
            yield tag >> 3, data[at - size : at]


def test_a_request_has_series_in_order_and_labels_by_name(target: Target, sink_of: SinkOf) -> None:
    sink = sink_of(target.url, labels=["room", "Floor"], token="t0ken")
    noon = datetime(2026, 11, 1, 12, tzinfo=UTC)
    write(
        sink, row(noon, 2) | {"Floor": 1}, row(5.0004, 1.5) | {"Floor": 1}, row(7, 3.0, None) | {"Floor": ""}
    )
    headers, body = target.came[0]
    assert {name: headers[name] for name in ("content-encoding", "content-type", "authorization")} == {
        "content-encoding": "snappy", "content-type": "application/x-protobuf", "authorization": "Bearer t0ken",
    }  # fmt: skip
    assert headers["x-prometheus-remote-write-version"] == "0.1.0"
    found = []
    size = next(iter(parts(b"\x08" + body)))[1]  # snappy begins with how long the text is
    for _, series in parts(pyarrow.Codec("snappy").decompress(body, size, asbytes=True)):
        some = list(parts(series))
        labels = [[text.decode() for _, text in parts(one)] for number, one in some if number == 1]
        found.append((labels, [dict(parts(one)) for number, one in some if number == 2]))
    noon_ms = round(noon.timestamp() * 1000)
    assert found == [
        (
            [["Floor", "1"], ["__name__", "celsius"], ["room", "a"]],
            [{1: 1.5, 2: 5000}, {1: 2.0, 2: noon_ms}],
        ),
        ([["__name__", "celsius"]], [{1: 3.0, 2: 7000}]),
    ]


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ([1], r"^\$: expected a dict"),
        ({"time": 1, "value": 1}, r"^\$\.room: there is no such field"),
        (row(1, "1"), r"^\$\.value: expected a number, got str"),
        (row(1, True), r"^\$\.value: expected a number, got bool"),
        (row("now", 1), r"^\$\.time: expected seconds since 1970"),
        (row(float("inf"), 1), r"^\$\.time: expected seconds since 1970"),
        (row(datetime(2026, 1, 1), 1), r"^\$\.time: expected seconds since 1970"),
        (row(1, 1, ["a"]), r"^\$\.room: expected text or a number for a label, got list"),
        (row(1, 1, "\ud800"), r"^\$\.room: expected text"),
        (row(4e10, 1), r"^\$\.time: this is to come in "),
    ],
)
def test_rows_that_are_no_samples_are_bad(target: Target, sink_of: SinkOf, bad: Any, what: str) -> None:
    with pytest.raises(BadRow, match=what):
        write(sink_of(target.url), row(1, 1), bad)
    assert target.came == []


def test_one_series_has_one_value_at_a_time(target: Target, sink_of: SinkOf) -> None:
    nan = float("nan")
    write(sink_of(target.url), row(1, 1), row(1, 1.0), row(1, 2, "b"), row(2, nan), row(2, nan))
    with pytest.raises(BadRow, match=r"^\$\.value: the series has another value at this time"):
        write(sink_of(target.url), row(1, 1), row(1, 2))


@pytest.mark.parametrize(
    ("status", "said", "error"),
    [(400, b"out of order sample", BadRow), (429, b"", ServiceAway), (500, b"disk full", ServiceAway),
     (500, b"too old sample", BadRow), (404, b"", ServiceAway)],
)  # fmt: skip
def test_what_its_answers_mean(
    target: Target, sink_of: SinkOf, status: int, said: bytes, error: type[Exception]
) -> None:
    target.answers = lambda *_: (status, {"Retry-After": "0"}, said)
    with pytest.raises(error):
        write(sink_of(target.url), row(1, 1))


def test_params_that_cannot_be_are_named_together() -> None:
    with pytest.raises(InvalidInput) as refused:
        PrometheusSink("ftp://x", metric="a-b", labels=["__name__", "ok"], value="ok")
    assert len(refused.value.faults) == 4


@pytest.mark.live
def test_what_comes_again_and_late_is_there_once(prometheus: Prometheus, sink_of: SinkOf) -> None:
    now = time.time() // 1 - 100
    sink = sink_of(prometheus.url, metric="once")
    some = [row(now + n, n, room) for n in range(5) for room in "ab"]
    write(sink, *some)
    write(sink, *some)  # as after a kill
    prometheus.kill()
    with pytest.raises(ServiceAway):
        write(sink, row(now + 5, 5))
    prometheus.start_again()
    write(sink, *some, row(now + 5, 5))
    write(sink, row(now - 3600, -1))
    with pytest.raises(BadRow):
        write(sink, row(now + 5, 6))
    with pytest.raises(BadRow, match="does not take"):
        write(sink, row(now - 3 * 86400, 1))
    found = {one["metric"]["room"]: one["values"] for one in prometheus.samples("once[1d]")}
    assert found == {
        "a": [[now - 3600, "-1"], *([now + n, str(n)] for n in range(6))],
        "b": [[now + n, str(n)] for n in range(5)],
    }
