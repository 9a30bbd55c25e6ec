"""Every place that calls code of the user, with whatever ends programs elsewhere: the thread goes on, the failure is
told of the row or of the task, and all other rows get through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from line_of_threads import INCARNATION, SLOT, host_of

from headgate.topology_runtime.api.logic import Keyed, LiveSource, Source, batched, flat_map, keep_if
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire import messages as m
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
    MemoryError, RecursionError, BaseException, Own,
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
}
HOOKS_ONCE: dict[str, tuple[Any, Any]] = {
    "read": (ReadFails, plain),
    "poll": (PollFails, plain),
    "came": (CameFails, plain),
    "durable": (DurableFails, plain),
    "open": (Numbers, OpenFails),
    "close": (Numbers, CloseFails),
    "what a task started": (Numbers, starts),
}


def reference(what: Any) -> str:
    return f"{__name__}:{what.__name__}"


class Line:
    """Numbers → work → sink in one slot, in real threads whose turns the test takes."""

    def __init__(self, folder: Path, source: Any, work: Any, state: str = "", key: str = "") -> None:
        keyed = state == "keyed"
        tasks = (
            Task("numbers", kind="source", run=reference(source), static=Static()),
            Task("work", run=reference(work), **({"kind": "keyed", "state": "keyed"} if keyed else {})),
            Task("sink", run=reference(sink)),
        )
        names = [task.name for task in tasks]
        edges = [Edge(a, b) for a, b in pairwise(names)]
        if keyed:
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
                    self.said = attempts.failure(0, error).error
            thread.orders = self.orders

    def close(self) -> None:
        armed.clear()
        for thread in self.threads:
            thread.shutdown()

    def turns(self) -> None:
        """Until every row is somewhere, and a little longer."""
        after = 6
        for _ in range(200):
            for thread in self.threads:
                thread.inbox.put(None)
                thread.work.turn()
            after -= len({*got, *(letter.position for letter in self.letters)}) >= ROWS
            if not after:
                return


@pytest.fixture(autouse=True)
def disarmed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(source_thread, "RETRY_NS", 0)
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
    assert letter.task == ("numbers" if "edge" in hook else "work") and letter.error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hook", HOOKS_ONCE)
def test_what_a_call_about_no_row_raises_costs_no_row(
    hook: str, kind: type[BaseException], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, work = HOOKS_ONCE[hook]
    line = Line(tmp_path, source, work)
    armed.append(kind)
    left[0] = 1
    without_escape(line.begin)
    without_escape(line.turns)
    assert sorted(got) == list(range(ROWS)) and not line.letters
    line.threads[2].shutdown()
    without_escape(line.threads[1].shutdown)
    line.threads[0].shutdown()
    assert left[0] == 0, "it was called"
    if hook == "close":
        assert line.threads[1].failed.startswith("close: ")
