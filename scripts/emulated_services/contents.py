"""What the services hold: blobs and rows made from their numbers, so that anybody can check an answer."""

from __future__ import annotations

import random

from headgate.topology_runtime.services.names import Row, Value

BLOB_BYTES = 2_000_000  # paper 0, section 5.2: a file of 2 MB
ROWS_MOST = 2_000_000  # the table of the paper

WHOLE = tuple(f"c{n:02d}" for n in range(1, 6))
REAL = tuple(f"c{n:02d}" for n in range(6, 11))
TEXT = tuple(f"c{n:02d}" for n in range(11, 21))
COLUMNS = (*WHOLE, *REAL, *TEXT)  # 5 × 4 B, 5 × 8 B, 10 × 14 B: 200 B a row


def blob_bytes(number: int, size_bytes: int = BLOB_BYTES) -> bytes:
    """The same for the same number; does not compress."""
    return random.Random(number).randbytes(size_bytes)


def values_of(key: int) -> tuple[Value, ...]:
    """The row's 20 values, in the order of `COLUMNS`."""
    whole = [key * step % 2_000_003 for step in (1, 3, 7, 31, 127)]
    real = [key / step for step in (2, 3, 7, 31, 127)]
    text = [f"{key * step % 10**14:014d}" for step in range(11, 21)]
    return (*whole, *real, *text)


def row_of(key: int) -> Row:
    return dict(zip(COLUMNS, values_of(key), strict=True))
