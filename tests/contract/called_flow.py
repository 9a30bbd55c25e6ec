"""A flow of ready-made tasks, and of tasks that stand only what a worker promises: one thread from `open` to `close`.
Each is an inner task: what it gives goes on to a sink of its own."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Hashable, Iterable, Sequence
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np

from headgate import Context, Exhausted, Keyed, Source, Window, batched, flat_map, keep_if, topology
from headgate.tasks import (
    CollectToFile,
    CountByKey,
    DropSeen,
    FileWrite,
    Join,
    Kalman,
    ParseXml,
    Pi,
    Score,
    SlidingMean,
    Spin,
    Wait,
    parse,
    parse_json,
    parse_senml,
    tag,
)
from headgate.topology_runtime.api.builder import Builder

ROWS = 60


class Rows(Source[dict[str, Any]]):
    def read(self, position: int, limit: int) -> Sequence[dict[str, Any]]:
        if position >= ROWS:
            raise Exhausted
        places = range(position, min(ROWS, position + limit))
        return [{"id": n, "sensor": f"s{n % 4}", "value": 20 + n * 7 % 5 / 2} for n in places]


# ── what awkward tasks do ───────────────────────────────────────────────────────────────────────────


class Sqlite:
    """Its connection is of use in the thread alone that made it."""

    def open(self, context: Context) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.execute("create table names (sensor text primary key, name text)")
        self.database.executemany(
            "insert into names values (?, ?)", [(f"s{n}", f"room {n}") for n in range(4)]
        )

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        found = self.database.execute("select name from names where sensor = ?", (row["sensor"],))
        return {**row, "name": found.fetchone()[0]}

    def close(self) -> None:
        self.database.close()


class SqliteWindow(Window):
    """Four rows of a sensor, through a connection as above."""

    def open(self, context: Context) -> None:
        self.names = Sqlite()
        self.names.open(context)

    def key(self, row: dict[str, Any], source: str) -> Hashable:
        return str(row["sensor"])

    def ready(self, key: Hashable, rows: Sequence[Any]) -> bool:
        return len(rows) == 5

    def finish(self, key: Hashable, rows: Sequence[Any]) -> Iterable[Any]:
        return [{**self.names(rows[0]), "sum": sum(row["value"] for row in rows)}]

    def close(self) -> None:
        self.names.close()


class SqliteKeyed(Keyed):
    def open(self, context: Context) -> None:
        self.names = Sqlite()
        self.names.open(context)

    def new(self, key: Hashable) -> int:
        return 0

    def process(self, key: Hashable, row: Any, state: int) -> tuple[int, Iterable[Any]]:
        return state + 1, [{**self.names(row), "number": state + 1}]

    def close(self) -> None:
        self.names.close()


LOCAL = threading.local()


class ThreadLocal:
    def open(self, context: Context) -> None:
        LOCAL.client = {"thread": threading.get_ident()}

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "here": LOCAL.client["thread"] == threading.get_ident()}

    def close(self) -> None:
        del LOCAL.client


class EventLoop:
    def open(self, context: Context) -> None:
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return asyncio.get_event_loop().run_until_complete(asyncio.sleep(0, row))

    def close(self) -> None:
        self.loop.close()
        asyncio.set_event_loop(None)


def squared(value: float) -> float:
    return value * value


class Workers:
    """What it computes is computed by processes of its own."""

    def open(self, context: Context) -> None:
        self.pool: Pool = multiprocessing.Pool(1)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "squared": self.pool.apply(squared, (row["value"],))}

    def close(self) -> None:
        self.pool.terminate()
        self.pool.join()


class Loads:
    """As a model that takes long to load does."""

    def open(self, context: Context) -> None:
        time.sleep(0.2)
        self.weights = np.arange(3.0)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "score": float(self.weights @ np.full(3, row["value"]))}


class NumpyState(Keyed):
    """Its state is an array."""

    def new(self, key: Hashable) -> Any:
        return np.zeros(2)

    def process(self, key: Hashable, row: Any, state: Any) -> tuple[Any, Iterable[Any]]:
        state = state + np.array([1.0, row["value"]])
        return state, [(key, float(state[1] / state[0]))]

    def snapshot(self, state: Any) -> list[float]:
        return [float(value) for value in state]

    def restore(self, saved: list[float]) -> Any:
        return np.array(saved)


class Asks:
    """Async from open to close, in one loop."""

    async def open(self, context: Context) -> None:
        self.loop = asyncio.get_running_loop()
        self.lock = asyncio.Lock()

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        async with self.lock:
            await asyncio.sleep(0.001)
        return {**row, "one loop": asyncio.get_running_loop() is self.loop}

    async def close(self) -> None:
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError("closed in another loop")


@flat_map
async def parts(row: dict[str, Any]) -> AsyncIterator[Any]:
    for part in (row["id"], row["sensor"]):
        await asyncio.sleep(0)
        yield part


@batched
def doubled(rows: list[dict[str, Any]]) -> list[float]:
    return [2 * row["value"] for row in rows]


@flat_map
def words(row: dict[str, Any]) -> list[str]:
    return f"sensor {row['sensor']}".split()


@keep_if
def even(row: dict[str, Any]) -> bool:
    return row["id"] % 2 == 0


def fails_on_some(row: dict[str, Any]) -> float:
    return 1 / (row["id"] % 10)


# ── the flow ────────────────────────────────────────────────────────────────────────────────────────


def as_event(row: dict[str, Any]) -> tuple[int, str]:
    return row["id"], as_json(row)


def as_json(row: dict[str, Any]) -> str:
    return json.dumps(row)


def as_senml(row: dict[str, Any]) -> str:
    return json.dumps([{"bn": f"{row['sensor']}:", "bt": 1.7e9, "n": "value", "v": row["value"]}])


INNER: dict[str, Any] = {
    "sqlite": Sqlite,
    "sqlite-window": SqliteWindow,
    "sqlite-keyed": SqliteKeyed,
    "thread-local": ThreadLocal,
    "event-loop": EventLoop,
    "workers": Workers,
    "loads": Loads,
    "numpy-state": NumpyState,
    "asks": Asks,
    "parts": parts,
    "doubled": doubled,
    "words": words,
    "even": even,
    "fails": fails_on_some,
    "pi": Pi,
    "score": Score,
    "spin": Spin,
    "wait": Wait,
    "tag": tag,
    "xml": ParseXml,
    "file-write": FileWrite,
    "collect": CollectToFile,
    "parse": parse,
    "parse-json": parse_json,
    "parse-senml": parse_senml,
    "count": CountByKey,
    "drop-seen": DropSeen,
    "mean": SlidingMean,
    "kalman": Kalman,
    "join": Join,
}
PARAMS: dict[str, dict[str, Any]] = {
    "pi": {"repeats": 3},
    "score": {"steps": 3},
    "spin": {"cpu_ms": 0.01},
    "wait": {"ms": 0.5},
    "xml": {"documents": 1},
    "join": {"fields": ["even-join", "odd-join"]},
}
BEFORE = {"parse": as_event, "parse-json": as_json, "parse-senml": as_senml}
KEYS: dict[str, str | int] = {"sqlite-window": "sensor", "join": "id"}
KEYS |= dict.fromkeys(["sqlite-keyed", "numpy-state", "count", "drop-seen", "mean", "kalman"], "sensor")


def half(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {"id": row["id"], name: row["value"]}


def called_flow(folder: str | Path) -> Builder:
    """Every task of INNER between one source and a sink of its own, which keeps its rows in this folder."""
    flow = topology("called")
    rows = flow.source("rows", Rows)
    for name, run in INNER.items():
        task = flow.task(name, run, **PARAMS.get(name, {}))
        key = KEYS.get(name)
        to = task if key is None else task.by(key)
        if name == "join":
            for part in ("even-join", "odd-join"):
                rows >> flow.task(part, half, name=part) >> to
        elif name in BEFORE:
            rows >> flow.task(f"before-{name}", BEFORE[name]) >> to
        else:
            rows >> to
        task >> flow.task(f"store-{name}", CollectToFile, path=str(Path(folder, name)))
    return flow
