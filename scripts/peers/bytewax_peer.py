"""W1 to W4 on bytewax: W1 and W4 in one worker, W2 and W3 in a cluster of two processes.

Called with the work, how many rows, and "items" for a source that gives its rows one at a time. Otherwise the items of
W1 and W2 are lists of 1,000 rows, which functions take whole, and W4's source gives 512 events at once."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main, run_main

from peers import work

NAME, TOTAL, ITEMS = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "items"
LISTS = NAME in ("W1", "W2") and not ITEMS
SOONEST = datetime.fromtimestamp(0, UTC)
TO_SECOND = "a"  # a key that belongs to the second of two workers


def all_rows():
    """Lists of items: what the source gives at once."""
    frame = 1 if ITEMS else 1000 if LISTS else 512
    pool = work.events() if NAME == "W4" else []
    work.begin()
    for at in range(0, TOTAL, frame):
        many = min(frame, TOTAL - at)
        rows = work.read_events(pool, at, many) if pool else work.numbers(at, many)
        yield [rows] if LISTS else rows


class Part(StatelessSourcePartition):
    """The first worker's; another worker's has no rows."""

    def __init__(self, first):
        self.rows = all_rows() if first else iter(())

    def next_batch(self):
        return next(self.rows)


class PartInTime(StatelessSourcePartition):
    """W3's rows, by bytewax's own waiting."""

    def __init__(self, first):
        self.left = TOTAL if first else 0
        self.due = None

    def next_batch(self):
        if not self.left:
            raise StopIteration
        now = work.time.time_ns()
        self.due = self.due or now + work.GAP_NS
        rows = []
        while self.due <= now and self.left:
            rows.append((self.due, 0.5, "0123456789"))
            self.due, self.left = self.due + work.GAP_NS, self.left - 1
        return rows

    def next_awake(self):
        return SOONEST + timedelta(microseconds=-(-self.due // 1000)) if self.due else None


class From(DynamicSource):
    def build(self, step_id, worker_index, worker_count):
        if worker_index == 0:
            work.here()
        return (PartInTime if NAME == "W3" else Part)(worker_index == 0)


class Into(StatelessSinkPartition):
    def __init__(self):
        self.sink = work.SINKS[NAME](TOTAL)

    def write_batch(self, items):
        sink = self.sink
        for rows in items if LISTS else [items]:
            for row in rows:
                sink(row)
        if sink.done:
            work.here()
            work.tell(NAME, sink, version("bytewax"), "at most once: no recovery store; state in memory")


class Sink(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Into()


class Across(op.StatefulBatchLogic):
    """Rows of a key are brought to its worker, and go on."""

    def on_batch(self, values):
        return values, False

    def snapshot(self):
        return None


def mapped(flow, name):
    function = getattr(work, name)
    return op.map(name, flow, (lambda rows: list(map(function, rows))) if LISTS else function)


def counted(state, row):
    count = (state or 0) + 1
    return count, count


def the_flow():
    flow = Dataflow("peer")
    rows = op.input("source", flow, From())
    if NAME == "W4":
        parsed = op.map("parse", rows, work.parser("msgspec"))
        rows = op.stateful_map("count", op.key_on("user", parsed, work.user), counted)
    else:
        rows = mapped(rows, "f1")
        if NAME != "W1":
            keyed = op.key_on("second", rows, lambda _: TO_SECOND)
            rows = op.key_rm("rows", op.stateful_batch("across", keyed, lambda _: Across()))
        rows = mapped(mapped(rows, "f2"), "f3")
    op.output("sink", rows, Sink())
    return flow


def in_process(number, addresses):
    cluster_main(the_flow(), addresses, number)


if __name__ == "__main__":
    if NAME in ("W1", "W4"):
        run_main(the_flow())
    else:
        from multiprocessing import get_context

        addresses = [f"127.0.0.1:{work.free_port()}" for _ in range(2)]
        second = get_context("spawn").Process(target=in_process, args=(1, addresses), daemon=True)
        second.start()
        in_process(0, addresses)
        second.join()
        sys.exit(second.exitcode)
