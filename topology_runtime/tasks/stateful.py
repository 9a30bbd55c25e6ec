"""Tasks with state: counts, joins, means, a Kalman filter, a Bloom filter."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import compress
from math import ceil, fsum, isfinite, log
from typing import Any, TypeGuard

from headgate.topology_runtime.api.logic import Keyed, Window


class CountByKey(Keyed):
    """Emits (key, rows of this key so far) for every `every`-th row of a key."""

    def __init__(self, every: int = 1) -> None:
        self._every = every

    def new(self, key: Hashable) -> int:
        return 0

    def process(self, key: Hashable, row: Any, state: int) -> tuple[int, Iterable[tuple[Hashable, int]]]:
        count = state + 1
        return count, [(key, count)] if count % self._every == 0 else ()

    def process_all(
        self, keys: Sequence[Hashable], rows: Sequence[Any], states: dict[Hashable, int]
    ) -> tuple[list[tuple[Hashable, int]], Sequence[int] | None]:
        counted: list[tuple[Hashable, int]] = []
        for key in keys:
            states[key] = count = states[key] + 1
            counted.append((key, count))
        if self._every == 1:
            return counted, None
        told = [count % self._every == 0 for _, count in counted]
        return list(compress(counted, told)), told


# ── Brings the branches of one event together again ─────────────────────────────────────────────────────


class Join(Window):
    """Rows with the same `key` field wait for each other until together they have every field of
    `fields`; then they leave as one row, their fields united.

    If a branch lost its part (a dead letter), the rest leaves after `max_age_s` as it is. Give every
    in-edge the grouping `fields` with the same key."""

    def __init__(self, fields: Sequence[str], key: str = "id", max_age_s: float | None = 20.0) -> None:
        self._fields = tuple(fields)
        self._key = key
        self.max_age_s = max_age_s

    def key(self, row: dict[str, Any], source: str) -> Hashable:
        found: Hashable = row[self._key]
        return found

    def ready(self, key: Hashable, rows: Sequence[dict[str, Any]]) -> bool:
        return all(any(field in row for row in rows) for field in self._fields)

    def finish(self, key: Hashable, rows: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        united: dict[str, Any] = {}
        for row in rows:
            united.update(row)
        return [united]


# ── The mean of the last values of each key ─────────────────────────────────────────────────────────────

LastValues = deque[float]


def _is_number(value: Any) -> TypeGuard[int | float]:
    return type(value) in (int, float) and isfinite(value)


class SlidingMean(Keyed):
    """Adds `mean` to each row: that of row[`field`] over the key's last `rows` rows, of fewer at the
    start. Rows without a finite number there go on as they are."""

    def __init__(self, field: str = "value", rows: int = 10) -> None:
        if rows < 1:
            raise ValueError("rows: at least 1")
        self._field = field
        self._rows = rows

    def new(self, key: Hashable) -> LastValues:
        return deque(maxlen=self._rows)

    def process(
        self, key: Hashable, row: dict[str, Any], state: LastValues
    ) -> tuple[LastValues, Iterable[Any]]:
        value = row.get(self._field)
        if not _is_number(value):
            return state, [row]
        state.append(float(value))
        return state, [{**row, "mean": fsum(state) / len(state)}]

    def snapshot(self, state: LastValues) -> list[float]:
        return list(state)

    def restore(self, saved: Any) -> LastValues:
        return deque(saved, maxlen=self._rows)


# ── Takes the noise out of a measured value, per key, with a Kalman filter of one dimension ─────────────

KalmanState = tuple[float, float] | None  # (estimate, its variance); None before the first value


class Kalman(Keyed):
    """Adds `estimate` to each row: that of row[`field`], a value that wanders by `drift` (variance per row)
    and is measured with an error of variance `noise`. Rows without a finite number
    there go on as they are."""

    def __init__(self, field: str = "value", drift: float = 0.01, noise: float = 1.0) -> None:
        if drift < 0 or noise <= 0:
            raise ValueError("drift: at least 0, noise: above 0")
        self._field = field
        self._drift, self._noise = drift, noise

    def new(self, key: Hashable) -> KalmanState:
        return None

    def process(
        self, key: Hashable, row: dict[str, Any], state: KalmanState
    ) -> tuple[KalmanState, Iterable[Any]]:
        measured = row.get(self._field)
        if not _is_number(measured):
            return state, [row]
        after = step(state, float(measured), self._drift, self._noise)
        return after, [{**row, "estimate": after[0]}]

    def restore(self, saved: Any) -> KalmanState:
        return None if saved is None else (saved[0], saved[1])


def step(state: KalmanState, measured: float, drift: float, noise: float) -> tuple[float, float]:
    """Predict (the variance grows by the drift), then correct by the gain variance / (variance + noise)."""
    if state is None:
        return measured, noise
    estimate, variance = state[0], state[1] + drift
    gain = variance / (variance + noise)
    return estimate + gain * (measured - estimate), (1.0 - gain) * variance


# ── Lets each value pass once, in a memory that does not grow: Bloom filters (B. H. Bloom, 1970) ────────

BUCKETS = 64


class DropSeen(Keyed):
    """Gives on the rows whose row[`field`] (without `field`: the row) has not been seen, and of these loses
    about `error`, which it takes for seen. `values`: how many different ones are expected.

    There is one filter per key of the in-edge, for values / `buckets` values each: let the edge's key be
    `headgate.topology_runtime.tasks.stateful:bucket`; with `field` a function of yours that gives
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
    from hashlib import blake2b  # 3.5 MB, for this task alone

    digest = blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest[:8]), int.from_bytes(digest[8:]) | 1
