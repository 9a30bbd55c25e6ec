"""Rows as a table: every column of every row, and no value changed to fit."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from headgate.topology_runtime.connectors.lake.arrow_rows import table_of
from headgate.topology_runtime.errors import BadRow

NOON = datetime(2026, 11, 29, 12)


def test_columns_of_all_rows_are_there() -> None:
    rows = [{"a": 1}, {"b": "x", "a": None}, {"c": None}]
    assert table_of(rows, "t").to_pylist() == [{"a": None, "b": None, "c": None} | row for row in rows]
    assert table_of(rows, "t").schema.field("c").type == pa.string()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, pa.int64()),
        (1.0, pa.int32()),
        (1, pa.float64()),
        (1.5, pa.float32()),
        ("x", pa.large_string()),
        (b"x", pa.binary()),
        (True, pa.bool_()),
        (NOON, pa.timestamp("us")),
        (NOON.replace(tzinfo=UTC), pa.timestamp("us", "UTC")),
        (date(2026, 1, 1), pa.date32()),
        ([1], pa.list_(pa.int32())),
        ({"x": 1}, pa.struct([("x", pa.int16())])),
        (None, pa.list_(pa.int32())),
        (None, pa.int64()),
    ],
)
def test_a_value_that_fits_is_as_it_was(value: Any, kind: Any) -> None:
    found = table_of([{"v": value}], "t", pa.schema([("v", kind), ("w", pa.int64())]))
    assert found.to_pylist() == [{"v": value, "w": None}] and found.schema.field("v").type == kind


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int64()),
        (float("nan"), pa.int64()),
        (1e300, pa.int64()),
        (2**40, pa.int32()),
        (2**70, pa.int64()),
        (2**60 + 1, pa.float64()),
        (True, pa.int64()),
        (1, pa.bool_()),
        ("7", pa.int64()),
        (7, pa.string()),
        ("2026-01-01", pa.date32()),
        (b"\xff", pa.string()),
        ([2.5], pa.list_(pa.int32())),
        (7, pa.list_(pa.int32())),
        (1, pa.timestamp("us")),
        ("x", pa.binary()),
        ({1, 2}, pa.string()),
    ],
)
def test_a_value_that_does_not_fit_is_refused(value: Any, kind: Any) -> None:
    with pytest.raises(BadRow, match="'v'"):
        table_of([{"v": value}], "t", pa.schema([("v", kind)]))


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(BadRow, match="does not fit"):
        table_of([{"v": 1}, {"v": "x"}], "t")
    with pytest.raises(BadRow, match="no column for 'w'"):
        table_of([{"v": 1}, {"v": 1, "w": 2}], "t", pa.schema([("v", pa.int64())]))
