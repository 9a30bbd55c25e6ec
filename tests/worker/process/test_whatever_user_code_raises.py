"""Every place that calls code of the user, with whatever ends programs elsewhere: the thread goes on, the failure is
told of the row or of the task, and all other rows get through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from keyed_rows_made import keyed_rows, sent
from line_of_threads import INCARNATION, SLOT, host_of
from test_panes_at_the_end import Bench

from headgate.topology_runtime.api.logic import (
    Exhausted,
    Keyed,
    LiveSource,
    OffsetSource,
    RowId,
    Sink,
    Source,
    Window,
    batched,
    flat_map,
    has_offsets,
    keep_if,
)
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.dead_letter_messages import END_PARTITION
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.links.switchboard import Switchboard
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.process import async_work, source_thread
from headgate.topology_runtime.worker.process.source_thread import SourceWork
from headgate.topology_runtime.worker.process.task_thread import FrameWork, TaskThread

ROWS, BAD = 10, 5
armed: list[type[BaseException]] = []  # what is raised …
left = [0]  # … and how often still, where it is not of a row
got: list[int] = []


class Own(BaseException):
    """Of nobody's kind."""

    def __str__(self) -> str:
        raise SystemExit("nor does it say what it is")


KINDS: list[type[BaseException]] = [
    KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, StopIteration, StopAsyncIteration,
    MemoryError, RecursionError, BaseException, Exhausted, Own,
]  # fmt: skip


def of_row(row: int) -> int:
    if row == BAD and armed:
        raise armed[0]
    return row


def now() -> None:
    if left[0]:
        left[0] -= 1
        raise armed[0]


class Numbers(Source):
    def read(self, position: int, limit: int) -> list[int]:
        return list(range(position, min(ROWS, position + limit)))


class ReadFails(Numbers):
    def read(self, position: int, limit: int) -> list[int]:
        now()
        return super().read(position, limit)


class Polled(LiveSource[Any]):
    arriving = False

    def __init__(self) -> None:
        self.at = 0

    def poll(self, limit: int) -> Sequence[int]:
        rows = list(range(self.at, ROWS))
        self.at = ROWS
        return rows


class PollFails(Polled):
    def poll(self, limit: int) -> Sequence[int]:
        now()
        return super().poll(limit)


class CameFails(Polled):
    def came(self, row: int) -> float | None:
        now()
        return None


class DurableFails(Polled):
    def durable(self, rows: int) -> None:
        now()


class Log(OffsetSource[Any]):
    """The rows, at twice their numbers."""

    at = 0

    def seek(self, offset: int | None) -> None:
        self.at = ((offset or 0) + 1) // 2

    def poll(self, limit: int) -> Sequence[tuple[int, int]]:
        first, self.at = self.at, min(ROWS, self.at + 4)
        return [(2 * n, n) for n in range(first, self.at)]


class SeekFails(Log):
    def seek(self, offset: int | None) -> None:
        now()
        super().seek(offset)


class PollOfLogFails(Log):
    def poll(self, limit: int) -> Sequence[tuple[int, int]]:
        now()
        return super().poll(limit)


class CameOfLogFails(Log):
    def came(self, row: int) -> float | None:
        now()
        return None


class DoneFails(Log):
    def done(self, offset: int) -> None:
        now()


class LagFails(Log):
    def lag(self) -> int:
        now()
        return 0


def plain(row: int) -> int:
    return row


def mapped(row: int) -> int:
    return of_row(row)


@flat_map
def flat(row: int) -> Iterator[int]:
    yield of_row(row)


@keep_if
def kept(row: int) -> bool:
    return of_row(row) >= 0


@batched
def many(rows: list[int]) -> list[int]:
    return [of_row(row) for row in rows]


async def awaited(row: int) -> int:
    await asyncio.sleep(0)
    return of_row(row)


async def starts(row: int) -> int:
    async def beside() -> None:
        now()

    started.append(asyncio.get_running_loop().create_task(beside()))
    await asyncio.sleep(0)
    return row


started: list[Any] = []


class OpenFails:
    def open(self, context: object) -> None:
        now()

    def __call__(self, row: int) -> int:
        return row


class CloseFails:
    def __call__(self, row: int) -> int:
        return row

    def close(self) -> None:
        now()


