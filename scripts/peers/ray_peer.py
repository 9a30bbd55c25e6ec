"""W1 and W4 on ray: an actor per task, batches of 1,000 rows by reference. Called with W1 or W4 and how many rows."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from importlib.metadata import version
from pathlib import Path

import ray

from peers import work

BATCH, IN_FLIGHT = 1000, 16


@ray.remote(num_cpus=0.2)
class Maps:
    def __init__(self, name):
        self.function = work.parser("msgspec") if name == "parse" else getattr(work, name)

    def take(self, rows):
        return list(map(self.function, rows))


@ray.remote(num_cpus=0.2)
class Counts:
    def __init__(self):
        self.counts = {}

    def take(self, rows):
        out, counts = [], self.counts
        for row in rows:
            key = row[0]
            counts[key] = count = counts.get(key, 0) + 1
            out.append((key, count))
        return out


@ray.remote(num_cpus=0.2)
class Sinks:
    def __init__(self, kind):
        self.sink = getattr(work, kind)()

    def take(self, rows):
        for row in rows:
            self.sink(row)
        return len(rows)

    def given(self):
        return self.sink


def main(name: str, total: int) -> None:
    here = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = here
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=400_000_000,
             runtime_env={"env_vars": {"PYTHONPATH": here}})  # fmt: skip
    if name == "W1":
        tasks, sink, read = [Maps.remote(n) for n in ("f1", "f2", "f3")], Sinks.remote("Sum"), work.numbers
    else:
        tasks, sink, pool = [Maps.remote("parse"), Counts.remote()], Sinks.remote("LastCounts"), work.events()
        read = lambda at, most: work.read_events(pool, at, most)  # noqa: E731
    ray.get([task.take.remote([]) for task in tasks] + [sink.take.remote([])])  # all are there
    start, waiting = time.perf_counter(), deque()
    for at in range(0, total, BATCH):
        rows = ray.put(read(at, min(BATCH, total - at)))
        for task in tasks:
            rows = task.take.remote(rows)
        waiting.append(sink.take.remote(rows))
        if len(waiting) >= IN_FLIGHT:
            ray.get(waiting.popleft())
    ray.get(list(waiting))
    seconds = time.perf_counter() - start
    given = ray.get(sink.given.remote())
    ray.shutdown()
    work.tell(
        total, seconds, given, version("ray"), "at most once: actors are not started again; state in memory"
    )


main(sys.argv[1], int(sys.argv[2]))
