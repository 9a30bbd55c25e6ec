"""What it costs a keyed task's thread that its states are larger than its memory: microseconds of its CPU a row.

beyond-memory  one thread takes frames of 256 rows, with a snapshot of changes for every 100,000 rows, in this process:
               all states in memory without a bound, with a bound that they are below, and with room for a quarter of
               them (`share`), by turns. Keys are drawn evenly (the worst there is), or most rows are of few keys.
state-stores   what SQLite, LMDB and RocksDB cost for such states, each behind the same four calls; those that
               `pip install lmdb rocksdict` has brought.
"""
# bench: beyond-memory state-stores – a row's CPU with states four times as large as memory; stores for them

from __future__ import annotations

import importlib
import random
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.wire.messages import Frame, RootKey, RootPart
from headgate.topology_runtime.worker.calls.dead_lettering import Around
from headgate.topology_runtime.worker.calls.output_buffers import Outputs
from headgate.topology_runtime.worker.calls.user_code import Results, UserCode
from headgate.topology_runtime.worker.keyed_state.kept_states import Overflow
from headgate.topology_runtime.worker.keyed_state.key_ranges import Standing
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_store import SqliteStates

HERE = Slot("vm", 0)
FRAME, SNAPSHOT_ROWS, THREAD = 256, 100_000, 5
ENOUGH_BYTES = 1 << 40


class CustomerProfile(Keyed):
    """A record of a customer: a count, a sum, a text of 100 characters."""

    def new(self, key: Hashable) -> dict[str, Any]:
        return {"rows": 0, "sum": 0.0, "last": ""}

    def process(self, key: Hashable, row: Any, state: dict[str, Any]) -> tuple[dict[str, Any], Iterable[Any]]:
        return {"rows": state["rows"] + 1, "sum": state["sum"] + row[1], "last": row[2]}, ()


class OneThread:
    """Of a task, without what is round it."""

    def __init__(self) -> None:
        numbers = random.Random(1)
        around = Around("task", THREAD, ("source",), {0: "source"}, True, 1)
        out = Outputs(THREAD, HERE, 1, lambda: numbers.getrandbits(64), 0)
        code = UserCode(Results(around, out), "keyed", CustomerProfile(), lambda _: None)
        self.rows = KeyedRows(code, lambda: numbers.getrandbits(64), lambda _: lambda row: row[0])
        self.rows.ranges.stand(Standing(1, (THREAD,) * KEY_RANGES, (), frozenset({THREAD}), {}))
        self.rows.claim(0)
        self.position = self.saved = 0

    def take(self, keys: Sequence[str]) -> float:
        """Microseconds of CPU a row."""
        begin_s = time.thread_time()
        for begin in range(0, len(keys), FRAME):
            rows = [(key, 1.5, "x" * 100) for key in keys[begin : begin + FRAME]]
            root = RootPart(RootKey(1, 1, self.position, 0), HERE, 0, 0, self.position, 0, 0, 9)
            self.rows.take(
                Frame(0, 1, HERE, 1, THREAD, [root], [(0, 0, len(rows), 0)], rows, 0, 0), self.position
            )
            self.position += len(rows)
            if self.position - self.saved >= SNAPSHOT_ROWS:
                self.saved = self.position
                self.rows.change(self.rows.ranges.versions)
                self.rows.covered()
        return (time.thread_time() - begin_s) / len(keys) * 1e6


def bench(
    keys: int = 200_000, rows: int = 200_000, turns: int = 3, share: float = 0.25, skew: float = 1.0
) -> dict[str, Any]:
    """skew: keys are drawn as keys × (0 … 1) to that power; 1: evenly."""
    choose = random.Random(5)
    with tempfile.TemporaryDirectory() as folder:
        threads = {"unbounded": OneThread(), "below the bound": OneThread(), "beyond": OneThread()}
        for name in ("below the bound", "beyond"):
            store = SqliteStates(folder, name, THREAD)
            threads[name].rows.states.overflow = Overflow(store, ENOUGH_BYTES)
        for thread in threads.values():
            thread.take([f"key-{number:08}" for number in range(keys)])
        overflow = threads["beyond"].rows.states.overflow
        assert overflow is not None
        overflow.most_bytes = int(share * keys * overflow.state_bytes)
        found: dict[str, list[float]] = {name: [] for name in threads}
        for turn in range(turns + 1):
            drawn = [f"key-{int(keys * choose.random() ** skew):08}" for _ in range(rows)]
            for name, thread in threads.items():
                spent = thread.take(drawn)
                if turn:
                    found[name].append(spent)
        beyond = threads["beyond"].rows.states
        medians = {name: statistics.median(spent) for name, spent in found.items()}
        in_memory = beyond.many
        assert in_memory + beyond.stored == keys
        overflow.store.clear()
    return {
        "keys": keys,
        "rows": rows,
        "turns": turns,
        "skew": skew,
        "in_memory": in_memory,
        "cpu_us_a_row": medians,
        "all": found,
        "rate_of_in_memory": medians["unbounded"] / medians["beyond"],
        "cost_below_the_bound": medians["below the bound"] / medians["unbounded"] - 1,
    }


