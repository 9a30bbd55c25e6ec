"""Side tables: the newest row of each key of a stream, read whole by each worker beside the rows of a task."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from headgate import (
    Context,
    Exhausted,
    LiveSource,
    OffsetSource,
    ServiceAway,
    SideTable,
    Source,
    batched,
    testing,
)
from headgate import topology as new_topology
from headgate.topology_runtime.errors import InvalidInput

AT_ONCE = 30.0  # for what comes by itself; never waited for


class Stream:
    """What a log holds, by partition; a test appends to it."""

    def __init__(self, *partitions: list[Any]) -> None:
        self.partitions = [list(one) for one in partitions]
        self.polled, self.made = threading.Semaphore(0), 0
        self.hidden = self.broken = 0  # rows that are there and are not given yet; polls that are to fail
        self.broken_from = len(partitions)  # partitions from here on fail each time

    def passes(self, turns: int = 3) -> None:
        """Wait until it has been asked so often again: what was appended before is in the table."""
        while self.polled.acquire(blocking=False):
            pass
        for _ in range(turns):
            assert self.polled.acquire(timeout=AT_ONCE)


STREAMS: dict[str, Stream] = {}


class Log(OffsetSource[Any]):
    def __init__(self, name: str) -> None:
        self.stream = STREAMS[name]
        self.stream.made += 1

    def open(self, context: Context) -> None:
        self.partition, self.rows = context.partition, self.stream.partitions[context.partition]
        assert context.partitions == len(self.stream.partitions)

    def seek(self, offset: int | None) -> None:
        self.at = offset or 0

    def poll(self, limit: int) -> Sequence[tuple[int, Any]]:
        self.stream.polled.release()
        if self.partition >= self.stream.broken_from:
            raise ConnectionError("this one is away")
        if self.stream.broken:
            self.stream.broken -= 1
            raise ConnectionError("the log is away")
        first, self.at = self.at, min(self.at + 2, len(self.rows) - self.stream.hidden)
        return [(n, self.rows[n]) for n in range(first, self.at)]

    def lag(self) -> int:
        return len(self.rows) - self.at


class Lines(Source[Any]):
    def read(self, position: int, limit: int) -> Sequence[Any]:
        if position >= 5:
            raise Exhausted
        return [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", None)][position : min(5, position + 2)]


class Endless(LiveSource[Any]):
    def poll(self, limit: int) -> Sequence[Any]:
        return []


@batched(columns=True)
class Arrays(Source[Any]):
    def read(self, position: int, limit: int) -> Any:
        return {}


def context(number: int = 1) -> Context:
    return Context("task", number, 0, 1, ".")


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> Stream:
    STREAMS[request.node.name] = found = Stream([("a", 1), ("b", 2), ("a", 3)])
    return found


def table(stream: Stream, **more: Any) -> SideTable:
    name = next(name for name, one in STREAMS.items() if one is stream)
    return SideTable(Log, {"name": name}, **{"key": 0, "value": 1, "threads": len(stream.partitions)} | more)


def test_it_has_the_newest_row_of_each_key_and_none_that_was_taken_away() -> None:
    lines = SideTable(Lines, key=0, value=1)
    lines.open(context())
    assert dict(lines) == {"a": 3, "c": 4} and len(lines) == 2
    assert (lines["a"], lines.get("b"), lines.get("b", 7), "c" in lines, "b" in lines) == (
        3,
        None,
        7,
        True,
        False,
    )
    with pytest.raises(KeyError):
        lines["b"]
    lines.close()
    assert len(lines) == 0


def test_rows_that_come_later_are_seen(stream: Stream) -> None:
    rates = table(stream)
    rates.open(context())
    assert dict(rates) == {"a": 3, "b": 2}
    stream.partitions[0] += [("b", None), ("z", 9), ("a", 4)]
    stream.passes()
    assert dict(rates) == {"a": 4, "z": 9}
    rates.close()


def test_threads_of_a_worker_share_one_copy_and_other_tables_have_their_own(stream: Stream) -> None:
    first, second, whole = table(stream), table(stream), table(stream, value=None)
    for number, one in enumerate((first, second, whole)):
        one.open(context(number))
    assert stream.made == 2 and first["a"] is second["a"] and whole["a"] == ("a", 3)
    first.close()
    stream.partitions[0].append(("a", 5))
    stream.passes()
    assert second["a"] == 5 and len(first) == 0
    second.close()
    whole.close()


def test_each_partition_is_read_by_a_thread_of_its_own(request: pytest.FixtureRequest) -> None:
    STREAMS[request.node.name] = three = Stream([("a", 1)], [("b", 2)], [("c", 3), ("c", 4)])
    rates = table(three)
    rates.open(context())
    assert dict(rates) == {"a": 1, "b": 2, "c": 4} and three.made == 3
    rates.close()


def test_a_table_that_is_not_up_to_date_holds_the_task_up_and_says_how_far_it_is(stream: Stream) -> None:
    stream.hidden = 1
    rates = table(stream, wait_s=0.01)
    with pytest.raises(ServiceAway, match=r"side table of Log is not up to date yet: \d rows? read"):
        rates.open(context())
    stream.hidden = 0
    again = table(stream, wait_s=AT_ONCE)  # as a worker does: it makes the task once more
    again.open(context())
    assert dict(again) == {"a": 3, "b": 2} and stream.made == 1, "it was read on meanwhile"
    again.close()


def test_what_cannot_be_read_is_said_and_read_again_from_the_beginning(
    stream: Stream, capfd: pytest.CaptureFixture[str]
) -> None:
    """A key that was taken away meanwhile is in a compacted topic no more, not even as one that was."""
    rates = table(stream)
    rates.open(context())
    stream.partitions[0][:] = [("a", 8)]
    stream.broken = 1
    stream.passes(6)
    assert dict(rates) == {"a": 8}
    assert "the side table of Log cannot be read: ConnectionError: the log is away" in capfd.readouterr().err
    rates.close()


def test_a_partition_that_cannot_be_read_is_said_once_while_others_can(
    request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    STREAMS[request.node.name] = two = Stream([("a", 1)], [("b", 2)])
    rates = table(two)
    rates.open(context())
    two.broken_from = 1
    two.passes(60)  # some of these are its own tries, a second apart
    assert capfd.readouterr().err.count("cannot be read") == 1
    assert dict(rates) == {"a": 1, "b": 2}
    rates.close()


def test_while_it_cannot_be_read_at_all_the_cause_is_told(stream: Stream) -> None:
    stream.broken = 1 << 30
    rates = table(stream, wait_s=0.0)
    with pytest.raises(ServiceAway):
        rates.open(context())
    stream.passes(1)
    stream.passes(1)  # the first failure has been told
    with pytest.raises(ServiceAway) as told:
        rates.open(context())
    assert "the log is away" in (told.value.cause or "")
    stream.broken = 0


def test_a_row_without_a_key_changes_nothing_and_is_said(
    stream: Stream, capfd: pytest.CaptureFixture[str]
) -> None:
    stream.partitions[0][1:1] = [ValueError("no JSON"), (), ([], 1)]
    rates = table(stream)
    rates.open(context())
    assert dict(rates) == {"a": 3, "b": 2}
    assert "has a row that is left out, and others may be: ValueError: no JSON" in capfd.readouterr().err
    rates.close()


def test_how_many_keys_there_are_is_a_metric_of_one_of_its_threads(stream: Stream) -> None:
    here = [context(1), context(2)]
    both = [table(stream), table(stream)]
    for one, where in zip(both, here, strict=True):
        one.open(where)
    stream.passes()
    values = [where.metrics.gauge("side_table_keys").value for where in here]
    assert [value for value in values if value is not None] == [2], "their sum is shown"
    for one in both:
        one.close()


@pytest.mark.parametrize("source", [Endless, Arrays, "m:x", dict])
def test_what_cannot_be_read_twice_or_row_by_row_is_refused(source: Any) -> None:
    with pytest.raises(InvalidInput, match="side table"):
        SideTable(source, key=0)
    with pytest.raises(InvalidInput, match="at least one thread"):
        SideTable(Lines, key=0, threads=0)


class InEuros:
    def __init__(self) -> None:
        self.rates = SideTable(Lines, key=0, value=1)

    def open(self, context: Context) -> None:
        self.rates.open(context)

    def __call__(self, row: tuple[str, float]) -> float:
        return row[1] / self.rates[row[0]]

    def close(self) -> None:
        self.rates.close()


def flow() -> Any:
    made = new_topology("euros")
    made.source("prices", Lines) >> made.task("euros", InEuros) >> made.task("store", print)
    return made


def test_a_flow_looks_up_rows_in_a_table_of_its_own() -> None:
    result = testing.run(flow(), {"prices": [("a", 6.0), ("c", 2.0), ("b", 1.0)]})
    assert result.rows["store"] == [2.0, 0.5]
    (letter,) = result.dead_letters
    assert "KeyError" in letter.error


@pytest.mark.live
def test_workers_read_the_table_too() -> None:
    result = testing.run(flow(), {"prices": [("a", 3.0 * n) for n in range(50)]}, workers=2)
    assert sorted(result.rows["store"]) == [float(n) for n in range(50)] and not result.dead_letters
