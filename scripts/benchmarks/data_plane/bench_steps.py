"""Where the time of a row goes in a worker, step by step: the threads of W1, W2 and W4, run by turns in one process.

Nothing is started: each thread's `turn` is called while something waits for it, so no thread waits for Python's lock or
is woken, and no socket is written to. Every named function is timed on its own (without those called in it that are
named too). Beside the table stand the same turns without being timed, which say what timing costs, and of frames of one
row; a plain loop that does the same work, and one that has a list of rows from each function for the next; and the CPU
of a row in real workers, by the system: what that is more are wakes, the lock, sockets and encryption.
"""
# bench: steps – where the time of a row goes, step by step, in W1, W2 and W4

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from benchmarks.benchmark_runner import SCRIPTS
from benchmarks.data_plane import bench_data_plane as w12
from benchmarks.data_plane import bench_work as w4
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.platform.clock import monotonic_ns, wall_ns
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.tasks.stateful import CountByKey
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import encode
from headgate.topology_runtime.wire.run_options import FRAME_ROWS
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.output_buffers import Outputs
from headgate.topology_runtime.worker.calls.user_code import UserCode
from headgate.topology_runtime.worker.keyed_state import applied_rows as applied
from headgate.topology_runtime.worker.keyed_state import keyed_rows
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedStates
from headgate.topology_runtime.worker.links import switchboard as sb
from headgate.topology_runtime.worker.links.switchboard import ChainedPost, Switchboard
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.meters.thread_records import FinishedLog
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.process import garbage
from headgate.topology_runtime.worker.process import source_thread as source_reader
from headgate.topology_runtime.worker.process import task_thread as frames
from headgate.topology_runtime.worker.process.source_thread import SourceWork
from headgate.topology_runtime.worker.process.task_thread import FrameWork, HeldLease, Host, TaskThread
from headgate.topology_runtime.worker.rig import Rig
from headgate.topology_runtime.worker.rows.row_values import RowChecks
from headgate.topology_runtime.worker.sources import source_ledger as ledger
from peers import work

ALL = 1 << 62
WORKS = ("W1", "W2", "W4")
TURN = "the turn: meter, orders, letting rows go"
WIRE = "wire: writing and reading frames"
STEPS: list[tuple[Any, str, str]] = [
    (source_reader, "rows_read", "reading the source"),
    (attempts, "each", "the tasks' functions"),
    (CountByKey, "process_all", "the tasks' functions"),
    (RowChecks, "pass_on", "looking at rows"),
    (Outputs, "put", "routes and shares"),
    (Outputs, "flush", "routes and shares"),
    (ledger.Ledger, "begin", "ledger and acks"),
    (ledger.Ledger, "sent", "ledger and acks"),
    (ledger.Ledger, "ack", "ledger and acks"),
    (Switchboard, "send_acks", "ledger and acks"),
    (ChainedPost, "end_and_send", "ledger and acks"),
    (FinishedLog, "append", "log of finished rows"),
    (sb, "written", WIRE),
    (frames, "read", WIRE),
    (keyed_rows.KeyedRows, "_places_of", "keys and their ranges"),
    (keyed_rows, "grouped", "which rows came before"),
    (applied.Applied, "outputs", "which rows came before"),
    (applied.Applied, "add", "which rows came before"),
    (KeyedStates, "process", "states around the function"),
    (KeyedTask, "_save", "snapshots"),
    (UserCode, "run", "around the functions"),
    (FrameWork, "turn", TURN),
    (FrameWork, "run_for", TURN),
    (SourceWork, "turn", TURN),
]
_decode = msgspec.msgpack.Decoder(m.Tuples).decode


class Steps:
    """ns by step, each without the steps called in it."""

    def __init__(self) -> None:
        self.ns: Counter[str] = Counter()
        self._inner = [0]

    def timed(self, function: Callable[..., Any], step: str) -> Callable[..., Any]:
        inner, ns, clock = self._inner, self.ns, time.perf_counter_ns

        def call(*args: Any, **named: Any) -> Any:
            begun = clock()
            inner.append(0)
            try:
                return function(*args, **named)
            finally:
                took = clock() - begun
                ns[step] += took - inner.pop()
                inner[-1] += took

        return call

    @contextmanager
    def on(self) -> Iterator[None]:
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in STEPS]
        for owner, name, step in STEPS:
            setattr(owner, name, self.timed(getattr(owner, name), step))
        try:
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)


