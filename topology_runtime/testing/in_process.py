"""A flow run in this process and this thread, to its end: the operators are the workers' own, each task one thread of
them that is called in turn. No socket, no clock, no thread: the same input gives the same result, and a debugger stops
where it is told to.

Time is virtual: it goes on by `wait` between rows and, after the input, from one pane that is due to the next.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from headgate.topology_runtime.api.builder import Builder
from headgate.topology_runtime.api.references import last_lines, resolve
from headgate.topology_runtime.api.task_functions import gave_none, key_function
from headgate.topology_runtime.api.timed import END_US, IDLE_US
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.api.validate import raise_if_any, run_faults
from headgate.topology_runtime.errors import BadRow, HeadgateError, InvalidInput
from headgate.topology_runtime.testing import input_rows
from headgate.topology_runtime.testing.run_results import FailedRow, Result, failed_row, watched
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.batches import rows_of
from headgate.topology_runtime.worker.calls.user_code import ToRecord
from headgate.topology_runtime.worker.keyed_state.timed_states import Held
from headgate.topology_runtime.worker.operators.keyed_task import SNAPSHOT_EVERY_NS, KeyedTask
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
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
from headgate.topology_runtime.worker.rows import row_runs as r
from headgate.topology_runtime.worker.rows import row_values
from headgate.topology_runtime.worker.rows.acks import Addressed
from headgate.topology_runtime.worker.sources.source_watermark import watermark_of

START_NS = 1 << 50  # the virtual clock at the beginning
Inputs = Mapping[str, Iterable[Any]]
Ran = tuple[Result, list[str]]  # and warnings
Shown = Callable[[str, Any], None]  # a sink or task, and a row of it or a FailedRow


class InProcessRun:
    """All threads of a topology, one for each task. They reach each other through it (`Post`), and write down here what
    is done (`Records`)."""

    slot, incarnation = SLOT, INCARNATION

    def __init__(self, topology: Topology, find: Callable[[str], Any], directory: str, shown: Shown) -> None:
        self.topology, self.directory = topology, directory
        self.now_ns = START_NS
        self.rows: dict[str, list[Any]] = {}
        self.letters: list[FailedRow] = []
        self.logics: dict[str, Any] = {}
        self._find, self._shown = find, shown
        self._began_ns = time.time_ns() - START_NS  # what timers by the clock are set from
        self._watermarks = {
            task.name: watermark_of(task, partial(key_function, find=find))
            for task in topology.sources
            if topology.timed_below(task.name)
        }
        self._frames: deque[m.Frame] = deque()
        self._sequences = count(1)
        ports = ports_in(self, find)
        self._called = {task.name: CalledThread(task, topology, ports, _pause) for task in topology.tasks}
        self._cores = {task: called.core for task, called in self._called.items()}
        self._threads = {core.desired.thread: core for core in self._cores.values()}

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def open(self, given: Inputs) -> None:
        """Every task's object, but of sources whose rows are given; orders and routes."""
        for task in self.topology.tasks:
            if task.name not in given:
                self._open(task)
        orders = orders_for(self.topology)
        for core in self._cores.values():
            core.obey(orders, self.now_ns)

    def _open(self, task: Task) -> None:
        called = self._called[task.name]
        called.build(self._find)
        with _told(f"task {task.name!r}: open() raised"):
            called.open(self.directory)
        self.logics[task.name] = called.logic
        if not self.topology.in_edges(task.name):
            return
        if not called.core.results.around.sink:
            called.begin()
            return
        self.rows[task.name] = []
        called.begin(partial(watched, see=partial(self._see, task.name)))

    def close(self) -> None:
        """Every object that is open; the first failure is raised when all have been asked."""
        failed: list[HeadgateError] = []
        for task in self.logics:
            try:
                with _told(f"task {task!r}: close() raised"):
                    self._called[task].close()
            except HeadgateError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _see(self, sink: str, rows: Iterable[Any]) -> None:
        for row in rows:
            self.rows[sink].append(row)
            self._shown(sink, row)

    # ── what threads reach ──────────────────────────────────────────────────────────────────────

    def deliver(self, frames: Iterable[m.Frame]) -> None:
        self._frames.extend(frames)

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        """Nothing waits for them: no row can be lost here."""

    def send_word(self, word: Any) -> None:
        """Barriers, of a plan that never changes."""

    def wall_ns(self) -> int:
        return self._began_ns + self.now_ns

    def write(self, done: ToRecord, holding: int) -> None:
        for letter in done.letters:
            failed = failed_row(letter)
            self.letters.append(failed)
            self._shown(letter.task, failed)

    # ── rows and time ───────────────────────────────────────────────────────────────────────────

    def give(self, source: str, position: int, rows: input_rows.Rows) -> None:
        """Rows of a source, and all that comes of them."""
        core = self._cores[source]
        batch = self._batch(core, source, 0, position, rows, [(0, 0, len(rows), 0)])
        if getattr(self.logics.get(source), "gives_errors", False):
            bad = [attempts.failure(n, row) for n, row in enumerate(rows) if isinstance(row, Exception)]
            batch = core.results.bury(batch, bad) if bad else batch
        if self.topology.timed_below(source):
            self._emit_each(core, batch)
        else:
            self._emit(core, batch)

    def _emit_each(self, core: ThreadCore, batch: r.Batch) -> None:
        """Row by row: the watermark rises between them."""
        times = self._watermarks[core.task.name]
        for row in range(len(batch.rows)):
            one = batch.part(row, row + 1)
            self._emit(core, one)
            if times is not None:
                times.begin(row, one.rows, self.now_ns)
                times.done_below(row + 1)
            self.fire()

    def fire(self) -> None:
        """Timers of tasks with event time, up to the watermark that each has by now."""
        for task in self.topology.timed:
            core = self._cores[task]
            timed = core.behaviour
            assert isinstance(timed, TimedTask)
            if timed.at_once(self._lowest_us(task), self.now_ns):
                self._run_empty(core)

    def _lowest_us(self, task: str) -> int | None:
        upstream, lowest_us = self.topology.upstream(task), END_US
        for source, times in self._watermarks.items():
            if times is None or source not in upstream or (told_us := times.told_us(self.now_ns)) == IDLE_US:
                continue
            if told_us is None:
                return None
            lowest_us = min(lowest_us, told_us)
        return lowest_us if lowest_us < END_US else None

    def _batch(
        self, core: ThreadCore, source: str, partition: int, position: int, rows: Any, runs: list[r.Run]
    ) -> r.Batch:
        """Rows under a root of their own."""
        sequence, number = next(self._sequences), [task.name for task in self.topology.sources].index(source)
        behaviours = [core.behaviour for core in self._cores.values()]
        held = any(one.holding for one in behaviours if isinstance(one, WindowTask))
        floor = 0 if held else sequence
        place = number, partition, position
        return batch_at(core.desired.thread, sequence, floor, place, rows, runs)

    def _emit(self, core: ThreadCore, batch: r.Batch) -> None:
        core.results.emit(batch, self.now_ns)
        core.settle([])
        self._run_empty(core)

    def _run_empty(self, core: ThreadCore) -> None:
        """What this thread gave on, and what comes of that, until nothing is under way."""
        core.flush(self.now_ns, everything=True)
        while self._frames:
            frame = self._frames.popleft()
            core = self._threads[frame.target]
            core.take(frame, self.now_ns)
            core.flush(self.now_ns, everything=True)

    def go_on_to(self, until_ns: int | None) -> None:
        """Time goes on, from one pane that is due to the next; None: until none is."""
        while True:
            due = [core.behaviour.due_ns for core in self._cores.values() if self._waits_for(core, until_ns)]
            next_ns = min((due_ns for due_ns in due if due_ns is not None), default=until_ns)
            if next_ns is None or (until_ns is not None and next_ns > until_ns):
                break
            self.now_ns = max(self.now_ns, next_ns)
            self._look_round()
            if next_ns == until_ns:
                break
        self.now_ns = max(self.now_ns, until_ns or 0)
        self.fire()

    def _waits_for(self, core: ThreadCore, until_ns: int | None) -> bool:
        """Timers by the clock that are not due at the end of the input never are."""
        return until_ns is not None or not isinstance(core.behaviour, TimedTask)

    def _look_round(self) -> None:
        for core in self._cores.values():
            if core.behaviour.by_the_clock and not isinstance(core.behaviour, TimedTask):  # these: `fire`
                core.on_time(self.now_ns)
                self._run_empty(core)
        self.fire()

    def _check_states(self, task: str, core: ThreadCore) -> None:
        """Can all be saved as they are? Raises InvalidInput."""
        if isinstance(core.behaviour, KeyedTask):
            logic = core.behaviour.rows.code.logic
            for key, state in self._states(core):
                try:
                    row_values.check([[key, logic.snapshot(state)]])
                except BadRow as error:
                    raise InvalidInput(
                        f"state of task {task!r} cannot be saved, of key {key!r}",
                        cause=error.cause or error.what,
                        hint="`snapshot` is to give a plain value for a state, `restore` the state for that",
                    ) from error

    def end(self) -> None:
        """The input is over: what is due by time comes, then what is still kept, task by task."""
        self.go_on_to(None)
        for task in self.topology.breadth_first:
            core = self._cores[task.name]
            if isinstance(core.behaviour, WindowTask):
                core.settle(core.behaviour.windows.fire_all(self.now_ns))
                self._run_empty(core)
            elif isinstance(core.behaviour, KeyedTask):
                if isinstance(core.behaviour, TimedTask) and core.behaviour.at_once(END_US, self.now_ns):
                    self._run_empty(core)
                if isinstance(core.behaviour, TimedTask):
                    core.behaviour.rows.may_finish = True
                self._finish(core, core.behaviour.rows.code.logic)
        for name, core in self._cores.items():
            self._check_states(name, core)
        self.now_ns += SNAPSHOT_EVERY_NS
        self._look_round()

    def _finish(self, core: ThreadCore, logic: Any) -> None:
        """What `finish` gives for each key."""
        source = self.topology.sources[0].name
        for number, (key, state) in enumerate(self._states(core)):
            rows, failed = attempts.once(partial(_finished, logic, key, state), _pause)
            batch = self._batch(core, source, 1, number, [key], [(0, 0, 1, 0)])
            if failed is not None:
                core.results.bury(batch, [failed])
                core.settle([])
            else:
                named = [(0, 0, 1, r.over_index(0, index)) for index in range(len(rows))]
                self._emit(core, r.Batch(rows, named, batch.roots))

    def _states(self, core: ThreadCore) -> list[tuple[Any, Any]]:
        assert isinstance(core.behaviour, KeyedTask)
        states = core.behaviour.rows.states
        return [pair for key_range in sorted(states.filled) for pair in states.of(key_range).items()]

    def warnings(self) -> list[str]:
        """Of what is hardly meant."""
        forgetful = [task for task, core in self._cores.items() if core.results.gave_none]
        return [gave_none(task, self.logics[task]) for task in forgetful]

    def result(self) -> Result:
        keyed = {task: core for task, core in self._cores.items() if isinstance(core.behaviour, KeyedTask)}
        states = {
            task: {
                key: state.state if isinstance(state, Held) else state for key, state in self._states(core)
            }
            for task, core in keyed.items()
        }
        return Result(self.rows, self.letters, states)


