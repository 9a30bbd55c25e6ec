"""What the snapshots of a large keyed state cost the rows of its thread, and how long it takes to read them again.

One thread as a worker composes it, in this process: states of about 100 bytes, a hundredth of the keys changed each
second, snapshots on this disk or, with `--store folder`, as with `--state-to`. It begins with a whole snapshot that is
written without rows, and read as a thread that is started again reads it. Blocks of `block_s` seconds, by turns without
a snapshot, with changes, and with a whole one that is asked for at their beginning: first as many rows as it takes
(dip), then `load` of those that it takes without (latency from when a frame was due). A second counts as `whole` where
a whole snapshot was under way in it.
"""
# bench: state-checkpoints – rows beside snapshots of a large state: dip, p99, and the time to read them

from __future__ import annotations

import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.benchmark_runner import spread
from benchmarks.data_plane.bench_timers import SOURCE, TASK, ThreadAlone
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Task, Topology
from headgate.topology_runtime.platform.processes import rss_bytes
from headgate.topology_runtime.wire.state_moves import RangeCopy
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state import far_snapshots
from headgate.topology_runtime.worker.keyed_state.far_snapshots import FarPlace, FarSnapshots
from headgate.topology_runtime.worker.keyed_state.saved_beside import SavedBeside
from headgate.topology_runtime.worker.keyed_state.snapshot_files import SnapshotFiles
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    SavedPart,
    SnapshotStore,
    states_of,
)
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.process import garbage
from headgate.topology_runtime.worker.process.called_thread import batch_at

FRAME, SHARE, WRITTEN, NS = 256, 0.01, 32_768, 1_000_000_000
OWN = "benchmarks.data_plane"
FLOW = Topology(
    "profiles",
    (
        Task("source", kind="source", run=f"{OWN}.bench_timers:TimedRowsSource"),
        Task("profiles", kind="keyed", state="keyed", run=f"{OWN}.bench_beyond_memory:CustomerProfile"),
    ),
    (Edge("source", "profiles", grouping="fields", key=0),),
)


def first_snapshot(store: SnapshotStore, keys: int) -> None:
    """So many states, as a thread writes them."""
    begun = KeyedSnapshot(tuple(RangeCopy(at, 0) for at in range(KEY_RANGES)))
    for first in range(0, keys, WRITTEN):
        names: list[Hashable] = [key_text(key) for key in range(first, min(keys, first + WRITTEN))]
        states = [{"rows": key, "sum": 1.5, "last": "x" * 100} for key in range(len(names))]
        part = states_of(list(map(range_of, names)), names, states)
        store.save(SavedPart(None, None if first else begun, part, first + WRITTEN >= keys))


def store_at(folder: str, store: str, life: int) -> Callable[[str, int], SnapshotStore]:
    made: dict[str, Callable[[str, int], SnapshotStore]] = {
        "disk": partial(SnapshotFiles, folder),
        "folder": partial(FarSnapshots, FarPlace(folder, "run", life)),
    }
    return made[store]


def key_text(key: int) -> str:
    return f"key-{key:08}"


class SavedAsAsked(SavedBeside):
    """asked: a whole snapshot is begun, though none is due."""

    asked = False

    @property
    def whole_due(self) -> bool:
        return super().whole_due or (self.asked and self.stands)