# ── stores ──────────────────────────────────────────────────────────────────────────────────────────

Store = tuple[Callable[[list[bytes]], Any], Callable[[list[tuple[bytes, bytes]]], Any], Callable[[], int]]
BATCH = 256


def _sqlite(folder: str) -> Store:
    store = SqliteStates(folder, "t", 0)

    def get(names: list[bytes]) -> int:
        return len(list(store.get([(name[0], name[1:]) for name in names])))

    def put(records: list[tuple[bytes, bytes]]) -> None:
        store.put([(name[0], name[1:], record) for name, record in records], [])

    return get, put, lambda: sum(1 for at in range(256) for _ in store.of(at))


def _lmdb(folder: str) -> Store:
    environment = importlib.import_module("lmdb").open(folder, map_size=64 << 30, sync=False, lock=False)

    def get(names: list[bytes]) -> int:
        with environment.begin() as reading, reading.cursor() as cursor:
            return len(cursor.getmulti(names))

    def put(records: list[tuple[bytes, bytes]]) -> None:
        with environment.begin(write=True) as writing, writing.cursor() as cursor:
            cursor.putmulti(records)

    def scan() -> int:
        with environment.begin() as reading:
            return sum(1 for _ in reading.cursor())

    return get, put, scan


def _rocksdb(folder: str) -> Store:
    rocksdict = importlib.import_module("rocksdict")
    options = rocksdict.Options(raw_mode=True)
    options.set_write_buffer_size(16 << 20)
    database, unlogged = rocksdict.Rdict(f"{folder}/r", options), rocksdict.WriteOptions()
    unlogged.disable_wal = True

    def put(records: list[tuple[bytes, bytes]]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for name, record in records:
            batch.put(name, record)
        database.write(batch, unlogged)

    return (lambda names: len(database.get(names))), put, lambda: sum(1 for _ in database.items())


def stores(states: int = 300_000, touched: int = 100_000) -> dict[str, Any]:
    return {
        f"{name} {size} B": found
        for size in (100, 1000)
        for name, made in (("sqlite", _sqlite), ("lmdb", _lmdb), ("rocksdb", _rocksdb))
        if (found := _store(made, size, states, touched))
    }


def _store(made: Callable[[str], Store], size: int, states: int, touched: int) -> dict[str, Any] | None:
    choose = random.Random(2)
    noise = choose.randbytes((1 << 20) + size)
    with tempfile.TemporaryDirectory() as folder:
        try:
            get, put, scan = made(folder)
        except ImportError:
            return None

        def record(number: int) -> bytes:
            return noise[(at := number * 7919 & 0xFFFFF) : at + size - 8] + struct.pack("<Q", number)

        def name(number: int) -> bytes:
            return struct.pack(">BQ", number * 0x9E3779B1 >> 7 & 255, number)

        def timed(steps: Iterable[list[int]], *calls: Callable[[list[int]], Any]) -> float:
            begin_s = time.process_time()
            count = 0
            for some in steps:
                count += len(some)
                for call in calls:
                    call(some)
            return (time.process_time() - begin_s) / count * 1e6

        def write(some: list[int]) -> None:
            put(sorted((name(n), record(n)) for n in some))

        def read(some: list[int]) -> None:
            assert get([name(n) for n in some]) == len(some)

        order = choose.sample(range(states), states)
        fill = timed((order[at : at + 1024] for at in range(0, states, 1024)), write)
        drawn = [choose.sample(range(states), BATCH) for _ in range(touched // BATCH)]
        found = {"fill": fill, "get": timed(drawn, read), "get and put": timed(drawn, read, write)}
        begin_s = time.process_time()
        assert scan() == states
        found["scan"] = (time.process_time() - begin_s) / states * 1e6
        files = (file.stat().st_blocks * 512 for file in Path(folder).rglob("*") if file.is_file())
        return {"cpu_us": found, "file_bytes": sum(files), "bytes": states * (size + 9)}


BENCHMARKS = {"beyond-memory": bench, "state-stores": stores}
