"""What the snapshots of a large keyed state cost the rows of its thread, and how long it takes to read them again.

One thread as a worker composes it, in this process: states of about 100 bytes, a hundredth of the keys changed each
second, snapshots on this disk or, with `--store folder`, as with `--state-to`. Blocks of `block_s` seconds, by turns
without a snapshot and with them: first as many rows as it takes (dip), then `load` of those that it takes without
(latency from when a frame was due). A second counts as `whole` where a whole snapshot was under way in it.
"""
# bench: state-checkpoints – rows beside snapshots of a large state: dip, p99, and the time to read them

from __future__ import annotations

import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.benchmark_runner import spread
from benchmarks.data_plane.bench_timers import SOURCE, ThreadAlone
from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.platform.processes import rss_bytes
from headgate.topology_runtime.worker.keyed_state import far_snapshots
from headgate.topology_runtime.worker.keyed_state.far_snapshots import FarPlace, FarSnapshots
from headgate.topology_runtime.worker.keyed_state.saved_beside import SavedBeside
from headgate.topology_runtime.worker.keyed_state.snapshot_files import SnapshotFiles
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SnapshotStore
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.process import garbage
from headgate.topology_runtime.worker.process.called_thread import batch_at

FRAME, SHARE = 256, 0.01
OWN = "benchmarks.data_plane"
FLOW = Topology(
    "profiles",
    (
        Task("source", kind="source", run=f"{OWN}.bench_timers:TimedRowsSource"),
        Task("profiles", kind="keyed", state="keyed", run=f"{OWN}.bench_beyond_memory:CustomerProfile"),
    ),
    (Edge("source", "profiles", grouping="fields", key=0),),
)


class SavedThread(ThreadAlone):
    """With `keys` keys. pause_s: of each look round that took longer than a millisecond."""

    def __init__(self, keys: int, folder: str, store: str, life: int) -> None:
        far = FarPlace(folder, "run", life)
        made: dict[str, Callable[[str, int], SnapshotStore]] = {
            "disk": partial(SnapshotFiles, folder),
            "folder": partial(FarSnapshots, far),
        }
        super().__init__(FLOW, "profiles", lambda *which: SavedBeside(made[store](*which), "profiles"))
        self.keys, self.position = keys, 0
        self._choose, self._begun_s = random.Random(keys), time.perf_counter()
        self.pauses_s: list[float] = []

    @property
    def behaviour(self) -> KeyedTask:
        found = self.called.core.behaviour
        assert isinstance(found, KeyedTask)
        return found

    @property
    def store(self) -> SnapshotStore:
        return self.behaviour.store

    def take(self, keys: list[int]) -> None:
        rows = [(f"key-{key:08}", 1.5, "x" * 100) for key in keys]
        batch = batch_at(SOURCE, self.position, self.position, (0, 0, self.position), rows)
        self.called.take(0, batch, time.monotonic_ns())
        self.position += len(rows)

    def fill(self) -> None:
        for first in range(0, self.keys, FRAME):
            self.take(list(range(first, min(self.keys, first + FRAME))))
            self.look_round()

    def change(self, many: int) -> None:
        """So many keys, a while after the last snapshot."""
        for first in range(0, many, FRAME):
            self.take(list(range(first, min(many, first + FRAME))))
        time.sleep(1.0)

    def take_some(self) -> None:
        """A frame of keys of which a hundredth changes within a second."""
        many = max(1, int(self.keys * SHARE))
        first = int(time.perf_counter() - self._begun_s) * many % self.keys
        self.take([(first + self._choose.randrange(many)) % self.keys for _ in range(FRAME)])

    def look_round(self) -> None:
        begun_s = time.perf_counter()
        self.called.core.on_time(time.monotonic_ns())
        if (spent_s := time.perf_counter() - begun_s) > 0.001:
            self.pauses_s.append(spent_s)

    def save(self) -> tuple[float, float]:
        """A snapshot: seconds of the longest look round, and until it is durable."""
        self.pauses_s, begun_s = [0.0], time.perf_counter()
        while self.behaviour.rows.dirty or self.behaviour.rows.holding:
            self.look_round()
            time.sleep(0.001)
        return max(self.pauses_s), time.perf_counter() - begun_s