class Line:
    """The threads of a rig's topology, none of them started: a board for each slot, frames between them as bytes."""

    def __init__(self, rig: Rig, folder: str) -> None:
        rig.send("committed", Schedule(wall_ns() - 10**12, ((0.0, 1e9),)))
        assert rig.desired is not None
        slots = sorted({thread.slot for thread in rig.threads})
        workers = tuple(m.WorkerAt(slot, number, "tcp://x:1") for number, slot in enumerate(slots, 1))
        desired = replace(rig.desired, workers=workers)
        self.boards: dict[Slot, Switchboard] = {}
        self.threads: list[TaskThread] = []
        for number, slot in enumerate(slots, 1):
            orders = orders_of(desired, slot, number)
            board, here = Switchboard(slot, number), dict[int, TaskThread]()
            board.slot_of = orders.slot_of
            self.boards[slot] = board
            host = Host(
                board, mt.Meter(mt.create()), folder, letters=_refuse, changed=lambda: None, crashed=_refuse,
                lock=threading.Lock(), disk=DiskTroubles(), lease=HeldLease(), one=threading.Lock(), threads=here,
            )  # fmt: skip
            for spec in (thread for thread in rig.threads if thread.slot == slot):
                work_of = SourceWork if rig.topology.by_name[spec.task].kind == "source" else FrameWork
                thread = TaskThread(spec, rig.topology, host, host.meter.thread_record(), work_of)
                here[spec.thread] = thread
                thread.startup()
                thread.orders = orders
                self.threads.append(thread)
        for thread in reversed(self.threads):
            thread.inbox.put(None)
            if isinstance(thread.work, FrameWork):
                thread.work.turn()

    def rows(self) -> int:
        """That the last task has taken."""
        last = self.threads[-1]
        return last.host.meter.words[last.at + mt.TUPLES_IN]

    def round(self, steps: Steps | None) -> None:
        """The source's turn, and those of all for whom something waits."""
        self.threads[0].inbox.put(None)  # it is not to wait for what is due
        self.threads[0].work.turn()
        for thread in self.threads[1:]:
            while not thread.inbox.empty():
                thread.work.turn()
            if len(self.boards) > 1:
                self._carry(steps)

    def _carry(self, steps: Steps | None) -> None:
        carry = self._carried if steps is None else steps.timed(self._carried, WIRE)
        for board in self.boards.values():
            with board.out.taken(ALL) as items:
                waiting = list(items)
            if waiting:
                carry(waiting)

    def _carried(self, waiting: list[tuple[Slot, Any]]) -> None:
        acks: dict[Slot, list[m.Ack]] = {}
        for slot, what in waiting:
            if isinstance(what, bytes):
                message = _decode(what)
                self.boards[slot].put(message.frame.target, (monotonic_ns(), message, len(what)))
            else:
                acks.setdefault(slot, []).extend(what)
        for slot, some in acks.items():
            for ack in _decode(encode(m.Acks(slot, 1, some))).acks:
                self.boards[slot].put(ack.key.thread, [ack])


def _refuse(what: Any) -> None:
    raise RuntimeError(f"this was not to happen: {what}")


def places_of(name: str) -> dict[str, list[int]]:
    if name == "W4":
        return {task: [0] for task in w4.NAMES}
    return {task: [int(name == "W2" and task in ("f2", "f3", "count"))] for task in w12.NAMES}


def rig_of(name: str, folder: str, chained: bool, frame_rows: int = FRAME_ROWS) -> Rig:
    """As scripts/bench W1, W2 and W4 (its kept form) have it."""
    if name == "W4":
        topology, names = w4.topology("kept", 10**12, "msgspec", f"{folder}/counts.json"), w4.NAMES
    else:
        topology, names = w12.topology(), w12.NAMES
    settings, modelled = m.DataPlaneSettings(frame_rows=frame_rows), dict.fromkeys(names, w12.MODELLED_TPS)
    chains = names if chained else ()
    return Rig(topology, places_of(name), folder, (str(SCRIPTS),), settings, modelled, chained=chains)


