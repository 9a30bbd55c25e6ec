"""Samples that are written to Prometheus, or what takes its remote write (version 1.0)."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import pyarrow

from headgate.topology_runtime.api.logic import RowId, Sink
from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.formats.format import below, mismatch, whole_text
from headgate.topology_runtime.connectors.http.post_address import Away, PostAddress, waited
from headgate.topology_runtime.connectors.secrets import SecretText
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.wording import shown

METRIC, LABEL = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*"), re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
HEADERS = {
    "Content-Encoding": "snappy",
    "User-Agent": "headgate",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
TOO_OLD = "too old sample"
AHEAD_S = 3600.0  # so much may the clocks of samples be fast
Series = tuple[tuple[str, str], ...]  # (label, its value), by label


class PrometheusSink(Sink[Any]):
    """A row is a sample of `metric`: a dict. value: the field with the number. at: the field with its moment, a
    datetime or seconds since 1970; it is kept to the millisecond. labels: fields that are labels; None and "" are none.

    A sample that comes again changes nothing, if the service takes late ones (Prometheus: out_of_order_time_window);
    else it refuses them. 400 and other 4xx are the rows' fault; for 429 and 5xx is waited, as Retry-After says.

    >>> sink = PrometheusSink("http://localhost:9090/api/v1/write", metric="plant_celsius", labels=["room"])
    """

    reads_references = ("token",)
    batch_rows = 500

    def __init__(self, url: str, *, metric: str, value: str = "value", at: str = "time",
                 labels: Sequence[str] = (), token: str | SecretText | None = None,
                 headers: Mapping[str, str] | None = None, tls: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        faults = []
        if not isinstance(metric, str) or not METRIC.fullmatch(metric):
            faults.append(f"metric is {shown(metric)}: letters, digits, _ and : are due")
        if isinstance(labels, str) or not isinstance(labels, Sequence):
            faults.append("labels: names of fields")
            labels = ()
        faults += [
            f"label {shown(name)}: letters, digits and _ are due, and no __ ahead"
            for name in labels
            if not isinstance(name, str) or not LABEL.fullmatch(name)
        ]
        for what, name in (("value", value), ("at", at)):
            if not isinstance(name, str) or not name or name in labels:
                faults.append(f"{what}: the name of a field that is no label")
        self._to = PostAddress("PrometheusSink", url, token, headers, tls, faults)
        self._metric, self._value, self._time = metric, value, at
        self._labels = sorted({*labels, "__name__"})
        self._request = _write_request()
        self._snappy = pyarrow.Codec("snappy")

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        series: dict[Series, dict[int, float]] = {}
        latest_ms = (time.time() + AHEAD_S) * 1000
        for row in rows:
            if not isinstance(row, Mapping):
                raise mismatch("$", "a dict", row)
            at_ms, number = self._ms(row), self._number(row)
            if at_ms > latest_ms:  # from then on Prometheus would refuse all samples of now
                raise BadRow(
                    f"{below('$', self._time)}: this is to come in {at_ms / 1000 - time.time():,.0f} s"
                )
            known = series.setdefault(self._series(row), {}).setdefault(at_ms, number)
            if str(known) != str(number):  # it would confirm both, and keep one
                raise BadRow(f"{below('$', self._value)}: the series has another value at this time")
        request = self._request()
        for labels, samples in series.items():
            one = request.timeseries.add()
            for name, text in labels:
                one.labels.add(name=name, value=text)
            for at_ms, number in sorted(samples.items()):
                one.samples.add(value=number, timestamp=at_ms)
        body = self._snappy.compress(request.SerializeToString(), asbytes=True)
        with waited():
            self._post(body)

    def _post(self, body: bytes) -> None:
        try:
            self._to.post(body, self._to.headers("application/x-protobuf") | HEADERS)
        except Away as away:
            if TOO_OLD in (
                away.cause or ""
            ):  # Prometheus says so with status 500, as if it could be tried again
                raise BadRow(away.what, cause=away.cause) from away
            raise

    def close(self) -> None:
        self._to.close()

    def _series(self, row: Mapping[str, Any]) -> Series:
        found = []
        for name in self._labels:
            text = self._metric if name == "__name__" else self._text(row, name)
            if text:
                found.append((name, text))
        return tuple(found)

    def _text(self, row: Mapping[str, Any], name: str) -> str:
        value = _field(row, name)
        if value is None:
            return ""
        if not isinstance(value, str | int | float) or (isinstance(value, str) and not whole_text(value)):
            raise mismatch(below("$", name), "text or a number for a label", value)
        return str(value)

    def _number(self, row: Mapping[str, Any]) -> float:
        value = _field(row, self._value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise mismatch(below("$", self._value), "a number", value)
        return float(value)

    def _ms(self, row: Mapping[str, Any]) -> int:
        value = _field(row, self._time)
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.timestamp()
        try:
            at = (
                None if isinstance(value, bool) or not isinstance(value, int | float) else round(value * 1000)
            )
        except (ValueError, OverflowError):  # not a number, or without end
            at = None
        if at is None or not -(1 << 63) <= at < 1 << 63:
            raise mismatch(
                below("$", self._time), "seconds since 1970, or a datetime with its offset from UTC", value
            )
        return at


def _field(row: Mapping[str, Any], name: str) -> Any:
    try:
        return row[name]
    except KeyError as error:
        raise BadRow(f"{below('$', name)}: there is no such field") from error


@cache
def _write_request() -> Any:
    """prometheus.WriteRequest (remote.proto, types.proto of version 1.0), without metadata and exemplars."""
    descriptors = needed("google.protobuf.descriptor_pb2", "protobuf")
    field = descriptors.FieldDescriptorProto
    file = descriptors.FileDescriptorProto(name="remote.proto", package="prometheus", syntax="proto3")
    for message, fields in {
        "WriteRequest": (("timeseries", 1, ".prometheus.TimeSeries"),),
        "TimeSeries": (("labels", 1, ".prometheus.Label"), ("samples", 2, ".prometheus.Sample")),
        "Label": (("name", 1, field.TYPE_STRING), ("value", 2, field.TYPE_STRING)),
        "Sample": (("value", 1, field.TYPE_DOUBLE), ("timestamp", 2, field.TYPE_INT64)),
    }.items():
        made = file.message_type.add(name=message)
        for name, number, kind in fields:
            if isinstance(kind, str):
                made.field.add(name=name, number=number, type_name=kind, type=field.TYPE_MESSAGE, label=3)
            else:
                made.field.add(name=name, number=number, type=kind, label=1)
    pool = needed("google.protobuf.descriptor_pool", "protobuf").DescriptorPool()
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName("prometheus.WriteRequest")
    return needed("google.protobuf.message_factory", "protobuf").GetMessageClass(descriptor)
