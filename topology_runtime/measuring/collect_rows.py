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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from headgate.topology_runtime.api.logic import Exhausted
from headgate.topology_runtime.api.references import last_lines, resolve
from headgate.topology_runtime.api.timed import END_US
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring.collected_rows import Speaker
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.platform.processes import die_with
from headgate.topology_runtime.testing.input_rows import read_now
from headgate.topology_runtime.testing.run_results import failed_row
from headgate.topology_runtime.wire.messages import DeadLetter, Frame
from headgate.topology_runtime.worker.calls.user_code import ToRecord
from headgate.topology_runtime.worker.meters import sample_rows
from headgate.topology_runtime.worker.meters.sample_rows import Sample
from headgate.topology_runtime.worker.operators.timed_task import TimedTask
from headgate.topology_runtime.worker.operators.window_task import WindowTask
from headgate.topology_runtime.worker.process.called_thread import (
    INCARNATION,
    SLOT,
    CalledThread,
    batch_at,
    orders_for,
    ports_in,
)
from headgate.topology_runtime.worker.rows import row_runs
from headgate.topology_runtime.worker.rows.acks import Addressed
from headgate.topology_runtime.worker.rows.columns import Columns

ROWS = 200
SECONDS_A_TASK = 3.0  # a slow task gives fewer rows
THREADS = 8  # waiting tasks give more in that time
LOOK_AGAIN_S = 0.01
FRAME_S, FRAME_MOST = 0.05, 64  # frames have more rows as long as they are done so soon
FAILED_ENOUGH = 16  # rows: then the task fails


def collect(
    topology: Topology,
    desired: set[str],
    directory: str,
    tell: Callable[[str], None],
    find: Callable[[str], Any] = resolve,
) -> dict[str, list[Sample]]:
    """Task → rows that reach it and from which task, for the tasks named in `desired`.

    `tell` hears the name of each task before it works. find: the object of a reference. HeadgateError names the task
    that fails."""
    found: dict[str, list[Sample]] = {}
    outputs: dict[int, list[Any]] = {}  # by edge
    needed = upstream_of(topology, desired)
    for task in topology.breadth_first:
        edges = topology.in_edges(task.name)
        inputs = interleaved([(edge.source, outputs.get(number, [])) for number, edge in edges])[:ROWS]
        if edges and task.name in desired | needed and not inputs:
            raise HeadgateError(f"no row reached task {task.name!r} while collecting sample rows")
        if task.name in desired:
            found[task.name] = inputs
        if task.name in needed or (task.name in desired and task.kind == "hold"):
            tell(task.name)
            work = _Work(topology, task, directory, find)
            if edges:
                outputs |= work.through(inputs)
            else:
                rows = in_own_threads(work.from_source)
                outputs |= {number: rows for number, _ in topology.out_edges(task.name)}
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


def in_own_threads(call: Callable[[int], list[Any]], threads: int = 1) -> list[Any]:
    """What `call(0)`, `call(1)`, … give, each in a new thread, together; raises what one of them raised. User code has
    one thread for its whole life in a worker, too: what it opens may be of use in that one alone."""
    with ThreadPoolExecutor(threads) as pool:
        parts = [pool.submit(call, number) for number in range(threads)]
        return [one for part in parts for one in part.result()]