class SavedThread(ThreadAlone):
    """With `keys` keys. pause_s: of the longest look round."""

    def __init__(self, keys: int, folder: str, store: str, life: int) -> None:
        self._idle_ns = time.monotonic_ns() - time.process_time_ns()
        super().__init__(
            FLOW, "profiles", lambda *which: SavedAsAsked(store_at(folder, store, life)(*which), "profiles")
        )
        self.keys, self.position = keys, 0
        self._choose, self.pause_s = random.Random(keys), 0.0

    @property
    def behaviour(self) -> KeyedTask:
        found = self.called.core.behaviour
        assert isinstance(found, KeyedTask)
        return found

    @property
    def saved(self) -> SavedAsAsked:
        assert isinstance(self.behaviour.store, SavedAsAsked)
        return self.behaviour.store

    @property
    def now_ns(self) -> int:
        """The CPU time of this process and the time in which it had nothing to do: what else this machine does is
        left out."""
        return time.process_time_ns() + self._idle_ns

    def wall_ns(self) -> int:
        return self.now_ns

    def wait_until(self, when_ns: int) -> None:
        self._idle_ns += max(0, when_ns - self.now_ns)

    def take(self, keys: list[int]) -> None:
        rows = [(key_text(key), 1.5, "x" * 100) for key in keys]
        batch = batch_at(SOURCE, self.position, self.position, (0, 0, self.position), rows)
        self.called.take(0, batch, self.now_ns)
        self.position += len(rows)

    def change(self, many: int) -> None:
        """So many keys, a while after the last snapshot."""
        for first in range(0, many, FRAME):
            self.take(list(range(first, min(many, first + FRAME))))
        self.wait_until(self.now_ns + NS)

    def take_some(self) -> None:
        """A frame of keys of which a hundredth changes within a second."""
        many = max(1, int(self.keys * SHARE))
        first = self.now_ns // NS * many % self.keys
        self.take([(first + self._choose.randrange(many)) % self.keys for _ in range(FRAME)])

    def look_round(self) -> None:
        begun_ns = self.now_ns
        self.called.core.on_time(begun_ns)
        self.pause_s = max(self.pause_s, (self.now_ns - begun_ns) / NS)

    def save(self) -> tuple[float, float]:
        """All that changed: seconds of the longest look round, and until it is durable."""
        self.pause_s, begun_s = 0.0, time.perf_counter()
        rows, parts = self.behaviour.rows, self.behaviour.parts
        while rows.dirty or rows.holding or parts.making or self.saved.under_way:
            begun_ns = self.now_ns
            self.look_round()
            time.sleep(0.001)
            self.wait_until(begun_ns + NS // 1000)
        return self.pause_s, time.perf_counter() - begun_s


Seconds = dict[str, list[list[float]]]  # what there was in a second → of each such, latencies of its frames
KINDS = ("none", "changes", "whole")


def block(thread: SavedThread, seconds: float, kind: str, rate: float, found: Seconds) -> None:
    """rate: rows a second; 0: as many as it takes."""
    thread.save()
    thread.saved.asked = kind == "whole"
    begun_ns = due_ns = thread.now_ns
    latencies: list[float] = []
    whole, end_ns = False, begun_ns + NS
    while (now_ns := thread.now_ns) < begun_ns + seconds * NS:
        if now_ns >= end_ns:
            found["whole" if whole else "none" if kind == "none" else "changes"].append(latencies)
            latencies, whole, end_ns = [], False, end_ns + NS
        thread.wait_until(due_ns)
        thread.take_some()
        if kind != "none":
            thread.look_round()
            if thread.behaviour.rows.states.sweeping:
                whole, thread.saved.asked = True, False
        latencies.append((thread.now_ns - due_ns) / NS)
        due_ns = due_ns + int(FRAME / rate * NS) if rate else thread.now_ns


def figures(thread: SavedThread, blocks: int, block_s: float, load: float) -> dict[str, Any]:
    counted, paced = defaultdict(list), defaultdict(list)  # type: Seconds, Seconds
    rate = 0.0
    for kind in KINDS[1:]:
        for found, is_paced in ((counted, False), (paced, True)):
            for turn in range(2 * blocks):
                block(thread, block_s, kind if turn % 2 else "none", rate if is_paced else 0.0, found)
            rate = rate or load * FRAME * statistics.median(map(len, counted["none"]))
    rates = {name: [len(one) * FRAME for one in some] for name, some in counted.items()}
    p99 = {name: [statistics.quantiles(one, n=100)[98] * 1e3 for one in some] for name, some in paced.items()}
    found: dict[str, Any] = {}
    for name in rates:
        found[f"rows_per_s_{name}"] = spread(rates[name])
    for name in p99:
        found[f"p99_ms_{name}"] = spread(p99[name])
    for name in KINDS[1:]:
        if name in rates:
            found[f"rate_{name}_to_none"] = statistics.median(rates[name]) / statistics.median(rates["none"])
        if name in p99:
            found[f"p99_{name}_to_none"] = statistics.median(p99[name]) / statistics.median(p99["none"])
    return found


def bench(
    keys: int = 1_000_000, store: str = "disk", blocks: int = 3, block_s: float = 5.0, load: float = 0.5
) -> dict[str, Any]:
    """store: disk, or folder (as with --state-to)."""
    with tempfile.TemporaryDirectory() as folder:
        far_snapshots.note_run(folder, "run")
        first_snapshot(store_at(folder, store, 1)("profiles", TASK), keys)
        garbage.begin()
        before, begun_s, begun_cpu_s = rss_bytes(os.getpid()), time.perf_counter(), time.process_time()
        thread = SavedThread(keys, folder, store, 2)
        read_s, read_cpu_s = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s
        assert thread.behaviour.rows.states.many == keys
        memory = rss_bytes(os.getpid())
        said(f"{keys:,} keys, read in {read_s:.1f} s, {memory >> 20:,} MiB")
        thread.change(FRAME)
        whole = thread.save()
        thread.change(int(keys * SHARE))
        change = thread.save()
        said(f"whole {whole[1]:.1f} s, change {change[1]:.2f} s")
        found = figures(thread, blocks, block_s, load)
        thread.save()
        files = [file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()]
    return {
        "keys": keys,
        "store": store,
        "bytes": sum(files),
        "bytes_a_key": (memory - before) / keys,
        "most_process_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        "read_s": read_s,
        "read_cpu_s": read_cpu_s,
        "whole_pause_s": whole[0],
        "whole_s": whole[1],
        "change_pause_s": change[0],
        "change_s": change[1],
        **found,
    }


def said(text: str) -> None:
    print(f"state-checkpoints: {text}", file=sys.stderr)


BENCHMARKS = {"state-checkpoints": bench}