def _finished(logic: Any, key: Any, state: Any) -> list[Any]:
    return rows_of(logic.finish(key, state))


@contextmanager
def _told(what: str) -> Iterator[None]:
    """What the user's code raises, as a fault of it."""
    try:
        yield
    except Exception as error:
        raise InvalidInput(f"{what} {type(error).__name__}", cause=last_lines(error)) from error


def _pause(seconds: float) -> None:
    """Between two tries, in no time; somebody who leaves the debugger is not to be asked again."""
    debugger = sys.modules.get("bdb")
    if debugger is not None and isinstance(error := sys.exception(), debugger.BdbQuit):
        raise error


def show(task: str, row: Any) -> None:
    """A row of a sink as a line, or one that a task failed on."""
    if isinstance(row, FailedRow):
        print(f"failed: {row}", file=sys.stderr, flush=True)
    else:
        print(f"{task}: {row!r}", flush=True)


def run_here(
    flow: Builder | Topology, inputs: Inputs | None, most: int | None = None, shown: Shown = lambda *_: None
) -> Result:
    """See `testing.run`. most: rows of each source that is read. shown: told of every row as it comes."""
    objects: dict[str, Any] = {}
    topology = flow.build(objects) if isinstance(flow, Builder) else flow
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InvalidInput(f"cannot run {most!r} rows", hint="1 or more, as in flow.run(rows=20)")
    raise_if_any(run_faults(topology), f"topology {topology.name!r}")
    given = input_rows.checked(topology, inputs)
    result, told = _beside_a_loop(partial(_run, topology, objects, given, most, shown))
    for text in told:
        warnings.warn(text, stacklevel=3)
    return result


def _beside_a_loop(run: Callable[[], Ran]) -> Ran:
    """Where an event loop runs already, as in a notebook, tasks can run none of their own: then in another thread."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return run()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def _run(
    topology: Topology, objects: Mapping[str, Any], given: Inputs, most: int | None, shown: Shown
) -> Ran:
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        directory = os.path.realpath(folder)
        run = InProcessRun(
            topology, lambda name: objects[name] if name in objects else resolve(name), directory, shown
        )
        try:
            run.open(given)
            _play(run, given, most)
            run.end()
        finally:
            run.close()
        return run.result(), run.warnings()


def _play(run: InProcessRun, given: Inputs, most: int | None) -> None:
    """All rows of all sources."""
    positions: dict[str, int] = {}
    coming = {
        task.name: input_rows.given(given[task.name])
        if task.name in given
        else input_rows.read(task.name, run.logics[task.name], most)
        for task in run.topology.sources
    }
    for source, at_ns, rows in input_rows.in_turn(coming):
        run.go_on_to(START_NS + at_ns)
        if rows:
            position = positions.get(source, 0)
            positions[source] = position + len(rows)
            run.give(source, position, rows)