class _Kept:
    """What comes of the rows of one thread: what it gives on, (number of its input, edge, row), and dead letters.
    tried: how many rows it was given."""

    slot, incarnation = SLOT, INCARNATION

    def __init__(self) -> None:
        self.given: list[tuple[int, int, Any]] = []
        self.letters: list[DeadLetter] = []
        self.tried = 0

    def deliver(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            rows = frame.rows.rows() if isinstance(frame.rows, Columns) else frame.rows
            for row, (number, offset, _) in zip(rows, row_runs.single(frame.runs), strict=True):
                self.given.append((frame.roots[number].position + offset, frame.edge, row))

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        """Nothing waits for them."""

    def send_word(self, word: Any) -> None:
        """Barriers, of a plan that never changes."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def write(self, done: ToRecord, holding: int) -> None:
        self.letters += done.letters


class _Work:
    """One task over sample rows, as its threads in a worker would have it."""

    def __init__(self, topology: Topology, task: Task, directory: str, find: Callable[[str], Any]) -> None:
        self._topology, self._task, self._directory, self._find = topology, task, directory, find
        self._edges = {edge.source: number for number, edge in topology.in_edges(task.name)}
        self._orders = orders_for(topology)
        self._left: set[int] = set()  # numbers of the rows that a Window did not fire

    def _opened(self, kept: _Kept, number: int = 0) -> CalledThread:
        called = CalledThread(self._task, self._topology, ports_in(kept, self._find))
        called.build(self._find)
        try:
            called.open(self._directory, number)
        except Exception as error:  # user code
            raise self._fault("cannot run", last_lines(error)) from error
        return called

    def _close(self, called: CalledThread) -> None:
        try:
            called.close()
        except Exception as error:  # user code
            raise self._fault("cannot close", last_lines(error)) from error

    def _fault(self, what: str, cause: str) -> HeadgateError:
        return HeadgateError(f"task {self._task.name!r} {what}", cause=cause)

    def from_source(self, _: int) -> list[Any]:
        """Events of the source, `ROWS` if they come in time."""
        called, rows = self._opened(_Kept()), list[Any]()
        until_s = time.monotonic() + SECONDS_A_TASK
        try:
            while len(rows) < ROWS and time.monotonic() < until_s:
                if not (new := read_now(called.logic, len(rows), ROWS - len(rows))):
                    time.sleep(LOOK_AGAIN_S)
                rows += list(new)
        except Exhausted:
            pass
        except Exception as error:  # user code
            raise self._fault("cannot be read", last_lines(error)) from error
        finally:
            self._close(called)
        rows = [row for row in rows if not isinstance(row, Exception)]  # of what could not be read
        if not rows:
            raise HeadgateError(f"the source {self._task.name!r} gave no row in {SECONDS_A_TASK:g} s")
        return rows

    def through(self, inputs: Sequence[Sample]) -> dict[int, list[Any]]:
        """Edge → the rows that the task gives on over it; raises when it fails on half of its rows. By as many threads
        as the worker would have; what keeps rows for later has one."""
        keeps = self._task.state == "keyed" or self._task.kind in ("hold", "keyed")
        parts = 1 if keeps else min(THREADS, len(inputs))
        done = in_own_threads(lambda number: [self._part(inputs, number, parts)], parts)
        letters = [letter for kept in done for letter in kept.letters]
        if letters and 2 * len(letters) >= sum(kept.tried for kept in done):
            first = min(letters, key=lambda letter: letter.position)
            raise self._fault("fails on most of its rows", str(failed_row(first)))
        given = [one for kept in done for one in kept.given]
        if parts > 1:
            given.sort(key=lambda one: one[0])
        out: dict[int, list[Any]] = {}
        for _, edge, row in given:
            out.setdefault(edge, []).append(row)
        return out

    def whole(self, inputs: list[Sample]) -> list[Sample]:
        """The inputs without rows whose bucket stayed incomplete, where others were completed: played
        again and again, they would only pile up."""
        if len(self._left) == len(inputs):
            return inputs
        return [sample for number, sample in enumerate(inputs) if number not in self._left]

    def _part(self, inputs: Sequence[Sample], number: int, parts: int) -> _Kept:
        """In one thread: open, every so-manieth row in frames that grow while they are quick, close."""
        kept, until_s = _Kept(), time.monotonic() + SECONDS_A_TASK
        called = self._opened(kept, number)
        called.begin()
        called.core.obey(self._orders, monotonic_ns())
        places, most = list(range(number, len(inputs), parts)), 1
        try:
            while places and (time.monotonic() < until_s or not kept.tried):
                if len(kept.letters) >= FAILED_ENOUGH // parts:
                    break
                source, alike = next(groupby(places[:most], lambda place: inputs[place][0]))
                some, begun_s = list(alike), time.monotonic()
                self._take(called, self._edges[source], {place: inputs[place][1] for place in some})
                del places[: len(some)]
                kept.tried += len(some)
                most = min(2 * most, FRAME_MOST) if time.monotonic() - begun_s < FRAME_S else most
            self._end(called, kept)
        finally:
            self._close(called)
        return kept

    def _take(self, called: CalledThread, edge: int, rows: dict[int, Any]) -> None:
        """Rows by the numbers that they have."""
        first = min(rows)
        runs = [(0, place - first, 1, 0) for place in rows]
        batch = batch_at(0, 1 + first, 0, (0, 0, first), list(rows.values()), runs)
        called.take(edge, batch, monotonic_ns())

    def _end(self, called: CalledThread, kept: _Kept) -> None:
        """Which rows a Window has not fired; they are, if it gave nothing and fires by time. So do all timers."""
        if isinstance(timed := called.core.behaviour, TimedTask):
            timed.at_once(END_US, monotonic_ns())
            called.core.flush(monotonic_ns(), everything=True)
        if isinstance(window := called.core.behaviour, WindowTask):
            panes = window.windows.panes.by_key.values()
            self._left = {row.root.position + row.offset for pane in panes for row in pane.kept()}
            if not kept.given and window.due_ns is not None:
                called.core.settle(window.windows.fire_all(monotonic_ns()))
                called.core.flush(monotonic_ns(), everything=True)


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