def stepped(name: str, chained: bool, seconds: float) -> tuple[dict[str, float], float, float]:
    """(µs of a row by step; all of a row, timed and not timed)."""
    with tempfile.TemporaryDirectory() as folder:
        rig = rig_of(name, folder, chained)
        line, steps = Line(rig, folder), Steps()
        spent = {True: [0, 0], False: [0, 0]}  # timed → rows, ns
        for _ in range(50):
            line.round(None)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for timed in (True, False):
                rows, begun = line.rows(), time.perf_counter_ns()
                if timed:
                    with steps.on():
                        for _ in range(50):
                            line.round(steps)
                else:
                    for _ in range(50):
                        line.round(None)
                spent[timed][0] += line.rows() - rows
                spent[timed][1] += time.perf_counter_ns() - begun
        rig.stop()
    (timed_rows, timed_ns), (bare_rows, bare_ns) = spent[True], spent[False]
    by_step = {step: ns / timed_rows / 1e3 for step, ns in steps.ns.items()}
    return by_step, timed_ns / timed_rows / 1e3, bare_ns / bare_rows / 1e3


def of_one_row(name: str, chained: bool, seconds: float) -> float:
    """µs of a frame of one row: what a frame costs, whatever is in it. Of the quickest tenth of many short stretches: a
    neighbour who is on the same core makes others half as long again."""
    with tempfile.TemporaryDirectory() as folder:
        rig = rig_of(name, folder, chained, 1)
        line, us = Line(rig, folder), list[float]()
        for _ in range(200):
            line.round(None)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            rows, begun = line.rows(), time.perf_counter_ns()
            for _ in range(25):
                line.round(None)
            us.append((time.perf_counter_ns() - begun) / (line.rows() - rows) / 1e3)
        rig.stop()
    return sorted(us)[len(us) // 10]


def lists(seconds: float) -> float:
    """µs of a row of W1 where each function makes a list for the next, without any of ours."""
    source, done, begun = w12.bt.Numbers(), 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        rows: list[Any] = source.read(done, FRAME_ROWS)
        for function in (w12.bt.f1, w12.bt.f2, w12.bt.f3, w12.bt.count):
            made: list[Any] = []
            made.extend(map(function, rows))
            rows = made
        done += FRAME_ROWS
    return (time.perf_counter() - begun) / done * 1e6


def real(name: str, chained: bool, seconds: float) -> float:
    """µs of CPU of a row in real workers, of all their threads, by the system."""
    with tempfile.TemporaryDirectory() as folder:
        rig = rig_of(name, folder, chained)
        last = rig.topology.tasks[-1].name
        try:
            rig.start()
            rig.offer([(0.0, w12.FULL_TPS)])
            rig.pump(1.0)
            rows, ns = rig.count(last), rig.cpu_ns()[""]
            rig.pump(seconds)
            return (rig.cpu_ns()[""] - ns) / (rig.count(last) - rows) / 1e3
        finally:
            rig.stop()


def plain(name: str, seconds: float) -> float:
    """µs of a row in the plain loop; of W2, W1's."""
    if name != "W4":
        return 1e6 / w12.bare_loop(seconds)
    pool, total = work.events(), int(200_000 * seconds)
    begun = time.perf_counter()
    work.plain_counts(pool, total, work.LastCounts(), "msgspec")
    return (time.perf_counter() - begun) / total * 1e6


def of_works(of: tuple[str, ...] = WORKS, repeats: int = 3, seconds: float = 1.0) -> list[dict[str, Any]]:
    if unknown := set(of) - set(WORKS):
        sys.exit(f"error: no steps of {', '.join(unknown)}; there are {', '.join(WORKS)}")
    garbage.begin()
    results: list[dict[str, Any]] = []
    for name, chained in ((name, chained) for name in of for chained in (True, False)):
        runs = []
        for i in range(repeats):
            bare = plain(name, seconds / 2)
            by_step, timed, not_timed = stepped(name, chained, seconds)
            told = {**by_step, "all steps, timed": timed, "the same, not timed": not_timed}
            told["a frame of one row"] = of_one_row(name, chained, seconds / 2)
            told["plain loop"] = bare
            if name != "W4":
                told["a list for each function"] = lists(seconds / 2)
            runs.append({**told, "CPU in real workers": real(name, chained, seconds)})
            how = "chained" if chained else "a thread per task"
            print(f"{name} {how} {i + 1}/{repeats}: {not_timed:.2f} µs a row", file=sys.stderr)
        median = {step: round(statistics.median(run[step] for run in runs), 3) for step in runs[0]}
        results.append({"of": name, "chained": chained, "n": repeats, "us_per_row": median})
    return results


def table(result: dict[str, Any]) -> str:
    lines = [f"{result['of']} {'chained' if result['chained'] else 'a thread per task'}, µs of a row"]
    return "\n".join([*lines, *(f"  {step:<42} {us:6.3f}" for step, us in result["us_per_row"].items())])


BENCHMARKS = {"steps": of_works}
