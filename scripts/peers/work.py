"""The work of the benchmarks W1 to W4 in plain Python, the same for headgate, its peers and the bare limits.

W1, W2  tuples of (int, float, 10-byte str) through x + 1, x · 2, x − 3
W4      JSON events of 500 bytes: parsed, counted by their user, each new count given to a sink
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

Tuple = tuple[int, float, str]
Event = tuple[str, str, float]  # user, kind, amount
Counted = tuple[str, int]  # user, events of that user so far

EVENT_BYTES = 500
POOL = 8192  # events that differ; position p is event p modulo so many
USERS = 1000
KINDS = ("view", "click", "cart", "pay")


def numbers(position: int, limit: int) -> list[Tuple]:
    """The tuples of these positions."""
    return [(n, 0.5, "0123456789") for n in range(position, position + limit)]


def f1(row: Tuple) -> Tuple:
    x, y, s = row
    return x + 1, y, s


def f2(row: Tuple) -> Tuple:
    x, y, s = row
    return x * 2, y, s


def f3(row: Tuple) -> Tuple:
    x, y, s = row
    return x - 3, y, s


# ── events ───────────────────────────────────────────────────────────────────────────────────────


def user_of(number: int) -> str:
    """Whose event it is: users in an order that looks random, every one about as often."""
    return f"user-{(number * 2654435761 >> 7) % USERS:05d}"


def event(number: int) -> bytes:
    """Of EVENT_BYTES bytes, as a web shop may log it."""
    told = {
        "id": f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}",
        "user": user_of(number),
        "kind": KINDS[number % len(KINDS)],
        "at": f"2026-11-24T02:{number // 60 % 60:02d}:{number % 60:02d}Z",
        "amount": number % 997 / 4,
        "page": {"path": f"/shop/item/{number % 321}", "referrer": "https://example.org/search?q=gate"},
        "items": [{"sku": f"sku-{(number + i) % 89:04d}", "count": i + 1} for i in range(3)],
        "tags": ["web", "eu", f"ab-{number % 7}"],
        "note": "",
    }
    length = len(msgspec.json.encode(told))
    told["note"] = "n" * (EVENT_BYTES - length)
    return msgspec.json.encode(told)


def events() -> list[bytes]:
    """The pool, twice: whatever begins in the first half has a whole pool's length behind it."""
    pool = [event(number) for number in range(POOL)]
    return pool + pool


def read_events(pool: Sequence[bytes], position: int, limit: int) -> Sequence[bytes]:
    """The events of these positions, at most POOL."""
    begin = position % POOL
    return pool[begin : begin + limit]


def parser(library: str) -> Callable[[bytes], Event]:
    """All of the event becomes Python objects; three of its fields go on. library: msgspec, or json of Python's own."""
    decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode if library == "msgspec" else json.loads

    def parse(data: bytes) -> Event:
        told = decode(data)
        return told["user"], told["kind"], told["amount"]

    return parse


def user(row: Event) -> str:
    return row[0]


_parse = parser("msgspec")


def user_in(text: str) -> str:
    """Whose event this text is."""
    return _parse(text.encode())[0]


class LastCounts:
    """The sink: the newest count of each user."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def __call__(self, row: Counted) -> None:
        self.counts[row[0]] = row[1]


def plain_counts(pool: Sequence[bytes], total: int, sink: LastCounts, library: str, frame: int = 512) -> None:
    """W4 as a plain loop over the first events."""
    counts: dict[str, int] = {}
    parse = parser(library)
    for position in range(0, total, frame):
        for data in read_events(pool, position, min(frame, total - position)):
            row = parse(data)
            key = row[0]
            counts[key] = count = counts.get(key, 0) + 1
            sink((key, count))


def exact_counts(total: int) -> dict[str, int]:
    """What the sink has to have after so many events, without reading any: by users of the pool alone."""
    rounds, rest = divmod(total, POOL)
    found: dict[str, int] = {}
    for number in range(POOL):
        if n := rounds + (number < rest):
            key = user_of(number)
            found[key] = found.get(key, 0) + n
    return found


# ── what a peer tells ────────────────────────────────────────────────────────────────────────────


class Sum:
    """The sink of W1: rows, and the sum of their first values."""

    def __init__(self) -> None:
        self.rows = self.total = 0

    def __call__(self, row: Tuple) -> None:
        self.rows += 1
        self.total += row[0]


def exact_sum(total: int) -> int:
    """Of 2 (x + 1) − 3 for the first so many x."""
    return total * (total - 1) - total


def tell(total: int, seconds: float, sink: Sum | LastCounts, version: str, delivery: str) -> None:
    """One line of JSON, once what the sink has is what it has to have. Exits 1 otherwise."""
    if isinstance(sink, Sum):
        right = (sink.rows, sink.total) == (total, exact_sum(total))
    else:
        right = sink.counts == exact_counts(total)
    if not right:
        sys.exit("error: what came out is not what had to")
    print(json.dumps({"per_s": total / seconds, "version": version, "delivery": delivery}), flush=True)
