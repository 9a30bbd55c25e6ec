"""W1 and W4 on bytewax, one worker, item by item. Called with W1 or W4 and how many rows."""

from __future__ import annotations

import sys
import time
from importlib.metadata import version

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from peers import work

FRAME = 1 if sys.argv[3:] == ["items"] else 512  # rows that the source gives at once


class Part(StatelessSourcePartition):
    def __init__(self, read, total):
        self.read, self.total, self.position = read, total, 0

    def next_batch(self):
        if self.position >= self.total:
            raise StopIteration
        rows = self.read(self.position, min(FRAME, self.total - self.position))
        self.position += len(rows)
        return rows


class From(DynamicSource):
    def __init__(self, read, total):
        self.read, self.total = read, total

    def build(self, step_id, worker_index, worker_count):
        return Part(self.read, self.total)


class Into(StatelessSinkPartition):
    def __init__(self, sink):
        self.sink = sink

    def write_batch(self, items):
        for item in items:
            self.sink(item)


class Sink(DynamicSink):
    def __init__(self, sink):
        self.sink = sink

    def build(self, step_id, worker_index, worker_count):
        return Into(self.sink)


def counted(state, row):
    count = (state or 0) + 1
    return count, count


def main(name: str, total: int) -> None:
    flow = Dataflow("peer")
    if name == "W1":
        sink = work.Sum()
        rows = op.input("source", flow, From(work.numbers, total))
        for function in (work.f1, work.f2, work.f3):
            rows = op.map(function.__name__, rows, function)
    else:
        sink, pool = work.LastCounts(), work.events()
        data = op.input("events", flow, From(lambda at, most: work.read_events(pool, at, most), total))
        parsed = op.map("parse", data, work.parser("msgspec"))
        rows = op.stateful_map("count", op.key_on("user", parsed, work.user), counted)
    op.output("sink", rows, Sink(sink))
    start = time.perf_counter()
    run_main(flow)
    seconds = time.perf_counter() - start
    work.tell(total, seconds, sink, version("bytewax"), "at most once: no recovery store; state in memory")


main(sys.argv[1], int(sys.argv[2]))
