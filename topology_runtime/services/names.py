"""What the services of this machine hold, by name: how many blobs and rows there are, and how one is asked for."""

from __future__ import annotations

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
