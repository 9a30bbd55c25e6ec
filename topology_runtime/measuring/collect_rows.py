"""`python -P -m headgate.topology_runtime.measuring.collect_rows …`: real input rows for every task to be measured.

The process imports the user's code, reads some events from the source and passes them through the
tasks, upstream first. JSON lines on stdout tell which task is at work, so that whoever started it knows
which one hangs; the rows go to files.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from headgate.topology_runtime.api.loading import build, key_function
from headgate.topology_runtime.api.logic import Context, Exhausted, Keyed, LiveSource, To, Window, kind_of
from headgate.topology_runtime.api.references import last_lines
from headgate.topology_runtime.api.task_functions import is_async
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring.collected_rows import Speaker
from headgate.topology_runtime.platform.processes import die_with
from headgate.topology_runtime.worker.calls.attempts import shown
from headgate.topology_runtime.worker.calls.batches import call_of, rows_read
from headgate.topology_runtime.worker.meters import sample_rows
from headgate.topology_runtime.worker.meters.sample_rows import Sample

ROWS = 200
SECONDS_A_TASK = 3.0  # a slow task gives fewer rows
THREADS = 8  # waiting tasks give more in that time
LOOK_AGAIN_S = 0.01
ROW_MOST = 500  # characters of a row that is told


def collect(
    topology: Topology, desired: set[str], directory: str, tell: Callable[[str], None]
) -> dict[str, list[Sample]]:
    """Task → rows that reach it and from which task, for the tasks named in `desired`.

    `tell` hears the name of each task before it works. HeadgateError names the task that fails."""
    found: dict[str, list[Sample]] = {}
    outputs: dict[str, list[Any]] = {}
    needed = upstream_of(topology, desired)
    for task in topology.breadth_first:
        edges = [edge for _, edge in topology.in_edges(task.name)]
        inputs = interleaved([(edge.source, outputs.get(edge.source, [])) for edge in edges])[:ROWS]
        if edges and task.name in desired | needed and not inputs:
            raise HeadgateError(f"no row reached task {task.name!r} while collecting sample rows")
        if task.name in desired:
            found[task.name] = inputs
        if task.name in needed or (task.name in desired and task.kind == "hold"):
            tell(task.name)
            work = _Work(topology, task, directory)
            outputs[task.name] = work.through(inputs) if edges else in_own_thread(work.from_source)
            if task.name in desired:
                found[task.name] = work.whole(inputs)
    return found


def upstream_of(topology: Topology, desired: set[str]) -> set[str]:
    """Tasks whose output reaches one of these."""
    needed: set[str] = set()
    for task in reversed(topology.breadth_first):
        targets = {edge.target for _, edge in topology.out_edges(task.name)}
        if targets & (desired | needed):
            needed.add(task.name)
    return needed


def interleaved(branches: Sequence[tuple[str, Sequence[Any]]]) -> list[Sample]:
    """Rows of several tasks in about the order in which they would come."""
    placed = [
        ((place + 0.5) / len(rows), number, source, row)
        for number, (source, rows) in enumerate(branches)
        for place, row in enumerate(rows)
    ]
    return [(source, row) for _, _, source, row in sorted(placed, key=lambda item: item[:2])]


def in_own_thread(call: Callable[[], list[Any]]) -> list[Any]:
    return in_own_threads(lambda _: call(), 1)


def in_own_threads(call: Callable[[int], list[Any]], threads: int) -> list[Any]:
    """What `call(0)`, `call(1)`, … give, each in a new thread, together; raises what one of them raised. User code has
    one thread for its whole life in a worker, too: what it opens may be of use in that one alone."""
    with ThreadPoolExecutor(threads) as pool:
        parts = [pool.submit(call, number) for number in range(threads)]
        return [one for part in parts for one in part.result()]


class _Work:
    def __init__(self, topology: Topology, task: Task, directory: str) -> None:
        self._task = task
        self._edges = {edge.source: edge for _, edge in topology.in_edges(task.name)}
        self._directory = directory
        self._left: set[int] = set()  # numbers of the rows a Window did not fire
        self._failed: dict[int, Exception] = {}  # by the place of the row, where several threads try

    def _logic(self, number: int = 0) -> Any:
        try:
            logic = build(self._task)
            if is_async(logic):
                from headgate.topology_runtime.worker.process.async_calls import (
                    InLoop,  # with asyncio: few need it
                )

                logic = InLoop(logic, self._task.max_call_s)
            if hasattr(logic, "open"):
                logic.open(Context(self._task.name, number, 0, 1, self._directory))
        except HeadgateError:
            raise
        except Exception as error:  # user code
            raise self._fault("cannot run", error) from error
        return logic

    def _fault(self, what: str, error: Exception, *rows: Any) -> HeadgateError:
        """With what a dead letter has: the error, the places in the user's code, the row."""
        told = "".join(f"\n  the row: {shown(row, ROW_MOST)}" for row in rows)
        return HeadgateError(f"task {self._task.name!r} {what}", cause=f"{last_lines(error)}{told}")

    def from_source(self) -> list[Any]:
        """Events of the source, `ROWS` if they come in time."""
        source = self._logic()
        rows: list[Any] = []
        until_s = time.monotonic() + SECONDS_A_TASK
        try:
            while len(rows) < ROWS and time.monotonic() < until_s:
                more = ROWS - len(rows)
                new = (
                    source.poll(more)
                    if isinstance(source, LiveSource)
                    else rows_read(source, len(rows), more)
                )
                rows += list(new)
                if not new:
                    time.sleep(LOOK_AGAIN_S)
        except Exhausted:
            pass
        except Exception as error:  # user code
            raise self._fault("cannot be read", error) from error
        finally:
            _close(source)
        rows = [row for row in rows if not isinstance(row, Exception)]  # of what could not be read
        if not rows:
            raise HeadgateError(f"the source {self._task.name!r} gave no row in {SECONDS_A_TASK:g} s")
        return rows[:ROWS]

    def through(self, inputs: Sequence[Sample]) -> list[Any]:
        """The task's output for these rows; rows that raise are left out, unless half of them do."""
        out = self._mapped(inputs)
        if self._failed and 2 * len(self._failed) >= len(inputs):
            error = self._failed[min(self._failed)]
            raise self._fault("fails on most of its rows", error, inputs[min(self._failed)][1]) from error
        return [row.row if isinstance(row, To) else row for row in out]

    def whole(self, inputs: list[Sample]) -> list[Sample]:
        """The inputs without rows whose bucket stayed incomplete, where others were completed: played
        again and again, they would only pile up."""
        if len(self._left) == len(inputs):
            return inputs
        return [sample for number, sample in enumerate(inputs) if number not in self._left]

    def _mapped(self, inputs: Sequence[Sample]) -> list[Any]:
        """By as many threads as the worker would have, each with logic of its own, as there: opened, called and closed
        in it. What keeps rows for later has one."""
        until_s = time.monotonic() + SECONDS_A_TASK
        keeps = self._task.state == "keyed" or self._task.kind in ("hold", "keyed")
        parts = 1 if keeps else min(THREADS, len(inputs))

        def part(number: int) -> list[tuple[int, list[Any]]]:
            logic = self._logic(number)
            kind = kind_of(getattr(logic, "func", logic))
            try:
                if kind == "hold":
                    return [(0, self._hold(logic, inputs))]
                if kind == "keyed":
                    return [(0, self._keyed(logic, inputs))]
                done: list[tuple[int, list[Any]]] = []
                for place in range(number, len(inputs), parts):
                    if time.monotonic() < until_s or not done:
                        done.append((place, self._tried(place, _mapped, kind, logic, inputs[place][1])))
                return done
            finally:
                _close(logic)

        results = sorted(in_own_threads(part, parts), key=lambda done: done[0])
        return [row for _, rows in results for row in rows]

    def _tried(self, place: int, call: Callable[..., list[Any]], *arguments: Any) -> list[Any]:
        try:
            return call(*arguments)
        except Exception as error:  # user code: counted, and raised when half of the rows fail
            self._failed[place] = error
            return []

    def _hold(self, logic: Window, inputs: Sequence[Sample]) -> list[Any]:
        buckets: dict[Hashable, list[int]] = {}
        out: list[Any] = []

        def let_go(key: Hashable) -> list[Any]:
            return list(logic.finish(key, [inputs[number][1] for number in buckets.pop(key)]))

        def put(number: int) -> list[Any]:
            source, row = inputs[number]
            key = logic.key(row, source)
            bucket = buckets.setdefault(key, [])
            bucket.append(number)
            return let_go(key) if logic.ready(key, [inputs[n][1] for n in bucket]) else []

        for number in range(len(inputs)):
            out += self._tried(number, put, number)
        self._left = {number for bucket in buckets.values() for number in bucket}
        if logic.max_age_s is not None and not out:
            for number, key in enumerate(list(buckets), len(inputs)):
                out += self._tried(number, let_go, key)
        return out

    def _keyed(self, logic: Keyed, inputs: Sequence[Sample]) -> list[Any]:
        states: dict[Hashable, Any] = {}
        keys = {
            source: key_function(edge.key) for source, edge in self._edges.items() if edge.key is not None
        }
        out: list[Any] = []

        def put(source: str, row: Any) -> list[Any]:
            key = keys[source](row)
            state = states[key] if key in states else logic.new(key)
            states[key], rows = logic.process(key, row, state)
            return list(rows)

        for number, (source, row) in enumerate(inputs):
            out += self._tried(number, put, source, row)
        return out


def _mapped(kind: str, logic: Any, row: Any) -> list[Any]:
    batch = call_of(logic)
    result = batch.one(row) if batch is not None else logic(row)
    if kind == "flat_map":
        return list(result)
    if kind == "filter":
        return [row] if result else []
    return [result]


def _close(logic: Any) -> None:
    if hasattr(logic, "close"):
        logic.close()


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="headgate.topology_runtime.measuring.collect_rows")
    parser.add_argument("--topology", type=Path, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--task", action="append", default=[])
    parser.add_argument("--user-path", action="append", default=[])
    parser.add_argument("--owner", type=int, required=True)
    a = parser.parse_args(None if arguments is None else list(arguments))
    die_with(a.owner)
    speaker = Speaker()
    sys.path[:0] = a.user_path
    try:
        topology = msgspec.json.decode(a.topology.read_bytes(), type=Topology)
        found = collect(topology, set(a.task), str(a.directory), lambda task: speaker.say(task=task))
        for task, rows in found.items():
            sample_rows.write(a.directory / f"{task}.rows", rows)
    except HeadgateError as error:
        speaker.say_error(error)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # user threads that cannot end must not keep us
