"""W1 and W4 on PyFlink, process mode, parallelism 1. Called with W1 or W4 and how many rows."""

from __future__ import annotations

import sys
import time
from importlib.metadata import version

from pyflink.common import Configuration
from pyflink.common.typeinfo import Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import FlatMapFunction, KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor

from peers import work


class Count(KeyedProcessFunction):
    def open(self, context):
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, row, context):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield row[0], count


class Parse(MapFunction):
    def open(self, context):
        self.pool, self.parse = work.events(), work.parser("msgspec")

    def map(self, number):
        return self.parse(self.pool[number % work.POOL])


class Into(FlatMapFunction):
    """The sink: once all rows are here, it gives what it has and how long that took."""

    def __init__(self, kind, total):
        self.kind, self.total = kind, total

    def open(self, context):
        self.sink, self.rows = getattr(work, self.kind)(), 0

    def flat_map(self, row):
        if not self.rows:
            self.start = time.perf_counter()
        self.sink(row)
        self.rows += 1
        if self.rows == self.total:
            yield time.perf_counter() - self.start, self.sink


def main(name: str, total: int) -> None:
    settings = Configuration()
    settings.set_string("python.executable", sys.executable)
    settings.set_string("python.client.executable", sys.executable)
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(1)
    environment.enable_checkpointing(1000)
    source = NumberSequenceSource(0, total - 1)
    rows = environment.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    if name == "W1":
        rows = rows.map(lambda n: (n, 0.5, "0123456789")).map(work.f1).map(work.f2).map(work.f3)
        rows = rows.flat_map(Into("Sum", total))
    else:
        rows = rows.map(Parse()).key_by(work.user).process(Count()).flat_map(Into("LastCounts", total))
    with rows.execute_and_collect() as found:
        seconds, sink = next(iter(found))
    delivery = "exactly once inside: checkpoints each second"
    work.tell(total, seconds, sink, version("apache-flink"), delivery)


main(sys.argv[1], int(sys.argv[2]))
