"""A task whose calls are awaited gives what it would give one by one: rows, identities, dead letters, acks; how many
calls are under way, what becomes of those that fail, hang, or are cancelled. Time is virtual: sleeping takes none."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st
from test_batched_tasks import KINDS, doing, outcome
from test_task_logic import HOME, S, code, flow, frame, open_after, outputs, root, sent

from headgate.topology_runtime.api.logic import concurrent, flat_map
from headgate.topology_runtime.wire.dead_letter_messages import AGAIN_PARTITION
from headgate.topology_runtime.wire.messages import RootKey, RootPart
from headgate.topology_runtime.worker.calls.attempts import CallWatch, Identity, Poison
from headgate.topology_runtime.worker.calls.dead_lettering import Around
from headgate.topology_runtime.worker.calls.user_code import Finished, Pieces, Results
from headgate.topology_runtime.worker.operators.async_task import HELD
from headgate.topology_runtime.worker.process.async_calls import AsyncCalls

LIMIT_S = 8.0


class Skipping(selectors.SelectSelector):
    """Where nothing is to be read, the time that is waited for is here at once."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing would ever come"
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = Skipping()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now_s


class Calls(AsyncCalls):
    """Of a task round this object; `run_all` of `until` goes on for so long."""

    def __init__(
        self,
        logic: Any,
        kind: str = "map",
        sink: bool = False,
        at_once: bool = True,
        watch: CallWatch | None = None,
        results: Results | None = None,
    ) -> None:
        super().__init__(LIMIT_S, VirtualLoop())
        results = results or code(logic, kind, sink=sink).results
        self.task = self.compose(results, kind, logic, watch, at_once)

    def until(self, seconds: float) -> None:
        """Calls go on until then."""
        while (left_s := seconds - self.loop.time()) > 1e-9:
            self.begin()
            self.run_for(min(self.turn_s, left_s))
            self.look()


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loops of this test are closed."""
    made: list[Calls] = []
    begin = Calls.__init__

    def noted(self: Calls, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        made.append(self)

    monkeypatch.setattr(Calls, "__init__", noted)
    yield
    for calls in made:
        calls.cancel()
        calls.close()


def slowly(function: Callable[[int], Any], calls: int = 3, ordered: bool = True) -> Any:
    """The same function with an answer that takes a while, a different one for each row."""

    async def call(row: int) -> Any:
        await asyncio.sleep(row * 7919 % 7)
        return function(row)

    return concurrent(calls, ordered=ordered)(call)


def sent_of(task: Any) -> list[int]:
    """What has left, when all has."""
    task.leave(S)
    return sent(task)


# ── what comes of rows ──────────────────────────────────────────────────────────────────────────────


@searching(200)
@given(st.sampled_from(KINDS), st.lists(st.integers(0, 30), max_size=30), st.sets(st.integers(0, 30), max_size=6),
       st.booleans(), st.booleans(), st.integers(1, 9))  # fmt: skip
def test_an_async_task_gives_what_the_plain_form_gives(
    kind: str, rows: list[int], bad: set[int], sink: bool, ordered: bool, at_once: int
) -> None:
    function = doing(kind, bad)
    plain = outcome(flow(function, kind, sink=sink), rows)
    found = outcome(Calls(slowly(function, at_once, ordered), kind, sink).task, rows)  # type: ignore[arg-type]
    if not ordered:
        plain, found = (
            (sorted(out, key=repr), letters, sorted(done), *rest)
            for out, letters, done, *rest in ((one[0], *one[1:]) for one in (plain, found))
        )
    assert found == plain
    assert found[3], "nothing is left open"


def test_an_async_generator_gives_many_rows() -> None:
    @flat_map
    async def words(row: str) -> AsyncIterator[str]:
        for word in row.split():
            await asyncio.sleep(1)
            yield word

    task = Calls(words, "flat_map").task
    task.take(frame(["to be", "", "or not"]), S)
    assert sent(task) == ["to", "be", "or", "not"]  # type: ignore[arg-type]


def test_rows_of_an_ordered_task_leave_behind_those_before_them_and_a_frame_is_acked_when_all_have_left() -> (
    None
):
    async def call(row: int) -> int:
        await asyncio.sleep(row)
        return row

    calls = Calls(concurrent(10)(call), at_once=False)
    task, one, two = calls.task, root(0), root(1, 200)
    task.begin(frame([1, 5, 2], one))
    task.begin(frame([1, 1], two))
    calls.until(2.5)
    acks, told = task.leave(S)
    assert sent(task) == [1] and acks == [] and [rows for _, rows, _ in told] == [1]  # type: ignore[arg-type]
    calls.until(5.5)
    acks, told = task.leave(S)
    assert [(rows, over) for _, rows, over in told] == [(2, True), (2, True)] and task.empty
    frames = task.results.outputs.flush(S, everything=True)
    assert [row for out in frames for row in out.rows] == [5, 2, 1, 1]


def test_without_order_rows_leave_as_they_are_done_and_acks_add_up() -> None:
    async def call(row: int) -> int:
        await asyncio.sleep(row)
        return row

    calls = Calls(concurrent(10, ordered=False)(call), at_once=False)
    task, one, two = calls.task, root(0), root(1, 200)
    task.begin(frame([4, 2, 3], one))
    task.begin(frame([1, 6], two))
    rows, acks, ids = [], [], {0: 0, 1: 0}
    for second in range(1, 8):
        calls.until(second + 0.5)
        acks += task.leave(S)[0]
        for out in task.results.outputs.flush(S, everything=True):
            rows += out.rows
            for part in out.roots:
                ids[part.key.sequence] ^= part.id
    assert rows == [1, 2, 3, 4, 6]
    assert open_after(acks, one, two) == ids, "what is left open is what went out"
    assert [ack.key.sequence for _, ack in acks] == [0, 1] and task.empty


# ── how many at once ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rows_a_frame", [1, 4, 40])
def test_as_many_calls_as_may_be_are_under_way_and_no_more_frames_are_taken(rows_a_frame: int) -> None:
    under_way, most = [0, 0], 10

    async def call(row: int) -> int:
        under_way[0] += 1
        under_way[1] = max(under_way)
        await asyncio.sleep(1)
        under_way[0] -= 1
        return row

    calls = Calls(concurrent(most)(call), at_once=False)
    taken = done = 0
    while calls.loop.time() < 20.0:
        while calls.task.has_room:
            calls.task.begin(frame([0] * rows_a_frame))
            taken += rows_a_frame
        assert taken - done < most + rows_a_frame
        calls.until(calls.loop.time() + 0.05)
        done += sum(rows for _, rows, _ in calls.task.leave(S)[1])
    assert under_way[1] == most and done >= 18 * most


def test_rows_that_wait_for_one_before_them_are_bounded() -> None:
    async def call(row: int) -> int:
        await asyncio.sleep(7 if row == 0 else 0.1)
        return row

    calls = Calls(concurrent(5)(call), at_once=False)
    taken = iter(range(1000))
    while calls.loop.time() < 6.5:
        while calls.task.has_room:
            calls.task.begin(frame([next(taken)]))
        calls.until(calls.loop.time() + 0.5)
        assert not any(rows for _, rows, _ in calls.task.leave(S)[1])
    assert calls.task.held == HELD * 5


# ── calls that fail, take too long, or do not end ───────────────────────────────────────────────────


def test_a_row_is_tried_three_times_and_holds_up_no_other() -> None:
    tries: list[int] = []

    async def call(row: int) -> int:
        tries.append(row)
        await asyncio.sleep(0.001)
        if row == 0 or (row == 1 and tries.count(1) < 3):
            raise OSError(f"no answer for {row}")
        return row

    calls = Calls(concurrent(2)(call))
    calls.task.take(frame([0, 1, 2]), S)
    assert sent(calls.task) == [1, 2] and sorted(tries) == [0, 0, 0, 1, 1, 1, 2]  # type: ignore[arg-type]
    (letter,) = calls.task.results.letters
    assert (letter.task, letter.position, letter.row, letter.error) == (
        "t",
        100,
        "0",
        "OSError: no answer for 0",
    )
    assert "test_async_tasks.py" in letter.traceback and 'raise OSError(f"no answer' in letter.traceback
    assert 0.11 < calls.loop.time() < 0.2


@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError, StopIteration, GeneratorExit])
def test_whatever_a_call_lets_out_is_the_failure_of_its_row(error: type[BaseException]) -> None:
    async def call(row: int) -> int:
        if row == 1:
            raise error
        return row

    calls = Calls(call)
    calls.task.take(frame([0, 1, 2]), S)
    assert sent(calls.task) == [0, 2] and len(calls.task.results.letters) == 1  # type: ignore[arg-type]


def test_a_call_that_takes_too_long_is_cancelled_and_says_where_it_was() -> None:
    ended: list[int] = []

    async def call(row: int) -> int:
        try:
            await asyncio.sleep(1000 if row == 1 else 0.5)
        finally:
            ended.append(row)
        return row

    calls = Calls(concurrent(2)(call))
    calls.task.take(frame([0, 1, 2]), S)
    assert sent(calls.task) == [0, 2] and ended == [0, 2, 1, 1, 1]  # type: ignore[arg-type]
    (letter,) = calls.task.results.letters
    assert letter.error == "TimeoutError: the call took longer than max_call_s=8"
    assert "await asyncio.sleep(1000" in letter.traceback
    assert 3 * LIMIT_S <= calls.loop.time() < 3 * LIMIT_S + 1


def test_an_answer_in_spite_of_the_cancellation_counts() -> None:
    async def call(row: int) -> int:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return row
        return -1

    calls = Calls(concurrent(1)(call))
    calls.task.take(frame([5, 6]), S)
    assert sent(calls.task) == [5, 6] and not calls.task.results.letters  # type: ignore[arg-type]


def test_a_call_that_does_not_end_when_it_is_cancelled_is_left_behind() -> None:
    async def call(row: int) -> int:
        until_s = asyncio.get_running_loop().time() + (100 if row == 0 else 0)
        while (left_s := until_s - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left_s)
            except asyncio.CancelledError:
                continue
        return row

    calls = Calls(concurrent(1)(call))
    calls.task.take(frame([0, 1]), S)
    assert sent(calls.task) == [1] and 2 * LIMIT_S < calls.loop.time() < 3 * LIMIT_S  # type: ignore[arg-type]
    (letter,) = calls.task.results.letters
    assert letter.error.endswith("and did not end when it was cancelled: it is left behind")
    calls.until(110)
    assert calls.task.leave(S) == ([], []) and calls.task.empty and calls.task.in_calls == 0


def test_cancelled_calls_clean_up_and_nothing_comes_of_their_rows() -> None:
    closed: list[int] = []

    async def call(row: int) -> int:
        try:
            await asyncio.sleep(5)
        finally:
            await asyncio.sleep(0.1)
            closed.append(row)
        return row

    calls = Calls(concurrent(2)(call), at_once=False)
    calls.task.begin(frame([0, 1, 2]))
    calls.until(1.0)
    calls.cancel()
    assert sorted(closed) == [0, 1], "what was under way was cleaned up, and nothing more begun"
    assert calls.task.leave(S) == ([], []) and not calls.task.results.letters and not calls.task.empty


# ── rows that must be known ─────────────────────────────────────────────────────────────────────────


def test_rows_that_ended_workers_are_not_called() -> None:
    watch, called = CallWatch(), []
    watch.poison = Poison({(0, 2, 101, 0, "row"): ("killed the worker", "")})

    async def call(row: str) -> str:
        called.append(row)
        return row

    calls = Calls(call, watch=watch)
    calls.task.take(frame(["a", "b", "c"]), S)
    assert called == ["a", "c"] and [letter.error for letter in calls.task.results.letters] == [
        "killed the worker"
    ]


class Named(CallWatch):
    """Every call is to be named, alone."""

    careful = True

    def __init__(self) -> None:
        super().__init__()
        self.names: list[Identity] = []
        self.inside = False

    def enter(self, identity: Identity) -> None:
        assert not self.inside
        self.inside = True
        self.names.append(identity)

    def leave(self) -> None:
        assert self.inside
        self.inside = False


def test_careful_calls_are_named_and_made_one_at_a_time() -> None:
    watch = Named()
    calls = Calls(slowly(lambda row: row, calls=5), watch=watch)
    calls.task.take(frame([3, 1, 2]), S)
    assert watch.names == [(0, 2, 100 + n, 0, "row") for n in range(3)] and not watch.inside


def test_calls_that_are_to_be_named_wait_for_those_under_way() -> None:
    watch, alone = Named(), list[int]()
    watch.careful = False

    async def call(row: int) -> int:
        if watch.inside:
            alone.append(calls.task.in_calls)
        await asyncio.sleep(row)
        return row

    calls = Calls(concurrent(3)(call), at_once=False, watch=watch)
    calls.task.begin(frame([1, 2, 5, 1, 1, 1]))
    calls.until(0.5)
    watch.careful = True
    calls.until(20)
    assert sent_of(calls.task) == [1, 2, 5, 1, 1, 1] and len(watch.names) == 3 and alone == [1, 1, 1]


def test_a_dead_letter_that_was_sent_again_and_dies_again_is_not_done() -> None:
    async def call(row: int) -> int:
        await asyncio.sleep(row)
        return 1 // (row - 1)

    results = Results(Around("t", 5, ("source",), {3: "before"}, False, 4), outputs("shuffle"))
    calls = Calls(concurrent(5, ordered=False)(call), at_once=False, results=results)
    again = RootPart(RootKey(1, 1, 0, 0), HOME, 0, AGAIN_PARTITION + 4, 9, 0, 0, 0xF00)
    calls.task.begin(frame([1, 5], again))
    calls.until(3.0)
    assert calls.task.leave(S)[0] == [] and results.refused == set()
    calls.until(6.0)
    assert len(calls.task.leave(S)[0]) == 1 and results.refused == {again.key}


class BegunLog:
    def __init__(self) -> None:
        self.now, self.finished = 0, list[Finished]()

    def begun(self, rows: int) -> None:
        self.now = rows

    def log(self, finished: list[Finished]) -> None:
        self.finished += finished


def test_a_sink_says_how_many_rows_are_begun_and_not_logged() -> None:
    log = BegunLog()
    calls = Calls(slowly(lambda row: None, calls=2), sink=True, at_once=False)
    calls.task.results.pieces = Pieces(lambda: 0, log)
    calls.task.begin(frame([1, 2, 3]))
    seen: list[Sequence[int]] = []
    while not calls.task.empty:
        calls.until(calls.loop.time() + 1)
        calls.task.leave(S)
        calls.task.results.done()
        calls.task.recorded()
        seen.append((log.now, sum(count for _, _, count, _ in log.finished)))
    assert seen[0] == (2, 0) and seen[-1] == (0, 3)
    assert all(begun == calls.task.calls or logged for begun, logged in seen)