class AsyncOpenFails:
    async def open(self, context: object) -> None:
        now()

    async def __call__(self, row: int) -> int:
        return row


class AsyncCloseFails:
    async def __call__(self, row: int) -> int:
        return row

    async def close(self) -> None:
        now()


class CloseIsNone:
    """Not even asked for its `close` it stays calm."""

    def __call__(self, row: int) -> int:
        return row

    @property
    def close(self) -> Any:
        now()
        return lambda: None


class Each(Window[Any, Any, Any]):
    """A pane for each row."""

    def key(self, row: int, source: str) -> Any:
        return row

    def ready(self, key: Any, rows: Sequence[int]) -> bool:
        return True

    def finish(self, key: Any, rows: Sequence[int]) -> Sequence[int]:
        return rows


class PaneKeyFails(Each):
    def key(self, row: int, source: str) -> Any:
        return of_row(row)


class Unequal(int):
    """As a key it raises where it is compared."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        of_row(int(self))
        return int(self) == other


class PaneKeyIsOdd(Each):
    def key(self, row: int, source: str) -> Any:
        return Unequal(row)


class ReadyFails(Each):
    def ready(self, key: Any, rows: Sequence[int]) -> bool:
        return of_row(rows[0]) >= 0


class PaneFinishFails(Each):
    def finish(self, key: Any, rows: Sequence[int]) -> Sequence[int]:
        return [of_row(row) for row in rows]


class OldFails(PaneFinishFails):
    max_age_s = 0.0

    def ready(self, key: Any, rows: Sequence[int]) -> bool:
        return False


class Sums(Keyed):
    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: int, state: int) -> tuple[int, list[int]]:
        return state + row, [row]


class NewFails(Sums):
    def new(self, key: Any) -> int:
        return of_row(key) * 0


class ProcessFails(Sums):
    def process(self, key: Any, row: int, state: int) -> tuple[int, list[int]]:
        return state, [of_row(row)]


class FinishFails(Sums):
    def finish(self, key: Any, state: int) -> list[int]:
        return [of_row(key)]


class SnapshotFails(Sums):
    def new(self, key: Any) -> Any:
        return [key]

    def process(self, key: Any, row: int, state: Any) -> Any:
        return [key, row], [row]

    def snapshot(self, state: Any) -> Any:
        of_row(state[0])
        return state


def sink(row: int) -> None:
    got.append(row)


class Written(Sink[int]):
    def write(self, rows: Sequence[int], ids: Sequence[RowId]) -> None:
        for row in rows:
            got.append(of_row(row))


class WrittenTogether(Written):
    batch_rows, batch_age_s = 4, 0.0


def by_row(row: int) -> int:
    return of_row(row)


HOOKS_OF_ROWS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a function": (mapped, {}),
    "flat_map": (flat, {}),
    "keep_if": (kept, {}),
    "batched": (many, {}),
    "async": (awaited, {}),
    "key of an edge to it": (Sums, {"state": "keyed", "key": "by_row"}),
    "new": (NewFails, {"state": "keyed"}),
    "process": (ProcessFails, {"state": "keyed"}),
    "snapshot": (SnapshotFails, {"state": "keyed"}),
    "key of an edge to a map": (plain, {"key": "by_row"}),
    "key of an edge to a window": (Each, {"key": "by_row"}),
    "key of a pane": (PaneKeyFails, {}),
    "a key that is odd": (PaneKeyIsOdd, {}),
    "ready": (ReadyFails, {}),
    "finish of a pane": (PaneFinishFails, {}),
    "finish of an old pane": (OldFails, {}),
    "write": (plain, {"sink": Written}),
    "write of rows together": (plain, {"sink": WrittenTogether}),
}
HOOKS_ONCE: dict[str, tuple[Any, Any]] = {
    "read": (ReadFails, plain),
    "poll": (PollFails, plain),
    "came": (CameFails, plain),
    "durable": (DurableFails, plain),
    "seek": (SeekFails, plain),
    "poll of a log": (PollOfLogFails, plain),
    "came of a log": (CameOfLogFails, plain),
    "done": (DoneFails, plain),
    "lag": (LagFails, plain),
    "open": (Numbers, OpenFails),
    "close": (Numbers, CloseFails),
    "open of an async task": (Numbers, AsyncOpenFails),
    "close of an async task": (Numbers, AsyncCloseFails),
    "its close": (Numbers, CloseIsNone),
    "what a task started": (Numbers, starts),
}


def reference(what: Any) -> str:
    return f"{__name__}:{what.__name__}"


class Line:
    """Numbers → work → sink in one slot, in real threads whose turns the test takes."""

    def __init__(
        self, folder: Path, source: Any, work: Any, state: str = "", key: str = "", sink: Any = sink
    ) -> None:
        keyed, offsets = state == "keyed", has_offsets(source)
        tasks = (
            Task(
                "numbers",
                kind="source",
                run=reference(source),
                static=Static(),
                arriving=offsets or None,
                offsets=offsets,
            ),
            Task("work", run=reference(work), **({"kind": "keyed", "state": "keyed"} if keyed else {})),
            Task("sink", run=reference(sink)),
        )
        names = [task.name for task in tasks]
        edges = [Edge(a, b) for a, b in pairwise(names)]
        if keyed or key:
            edges[0] = Edge("numbers", "work", grouping="fields", key=f"{__name__}:{key or 'plain'}")
        topology = Topology("line", tasks, tuple(edges))
        specs = tuple(m.ThreadSpec(number, name, SLOT) for number, name in enumerate(names, 1))
        routes = tuple(
            m.Route(number, ((number + 2, 1.0),), ((number + 2, KEY_RANGES),)) for number in range(len(edges))
        )
        desired = m.DesiredState(
            token=m.Token(1, 1, 1), phase="committed", run="r", topology=topology, user_paths=(), threads=specs,
            routes_number=1, routes=routes, workers=(m.WorkerAt(SLOT, INCARNATION, "tcp://x:1"),),
            schedule=Schedule(wall_ns() - 10**12, ((0.0, 1e6),)), starts=(m.SourceStart("numbers", 0, 0),),
            settings=m.DataPlaneSettings(frame_rows=ROWS),
        )  # fmt: skip
        self.orders = orders_of(desired, SLOT, INCARNATION)
        board, threads = Switchboard(SLOT, INCARNATION), dict[int, TaskThread]()
        board.slot_of = self.orders.slot_of
        self.letters: list[m.DeadLetter] = []
        self.said = ""
        host = host_of(board, folder, threads)
        host.letters = self.letters.append
        for spec in specs:
            of = SourceWork if spec.task == "numbers" else FrameWork
            threads[spec.thread] = TaskThread(spec, topology, host, host.meter.thread_record(), of)
        self.threads = list(threads.values())

    def begin(self) -> None:
        for thread in self.threads:
            while thread.logic is None:
                try:
                    thread.startup()
                except BaseException as error:  # as its `_build` does
                    thread.work.unbuilt()
                    self.said = attempts.failure(0, error).error + attempts.users_line(error)
            thread.orders = self.orders

    def close(self) -> None:
        armed.clear()
        for thread in self.threads:
            thread.shutdown()

    def turns(self, called: bool = True) -> None:
        """Until every row is somewhere (called: and what raises was called), and a little longer."""
        after, until_s = 6, time.monotonic() + 20
        while after and time.monotonic() < until_s:
            for thread in self.threads:
                thread.inbox.put(None)
                thread.work.turn()
            there = {*got, *(letter.position for letter in self.letters)}
            after -= len(there) >= ROWS and not (called and left[0])


@pytest.fixture(autouse=True)
def disarmed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RETRY_NS", "COMMIT_NS", "LOOK_SOON_NS", "LOOK_AGAIN_NS"):
        monkeypatch.setattr(source_thread, name, 0)
    monkeypatch.setattr(async_work, "IDLE_S", 0.01)
    monkeypatch.setattr(attempts, "PAUSES_S", (0.0, 0.0))
    got.clear()
    started.clear()
    yield
    armed.clear()
    left[0] = 0


def without_escape(do: Callable[[], None]) -> None:
    try:
        do()
    except BaseException as error:
        pytest.fail(f"{type(error).__name__} ended the thread")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hook", HOOKS_OF_ROWS)
def test_what_a_call_about_a_row_raises_costs_that_row(
    hook: str, kind: type[BaseException], tmp_path: Path
) -> None:
    work, options = HOOKS_OF_ROWS[hook]
    line = Line(tmp_path, Numbers, work, **options)
    line.begin()
    armed.append(kind)
    without_escape(line.turns)
    line.close()
    told = {letter.position for letter in line.letters}
    if hook == "snapshot":  # found row by row once the thread has started again, by what is sent again
        assert told <= {BAD}
        return
    assert told == {BAD} and sorted(set(got)) == [row for row in range(ROWS) if row != BAD]
    letter = line.letters[0]
    task = "numbers" if "edge" in hook else "sink" if "write" in hook else "work"
    assert letter.task == task and letter.error


WHERE_ROWS_END = ("read", "seek", "poll", "poll of a log")  # there `Exhausted` says that no row will come


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hook", HOOKS_ONCE)
def test_what_a_call_about_no_row_raises_costs_no_row(
    hook: str, kind: type[BaseException], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if kind is Exhausted and hook in WHERE_ROWS_END:
        return
    source, work = HOOKS_ONCE[hook]
    line = Line(tmp_path, source, work)
    armed.append(kind)
    left[0] = 1
    without_escape(line.begin)
    if hook == "done":
        line.threads[0].work.kept(ROWS)  # by the controller
    without_escape(lambda: line.turns("close" not in hook))
    assert sorted(got) == list(range(ROWS)) and not line.letters
    line.threads[2].shutdown()
    without_escape(line.threads[1].shutdown)
    line.threads[0].shutdown()
    assert left[0] == 0, "it was called"
    said = f"{capfd.readouterr().err} {line.said} {line.threads[1].failed}"
    if hook != "what a task started":  # Python says it, once nobody can ask for it any more
        names = kind.__name__, "coroutine raised StopIteration"
        assert any(name in said for name in names) and f"{Path(__file__).name}:" in said, "what, and where"
    if "close" in hook:
        assert line.threads[1].failed.startswith("close: ")


@pytest.mark.parametrize("kind", KINDS)
def test_what_finish_raises_costs_the_last_rows_of_its_key(kind: type[BaseException]) -> None:
    task = keyed_rows(FinishFails(), plain)
    task.code.watch.ends = (attempts.StartAgain,)
    part = m.RootPart(m.RootKey(1, 1, 0, 0), SLOT, 0, 0, 0, 0, 0, 1)
    task.take(m.Frame(3, 1, SLOT, 1, 5, [part], [(0, 0, ROWS, 0)], list(range(ROWS)), 0, 0), 0)
    sent(task)
    armed.append(kind)
    for at in range(KEY_RANGES):
        key = m.RootKey(1, 1, at + 1, 0)
        part = m.RootPart(key, SLOT, 0, END_PARTITION + 2, at, 0, 0, 1)
        task.take(m.Frame(3, 1, SLOT, 1, 5, [part], [(0, 0, 1, 0)], [at], 0, 0), 0)
    (letter,) = task.results.letters
    assert letter.error and str(BAD) in letter.row
    assert sorted(sent(task)) == [row for row in range(ROWS) if row != BAD]


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_whose_key_fails_when_its_pane_moves_goes_with_the_others_or_is_told(
    kind: type[BaseException], others: int
) -> None:
    bench = Bench()
    bench.take(0, ("pane", BAD))
    for n in range(others):
        bench.take(n + 1, ("pane", n))
    windows = bench.core.behaviour.windows
    windows.code.watch.ends = (attempts.StartAgain,)
    armed.append(kind)
    bench.core.settle(windows.hand_over(lambda _, row: of_row(row[1]) * 0 + 3, 0))
    bench.core.flush(0, everything=True)
    moved = sorted(row for frame in bench.frames for row in frame.rows)
    assert windows.holding == 0
    assert moved == ([("pane", 0), ("pane", BAD)] if others else [])


@pytest.mark.parametrize("age_s", [-1, float("nan"), float("inf"), "5", [1]])
def test_an_age_that_is_none_fails_the_thread_before_a_row_comes(age_s: Any) -> None:
    with pytest.raises(InvalidInput, match="seconds old"):
        Bench(age_s)
