"""W1 to W4 on PyFlink, process mode, parallelism 1. In W2 and W3 the tasks behind f1 are in a slot of their own, and so
in another Python process; all rows go through the JVM between them.

Called with the work, how many rows, and "quick" for W3 with bundles of 5 ms and buffers that are sent at once."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version

from pyflink.common import Configuration
from pyflink.common.typeinfo import Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import (
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor

from peers import work

NAME, TOTAL, QUICK = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "quick"
# PyFlink's own name for it; otherwise the workers are threads of this process
os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112


class Make(MapFunction):
    """A tuple of its number, or of when it is due."""

    def open(self, context):
        work.here()
        work.begin()

    def map(self, number):
        return int(number), 0.5, "0123456789"


class Parse(MapFunction):
    """An event of its number, parsed."""

    def open(self, context):
        self.pool, self.parse = work.events(), work.parser("msgspec")
        work.begin()

    def map(self, number):
        return self.parse(self.pool[number % work.POOL])


class Count(KeyedProcessFunction):
    def open(self, context):
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, row, context):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield row[0], count


class Into(FlatMapFunction):
    """The sink: once all rows are here, it gives what it has."""

    def __init__(self, name, total):
        self.name, self.total = name, total

    def open(self, context):
        work.here()
        self.sink = work.SINKS[self.name](self.total)

    def flat_map(self, row):
        self.sink(row)
        if self.sink.done:
            yield self.sink


def numbers(environment):
    if NAME == "W3":  # not among PyFlink's sources
        java = environment._j_stream_execution_environment
        return DataStream(java.socketTextStream("127.0.0.1", work.listen(TOTAL)))
    source = NumberSequenceSource(0, TOTAL - 1)
    return environment.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())


def main():
    settings = Configuration()
    settings.set_string("python.executable", sys.executable)
    settings.set_string("python.client.executable", sys.executable)
    settings.set_string("taskmanager.numberOfTaskSlots", "2")
    if QUICK:
        settings.set_string("python.fn-execution.bundle.time", "5")
        settings.set_string("execution.buffer-timeout.interval", "0 ms")
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(1)
    environment.enable_checkpointing(1000)
    rows = numbers(environment)
    if NAME == "W4":
        rows = rows.map(Parse()).key_by(work.user).process(Count())
    else:
        rows = rows.map(Make()).map(work.f1)
        group = "default" if NAME == "W1" else "second"  # a slot has one Python process for all its tasks
        rows = rows.map(work.f2).slot_sharing_group(group).map(work.f3)
    with rows.flat_map(Into(NAME, TOTAL)).execute_and_collect() as found:
        sink = next(iter(found))
    work.tell(NAME, sink, version("apache-flink"), "exactly once inside: checkpoints each second")


if __name__ == "__main__":
    main()
