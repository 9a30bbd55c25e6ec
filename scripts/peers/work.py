"""The work of the benchmarks W1 to W4 in plain Python, the same for headgate, its peers and the bare limits.

W1, W2  tuples of (int, float, 10-byte str) through x + 1, x · 2, x − 3 into a sum
W3      the same at 200 rows/s, each when it is due; what the sink keeps is how late they are
W4      JSON events of 500 bytes: parsed, counted by their user, each new count given to a sink
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
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


# ── rows that come in time ───────────────────────────────────────────────────────────────────────

GAP_NS = 5_000_000  # 200 rows/s
SETTLING = 600  # of W3's first rows, in which JVMs compile, do not count


def in_time(total: int) -> Iterator[Tuple]:
    """W3's rows, each when it is due; its first value is when that is, in ns of the wall clock."""
    begin = time.time_ns() + GAP_NS
    for due in range(begin, begin + total * GAP_NS, GAP_NS):
        while (left := due - time.time_ns()) > 0:
            time.sleep(left / 1e9)
        yield due, 0.5, "0123456789"


def listen(total: int) -> int:
    """A port at which whoever comes first is told when each of W3's rows is due, a line each, at that time."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, server:
            for due, _, _ in in_time(total):
                connection.sendall(b"%d\n" % due)

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


# ── sinks that know the time ─────────────────────────────────────────────────────────────────────


def begin() -> None:
    """To be called before the first row is made or read."""
    Path(os.environ["HOME"], "begun").write_text(str(time.time_ns()))


class Timed:
    """A sink that keeps when all rows had come. Times are those of the wall clock, the same in all processes."""

    def __init__(self, total: int) -> None:
        self.total, self.rows, self.until_ns = total, 0, 0

    def ended(self) -> None:
        """To be called once `rows` is `total`."""
        self.until_ns = time.time_ns()

    @property
    def done(self) -> bool:
        return self.rows >= self.total

    def rate(self) -> float:
        """Rows/s since `begin`."""
        since_ns = int(Path(os.environ["HOME"], "begun").read_text())
        return self.total / (self.until_ns - since_ns) * 1e9


class Sum(Timed):
    """The sink of W1 and W2: rows, and the sum of their first values."""

    sum = 0

    def __call__(self, row: Tuple) -> None:
        self.rows += 1
        self.sum += row[0]
        if self.rows == self.total:
            self.ended()

    def add(self, rows: int, of_them: int) -> None:
        """Many rows at once: how many, and their sum."""
        self.rows += rows
        self.sum += of_them
        if self.done:
            self.ended()

    def right(self) -> bool:
        return (self.rows, self.sum) == (self.total, exact_sum(self.total))


class Counts(Timed):
    """The sink of W4: the newest count of each user, whether it comes for each event or for many."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.counts: dict[str, int] = {}

    def __call__(self, row: Counted) -> None:
        key, count = row
        self.rows += count - self.counts.get(key, 0)
        self.counts[key] = count
        if self.rows == self.total:
            self.ended()

    def right(self) -> bool:
        return self.counts == exact_counts(self.total)


class Lateness:
    """The sink of W3: of each row when it was due and when it came, both by the wall clock of this machine."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.came: list[tuple[int, int]] = []

    def __call__(self, row: Tuple) -> None:
        self.came.append(((row[0] + 3) // 2 - 1, time.time_ns()))

    @property
    def done(self) -> bool:
        return len(self.came) >= self.total

    def right(self) -> bool:
        dues = sorted(due for due, _ in self.came)
        return dues == list(range(dues[0], dues[0] + self.total * GAP_NS, GAP_NS))

    def late_ms(self, share: float) -> float:
        """So late, or less, is this share of the rows after SETTLING."""
        late = sorted(came - due for due, came in sorted(self.came)[SETTLING:])
        return late[int(len(late) * share)] / 1e6


SINKS: dict[str, Callable[[int], Sum | Counts | Lateness]] = {
    "W1": Sum, "W2": Sum, "W3": Lateness, "W4": Counts
}  # fmt: skip


def exact_sum(total: int) -> int:
    """Of 2 (x + 1) − 3 for the first so many x."""
    return total * (total - 1) - total


# ── what a peer tells ────────────────────────────────────────────────────────────────────────────


def here() -> None:
    """Keeps that this process has a part of W2 or W3."""
    Path(os.environ["HOME"], f"{os.getpid()}.pid").touch()


def noted(function: Callable[[Tuple], Tuple]) -> Callable[[Tuple], Tuple]:
    """The function, which says `here` when it is called for the first time in a process."""
    first = True

    def call(row: Tuple) -> Tuple:
        nonlocal first
        if first:
            here()
            first = False
        return function(row)

    return call


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def tell(name: str, sink: Sum | Counts | Lateness, version: str, delivery: str) -> None:
    """One line of JSON, once what the sink has is what it has to have, and W2 and W3 were in several processes.
    Exits 1 otherwise."""
    if not sink.right():
        sys.exit("error: what came out is not what had to")
    if name in ("W2", "W3") and len(list(Path(os.environ["HOME"]).glob("*.pid"))) < 2:
        sys.exit("error: rows crossed no process")
    if isinstance(sink, Lateness):
        told: dict[str, Any] = {"p50_ms": sink.late_ms(0.5), "p99_ms": sink.late_ms(0.99)}
    else:
        told = {"per_s": sink.rate()}
    print(json.dumps({**told, "version": version, "delivery": delivery}), flush=True)
