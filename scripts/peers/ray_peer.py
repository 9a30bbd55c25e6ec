"""W1 to W4 on ray: an actor per task, batches of 1,000 rows by reference; of W2 an actor for source and f1, one for all
that follows. W3 is a compiled graph: rows one by one from this process, which calls f1, to an actor with the rest.

Called with the work and how many rows."""

from __future__ import annotations

import os
import sys
from collections import deque
from importlib.metadata import version
from pathlib import Path

import ray
from ray.dag import InputNode

from peers import work

BATCH, IN_FLIGHT = 1000, 16
NAME, TOTAL = sys.argv[1], int(sys.argv[2])
DELIVERY = "at most once: actors are not started again; state in memory"


@ray.remote(num_cpus=0.2)
class Source:
    """f1 too."""

    def take(self, at):
        work.here()
        return list(map(work.f1, work.numbers(at, min(BATCH, TOTAL - at))))


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
    def __init__(self, *first):
        self.sink, self.first = work.SINKS[NAME](TOTAL), [getattr(work, name) for name in first]
        work.here()

    def take(self, rows):
        for function in self.first:
            rows = list(map(function, rows))
        for row in rows:
            self.sink(row)
        return len(rows)

    def take_one(self, row):
        self.sink(work.f3(work.f2(row)))
        return 0

    def given(self):
        return self.sink


def by_batches():
    """The sink's actor, once all rows are there."""
    if NAME == "W1":
        tasks, sink = [Maps.remote(n) for n in ("f1", "f2", "f3")], Sinks.remote()
    elif NAME == "W2":
        tasks, sink = [Source.remote()], Sinks.remote("f2", "f3")
    else:
        tasks, sink, pool = [Maps.remote("parse"), Counts.remote()], Sinks.remote(), work.events()
    ray.get([task.take.remote(TOTAL if NAME == "W2" else []) for task in tasks] + [sink.take.remote([])])
    work.begin()
    waiting = deque()
    for at in range(0, TOTAL, BATCH):
        many = min(BATCH, TOTAL - at)
        if NAME == "W2":
            rows = at
        else:
            rows = ray.put(work.numbers(at, many) if NAME == "W1" else work.read_events(pool, at, many))
        for task in tasks:
            rows = task.take.remote(rows)
        waiting.append(sink.take.remote(rows))
        if len(waiting) >= IN_FLIGHT:
            ray.get(waiting.popleft())
    ray.get(list(waiting))
    return sink


def one_by_one():
    sink = Sinks.remote()
    with InputNode() as row:
        graph = sink.take_one.bind(row).experimental_compile()
    work.here()
    for row in work.in_time(TOTAL):
        ray.get(graph.execute(work.f1(row)))
    graph.teardown()
    return sink


def main():
    here = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = here
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=400_000_000,
             runtime_env={"env_vars": {"PYTHONPATH": here}})  # fmt: skip
    given = ray.get((one_by_one() if NAME == "W3" else by_batches()).given.remote())
    ray.shutdown()
    work.tell(NAME, given, version("ray"), DELIVERY)


if __name__ == "__main__":
    main()
