"""Lets each value pass once, in a memory that does not grow: Bloom filters (B. H. Bloom, 1970)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from hashlib import blake2b
from math import ceil, log
from typing import Any

from headgate.topology_runtime.logic import Keyed

BUCKETS = 64


class DropSeen(Keyed):
    """Gives on the rows whose row[`field`] (without `field`: the row) has not been seen, and of these loses
    about `error`, which it takes for seen. `values`: how many different ones are expected.

    There is one filter per key of the in-edge, for values / `buckets` values each: let the edge's key be
    `headgate.topology_runtime.tasks.bloom_filter:bucket`; with `field` a function of yours that gives
    `bucket(row[field])`, for rows of one value must come to one filter."""

    def __init__(
        self, field: str | None = None, values: int = 100_000, error: float = 0.01, buckets: int = BUCKETS
    ) -> None:
        if values < 1 or not 0.0 < error < 1.0 or buckets < 1:
            raise ValueError("values and buckets: at least 1, error: between 0 and 1")
        self._field = field
        self._bits, self._hashes = size_of(ceil(values / buckets), error)

    def new(self, key: Hashable) -> bytearray:
        return bytearray(self._bits // 8)

    def process(self, key: Hashable, row: Any, state: bytearray) -> tuple[bytearray, Iterable[Any]]:
        value = row if self._field is None else row[self._field]
        return state, [row] if add(state, value, self._hashes) else ()

    def snapshot(self, state: bytearray) -> bytes:
        return bytes(state)

    def restore(self, saved: bytes) -> bytearray:
        return bytearray(saved)


def size_of(values: int, error: float) -> tuple[int, int]:
    """(bits, hashes) with which `values` values are mistaken with probability `error`: −n ln p / ln² 2 bits,
    ln 2 bits / n hashes; whole bytes."""
    bits = ceil(-values * log(error) / log(2) ** 2 / 8) * 8
    return bits, max(1, round(bits / values * log(2)))


def add(bits: bytearray, value: Any, hashes: int) -> bool:
    """Note the value; whether it was new. Two hashes make all the others (Kirsch and Mitzenmacher)."""
    first, second = _halves(value)
    new = False
    for number in range(hashes):
        place, mask = divmod((first + number * second) % (len(bits) * 8), 8)
        new |= not bits[place] >> mask & 1
        bits[place] |= 1 << mask
    return new


def bucket(value: Any) -> int:
    """Which of the `BUCKETS` filters a value belongs to: a whole row, or the field that is compared."""
    return _halves(value)[0] % BUCKETS


def _halves(value: Any) -> tuple[int, int]:
    digest = blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest[:8]), int.from_bytes(digest[8:]) | 1