Seconds = dict[str, list[list[float]]]  # what there was in a second → of each such, latencies of its frames


def block(thread: SavedThread, seconds: float, saving: bool, rate: float, found: Seconds) -> None:
    """rate: rows a second; 0: as many as it takes."""
    begun_s = due_s = time.perf_counter()
    latencies: list[float] = []
    whole, end_s = False, begun_s + 1.0
    while (now_s := time.perf_counter()) < begun_s + seconds:
        if now_s >= end_s:
            found["whole" if whole else "changes" if saving else "none"].append(latencies)
            latencies, whole, end_s = [], False, end_s + 1.0
        if now_s < due_s:
            time.sleep(due_s - now_s)
        thread.take_some()
        if saving:
            whole |= thread.behaviour.rows.states.sweeping
            thread.look_round()
        latencies.append(time.perf_counter() - due_s)
        due_s = due_s + FRAME / rate if rate else time.perf_counter()
    thread.save()


def figures(thread: SavedThread, blocks: int, block_s: float, load: float) -> dict[str, Any]:
    counted, paced = defaultdict(list), defaultdict(list)  # type: Seconds, Seconds
    for turn in range(2 * blocks):
        block(thread, block_s, turn % 2 == 1, 0.0, counted)
    rates = {name: [len(one) * FRAME for one in some] for name, some in counted.items()}
    rate = load * statistics.median(rates["none"])
    for turn in range(2 * blocks):
        block(thread, block_s, turn % 2 == 1, rate, paced)
    p99 = {name: [statistics.quantiles(one, n=100)[98] * 1e3 for one in some] for name, some in paced.items()}
    found: dict[str, Any] = {}
    for name in rates:
        found[f"rows_per_s_{name}"] = spread(rates[name])
    for name in p99:
        found[f"p99_ms_{name}"] = spread(p99[name])
    for name in ("changes", "whole"):
        if name in rates:
            found[f"rate_{name}_to_none"] = statistics.median(rates[name]) / statistics.median(rates["none"])
        if name in p99:
            found[f"p99_{name}_to_none"] = statistics.median(p99[name]) / statistics.median(p99["none"])
    return found


def bench(
    keys: int = 1_000_000, store: str = "disk", blocks: int = 5, block_s: float = 10.0, load: float = 0.5
) -> dict[str, Any]:
    """store: disk, or folder (as with --state-to)."""
    with tempfile.TemporaryDirectory() as folder:
        far_snapshots.note_run(folder, "run")
        thread = SavedThread(keys, folder, store, 1)
        garbage.begin()
        thread.fill()
        thread.save()
        said(f"{keys:,} keys, {1e-6 * rss_bytes(os.getpid()):,.0f} MB")
        thread.change(int(keys * SHARE))
        change = thread.save()
        found = figures(thread, blocks, block_s, load)
        files = [file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()]
        memory = rss_bytes(os.getpid())
        many = thread.behaviour.rows.states.many
        del thread
        gc.collect()
        begun_s = time.perf_counter()
        again = SavedThread(keys, folder, store, 2)
        read_s = time.perf_counter() - begun_s
        assert again.behaviour.rows.states.many == many
        again.change(FRAME)
        whole = again.save()
    return {
        "keys": keys,
        "store": store,
        "bytes": sum(files),
        "process_bytes": memory,
        "whole_pause_s": whole[0],
        "whole_s": whole[1],
        "change_pause_s": change[0],
        "change_s": change[1],
        "read_s": read_s,
        **found,
    }


def said(text: str) -> None:
    print(f"state-checkpoints: {text}", file=sys.stderr)


BENCHMARKS = {"state-checkpoints": bench}
