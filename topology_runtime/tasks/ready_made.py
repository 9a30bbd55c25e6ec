"""Ready-made tasks that have a short name, and where their code is: for `headgate model profile NAME`."""

from __future__ import annotations

from typing import Any
from zlib import crc32

HERE = "headgate.topology_runtime.tasks"
READY_MADE = {
    "blob": f"{HERE}.service_calls:BlobDownload",
    "table": f"{HERE}.service_calls:TableQuery",
    "pi": f"{HERE}.computing:Pi",
    "xml": f"{HERE}.parsers:ParseXml",
    "file": f"{HERE}.sinks:FileWrite",
    "http": f"{HERE}.service_calls:HttpCall",
    "json": f"{HERE}.parsers:parse_json",
    "senml": f"{HERE}.parsers:parse_senml",
    "sql": f"{HERE}.service_calls:SqlQuery",
    "spin": f"{HERE}.computing:Spin",
    "wait": f"{HERE}.waiting:Wait",
}


# ── A number for any row, so that the representative tasks may stand anywhere in a topology ─────────────

SPREAD = 2_654_435_761  # Knuth's multiplier: neighbours land far apart
SPAN = 2**32


def number_of(row: Any) -> int:
    """≥ 0: the row itself, its `id` or its first value where that is a whole number, else a checksum."""
    value = row
    if type(row) is dict:
        value = row.get("id", row)
    elif type(row) in (tuple, list) and row:
        value = row[0]
    return abs(value) if type(value) is int else crc32(repr(value).encode("utf-8", "replace"))


def scattered(number: int, among: int) -> int:
    """0 … among − 1, as if at random, the same for the same number."""
    return (number * SPREAD % SPAN) * among // SPAN


# ── What the services of this machine hold, by name: how many blobs and rows there are, and how one is
# asked for

BLOBS, ROWS = 16, 20_000
ROWS_A_PARTITION = 100  # a batch of Azure's tables has at most 100 rows, all of one partition
CONTAINER, TABLE = "headgate", "headgate"

Value = int | float | str
Row = dict[str, Value]


def blob_name(number: int) -> str:
    return f"blob-{number:04d}"


def partition_of(key: int) -> str:
    return f"{key // ROWS_A_PARTITION:05d}"


def row_key(key: int) -> str:
    return f"{key:07d}"
