"""What a task does with a frame: results, failures, dead letters, what counts as finished, kept rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import To, Window
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Grouping
from headgate.topology_runtime.wire.messages import Ack, Frame, RootKey, RootPart, Route
from headgate.topology_runtime.worker.calls.dead_lettering import Around
from headgate.topology_runtime.worker.calls.output_buffers import Outputs
from headgate.topology_runtime.worker.calls.router import Router
from headgate.topology_runtime.worker.calls.user_code import (
    MOST_ROWS,
    PIECE_NS,
    Finished,
    Pieces,
    Results,
    UserCode,
)
from headgate.topology_runtime.worker.operators.thread_core import MapTask
from headgate.topology_runtime.worker.operators.window_task import WindowRows
from headgate.topology_runtime.worker.rows.acks import Addressed
from headgate.topology_runtime.worker.rows.row_values import (
    CAREFUL_FRAMES,
    LOOKED_AT,
    ONE_IN,
    TURNS,
    WHOLE_MOST,
    RowChecks,
)

S = 1_000_000_000
HOME = Slot("vm", 0)


def outputs(*groupings: Grouping, threads: int = 1, key: Callable[[Any], Hashable] | None = None) -> Outputs:
    numbers = random.Random(1)
    out = Outputs(5, HOME, 1, lambda: numbers.getrandbits(64), 0)
    targets = tuple((10 + n, 1 / threads) for n in range(threads))
    ranges = ((10, KEY_RANGES),)
    out.route_by(
        [
            (
                n,
                Router(
                    Edge("t", "u", grouping=g), Route(n, targets, ranges), frozenset(), key, lambda _: 256, 5
                ),
            )
            for n, g in enumerate(groupings)
        ]
    )
    return out


def root(sequence: int = 0, position: int = 100, value: int = 0xF00, floor: int = 0) -> RootPart:
    return RootPart(RootKey(1, 1, sequence, 0), HOME, 0, 2, position, 0, floor, value)


def frame(rows: Sequence[Any], *roots: RootPart) -> Frame:
    """Rows shared out evenly among the roots."""
    roots = roots or (root(),)
    size = len(rows) // len(roots)
    return Frame(
        3, 1, HOME, 1, 5, list(roots), [(n, 0, size, 0) for n in range(len(roots))], list(rows), 0, 0
    )


def flow(logic: Any, kind: str = "map", out: Outputs | None = None, sink: bool = False) -> MapTask:
    return MapTask(code(logic, kind, out, sink))


def windows(logic: Window) -> WindowRows:
    numbers = random.Random(2)
    return WindowRows(code(logic, "hold"), lambda: numbers.getrandbits(64))


def code(logic: Any, kind: str, out: Outputs | None = None, sink: bool = False) -> UserCode:
    around = Around("t", 5, ("source",), {3: "before"}, sink)
    out = out or (outputs() if sink else outputs("shuffle"))
    return UserCode(Results(around, out), kind, logic, lambda _: None)


def sent(task: MapTask | WindowRows) -> list[Any]:
    return [row for out in task.results.outputs.flush(S, everything=True) for row in out.rows]


def open_after(acks: Iterable[Addressed], *roots: RootPart) -> dict[int, int]:
    """What is left of each root's entry after these acks, by sequence."""
    left = {part.key.sequence: part.id for part in roots}
    for _, ack in acks:
        left[ack.key.sequence] = left.get(ack.key.sequence, 0) ^ ack.value
    return left


# ── map, filter, flat-map ───────────────────────────────────────────────────────────────────────────


def test_a_failed_row_is_a_dead_letter_and_the_others_go_on() -> None:
    def call(row: int) -> int:
        return 10 // row

    task = flow(call)
    part = root()
    acks = task.take(frame([1, 0, 5], part), S)
    assert sent(task) == [10, 2]
    (letter,) = task.results.letters
    assert (letter.task, letter.thread, letter.source, letter.partition, letter.position) == (
        "t",
        5,
        "source",
        2,
        101,
    )
    assert letter.row == "0" and "ZeroDivisionError" in letter.error and "10 // row" in letter.traceback
    assert len(acks) == 1


def test_dead_letters_name_the_row_in_frames_of_many_roots() -> None:
    task = flow(lambda row: 1 // row)
    task.take(frame([1, 1, 0, 1, 1, 0], root(0, 10), root(1, 50), root(2, 90)), S)
    assert [letter.position for letter in task.results.letters] == [50, 91]


@pytest.mark.parametrize("kind", ["map", "filter", "flat_map"])
def test_a_sink_counts_what_went_well_as_finished(kind: str) -> None:
    task = flow(lambda row: [1 // row], kind, sink=True)
    part = root()
    acks = task.take(frame([1, 0, 1, 1], part), S)
    assert [(o, c) for _, o, c, _ in task.results.finished] == [(0, 1), (2, 2)]
    assert open_after(acks, part) == {0: 0} and len(task.results.letters) == 1


@pytest.mark.parametrize(
    ("answers", "passed"),
    [
        ([True, False, True], [0, 2]),
        ([1, 0, "yes"], [0, 2]),
        ([None, [], {}], []),
        ([True, True, True], [0, 1, 2]),
    ],
)
def test_a_filter_goes_by_truth(answers: list[Any], passed: list[int]) -> None:
    task = flow(lambda row: answers[row], "filter")
    task.take(frame([0, 1, 2]), S)
    assert sent(task) == passed


def test_a_filter_whose_answer_is_neither_costs_its_row() -> None:
    task = flow(lambda row: np.zeros(2) if row == 1 else True, "filter")
    task.take(frame([0, 1, 2]), S)
    assert sent(task) == [0, 2] and [letter.position for letter in task.results.letters] == [101]


@pytest.mark.parametrize("result", [None, 7, "ab", b"ab", {"a": 1}])
def test_a_flat_map_that_gives_no_list_costs_its_row(result: Any) -> None:
    task = flow(lambda row: [row, row] if row else result, "flat_map")
    task.take(frame([0, 1]), S)
    assert sent(task) == [1, 1] and "for its rows" in task.results.letters[0].error


def test_a_flat_map_may_be_a_generator_that_fails_halfway() -> None:
    def call(row: int) -> Iterable[int]:
        yield row
        yield 1 // row

    task = flow(call, "flat_map")
    task.take(frame([0, 1]), S)
    assert sent(task) == [1, 1] and len(task.results.letters) == 1


@pytest.mark.parametrize(
    "bad", [1j, np.float64(1), 2**64, "\ud800", object(), {3: 4j}], ids=lambda bad: type(bad).__name__
)
@pytest.mark.parametrize("to", [False, True])
def test_rows_that_cannot_travel_are_dead_letters_though_they_would_stay_here(bad: Any, to: bool) -> None:
    def call(row: int) -> Any:
        out = bad if row == 1 else row
        return To(0, out) if to else out

    task = flow(call, out=outputs("direct" if to else "shuffle"))
    part = root()
    acks = task.take(frame([0, 1, 2], part), S)
    (out,) = task.results.outputs.flush(S)
    assert out.rows == [0, 2] and [letter.position for letter in task.results.letters] == [101]
    assert "BadRow" in task.results.letters[0].error
    assert open_after(acks, part)[0] == out.roots[0].id


def test_what_a_sink_returns_need_not_travel() -> None:
    task = flow(lambda row: object(), sink=True)
    task.take(frame([1, 2]), S)
    assert not task.results.letters and len(task.results.finished) == 1


def test_a_row_without_a_key_is_a_dead_letter_of_the_sender() -> None:
    task = flow(lambda row: row, out=outputs("fields", key=lambda row: row["k"]))
    part = root()
    acks = task.take(frame([{"k": 1}, {"x": 1}], part), S)
    (out,) = task.results.outputs.flush(S)
    assert out.rows == [{"k": 1}] and [letter.position for letter in task.results.letters] == [101]
    assert open_after(acks, part)[0] == out.roots[0].id


def test_a_row_whose_repr_raises_does_not_end_the_thread() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    task = flow(lambda row: Broken())
    task.take(frame([1]), S)
    assert "Broken" in task.results.letters[0].row


# ── kept rows ───────────────────────────────────────────────────────────────────────────────────────


class Pairs(Window):
    """Two rows of a key; fails as it is told."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.seen: list[list[Any]] = []

    def key(self, row: Any, source: str) -> Hashable:
        if self.fails == "key":
            raise ValueError(source)
        found: Hashable = [row] if self.fails == "hash" else row[0]
        return found

    def ready(self, key: Hashable, rows: Sequence[Any]) -> bool:
        if self.fails == "ready":
            raise ValueError(key)
        return len(rows) == 2

    def finish(self, key: Hashable, rows: Sequence[Any]) -> Iterable[Any]:
        assert len(rows) == 2 or self.max_age_s is not None
        self.seen.append(list(rows))
        if self.fails == "finish":
            raise ValueError(key)
        return [(key, [row[1] for row in rows])]


def test_a_pane_fires_when_it_is_ready_whatever_the_frames() -> None:
    """Four rows of one key in one frame are two pairs, as they are in four frames."""
    task = windows(Pairs())
    part = root()
    acks = task.take(frame([("k", n) for n in range(4)], part), S)
    assert sent(task) == [("k", [0, 1]), ("k", [2, 3])]
    assert [ack.held for _, ack in acks] == [0], "one ack a root; what was kept and let go is not told"


def test_kept_rows_hold_their_roots_until_they_go() -> None:
    task = windows(Pairs())
    one, two = root(0, 0), root(1, 50)
    first = task.take(frame([("a", 1)], one), S)
    assert open_after(first, one)[0] != 0 and [ack.held for _, ack in first] == [1]
    assert task.holding == 1
    second = task.take(frame([("a", 2)], two), S)
    (out,) = task.results.outputs.flush(S)
    left = open_after([*first, *second], one, two)
    assert {part.key.sequence: part.id for part in out.roots} == left, "both wait for the output"
    assert sorted((ack.key.sequence, ack.held) for _, ack in second) == [(0, -1), (1, 0)]
    assert task.holding == 0


def test_rows_come_to_finish_in_the_order_of_their_sources() -> None:
    logic = Pairs()
    task = windows(logic)
    task.take(frame([("a", "later")], root(1, 50)), S)
    task.take(frame([("a", "earlier")], root(0, 10)), S)
    assert logic.seen == [[("a", "earlier"), ("a", "later")]]


@pytest.mark.parametrize("fails", ["key", "hash", "ready", "finish"])
def test_a_hold_that_raises_makes_dead_letters_and_leaves_nothing_open(fails: str) -> None:
    task = windows(Pairs(fails))
    one, two = root(0, 0), root(1, 50)
    acks = [*task.take(frame([("a", 1)], one), S), *task.take(frame([("a", 2)], two), S)]
    assert open_after(acks, one, two) == {0: 0, 1: 0}
    assert sorted(letter.position for letter in task.results.letters) == [0, 50]
    assert task.holding == 0 and sent(task) == []


def test_an_old_pane_fires_though_it_is_not_ready() -> None:
    class Window(Pairs):
        max_age_s = 1.0

    task = windows(Window())
    one = root()
    acks = task.take(frame([("a", 1)], one), S)
    assert task.fire_old(2 * S - 1) == []
    acks += task.fire_old(2 * S)
    (out,) = task.results.outputs.flush(2 * S)
    assert open_after(acks, one)[0] == out.roots[0].id and out.rows == [("a", [1])]


def test_a_pane_that_fires_last_keeps_its_rows_until_all_is_over() -> None:
    """So no root of it is done before all that came of the pane is: else a part of it would come again."""
    logic = Pairs()
    logic.max_age_s = 60.0
    task = windows(logic)
    one = root()
    acks = [*task.take(frame([("a", 1)], one), S), *task.last(4, True, S)]
    (out,) = task.results.outputs.flush(S, True)
    assert out.rows == [("a", [1])] and task.holding == 1
    assert open_after(acks, one)[0] not in (0, out.roots[0].id)
    acks += task.let_go()
    assert open_after(acks, one)[0] == out.roots[0].id and task.holding == 0


def test_what_comes_once_all_is_over_is_a_copy_and_is_acked() -> None:
    task = windows(Pairs())
    task.let_go()
    again = root()
    assert open_after(task.take(frame([("a", 1)], again), S), again) == {0: 0}
    assert task.holding == 0 and sent(task) == []


@pytest.mark.parametrize(("age_s", "fires"), [(None, False), (60.0, True)])
def test_a_run_that_is_stopped_fires_panes_with_an_age_limit_alone(age_s: float | None, fires: bool) -> None:
    logic = Pairs()
    logic.max_age_s = age_s
    task = windows(logic)
    task.take(frame([("a", 1)]), S)
    task.last(4, False, S)
    assert bool(sent(task)) == fires and task.stay(False) != fires


def test_a_leaver_without_heirs_finishes_everything() -> None:
    logic = Pairs()
    logic.max_age_s = 60.0
    task = windows(logic)
    one = root()
    acks = task.take(frame([("a", 1), ("b", 2)], one), S)
    acks += task.fire_all(S)
    frames = task.results.outputs.flush(S)
    assert sorted(row for out in frames for row in out.rows) == [("a", [1]), ("b", [2])]
    assert open_after(acks, one)[0] == frames[0].roots[0].id and task.holding == 0


def test_rows_of_a_moved_key_go_to_its_keeper_with_their_names() -> None:
    task = windows(Pairs())
    one = root()
    acks = task.take(frame([("a", 1), ("b", 2)], one), S)
    acks += task.hand_over(lambda edge, row: 42 if row[0] == "b" else None, S)
    (out,) = task.results.outputs.flush(S)
    assert (out.edge, out.target, out.rows) == (3, 42, [("b", 2)])
    assert out.runs == [(0, 1, 1, 0)], "as it came: offset and variant of the row, not those of a new way"
    assert task.holding == 1 and [ack.held for _, ack in acks] == [2, -1]
    assert open_after(acks, one)[0] != out.roots[0].id, "the row that stayed holds the root too"


def test_rows_replaced_by_a_replay_are_told_as_kept_no_more() -> None:
    """Their roots' deadlines run again; what they hold open is never cancelled."""
    task = windows(Pairs())
    old, other = root(0), root(0)
    other.key = RootKey(1, 1, 0, 1)
    task.take(frame([("a", 1)], old), S)
    acks = dict((ack.key.attempt, ack) for _, ack in task.take(frame([("a", 1)], other), S))
    assert acks[0] == Ack(old.key, 0, -1) and acks[1].held == 1


def test_rows_of_roots_that_are_done_are_dropped_and_acked() -> None:
    task = windows(Pairs())
    task.take(frame([("x", 0)], root(9, 900, floor=5)), S)
    late = root(3, 30)
    acks = task.take(frame([("a", 1)], late), S)
    assert open_after(acks, late)[3] == 0 and task.holding == 1


# ── Of large frames that stay in a worker a part is looked at: what cannot travel is found soon, and all of
# it then

BAD = object()


def test_of_a_small_frame_every_row_is_looked_at() -> None:
    for place in range(WHOLE_MOST):
        rows: list[object] = [1] * WHOLE_MOST
        rows[place] = BAD
        assert not RowChecks().pass_on(rows)


@pytest.mark.parametrize("seed", range(5))
def test_a_place_of_large_frames_is_looked_at_once_in_so_many(seed: int) -> None:
    numbers = random.Random(seed)
    rows: list[object] = [1] * numbers.randint(WHOLE_MOST + 1, 2000)
    rows[numbers.randrange(len(rows))] = BAD
    checks = RowChecks()
    for _ in range(numbers.randrange(20)):
        assert checks.pass_on([1] * 100)
    turns = TURNS * max(ONE_IN, len(rows) // LOOKED_AT)
    assert [checks.pass_on(rows) for _ in range(turns)].count(False) >= 1


def test_after_one_that_cannot_travel_no_row_is_passed_over_for_a_while() -> None:
    checks = RowChecks()
    assert not checks.pass_on([BAD] * 100)
    for place in range(CAREFUL_FRAMES):
        rows: list[object] = [1] * 100
        rows[place % 100] = BAD
        assert not checks.pass_on(rows)


def test_care_ends() -> None:
    checks = RowChecks()
    assert not checks.pass_on([BAD])
    assert all(checks.pass_on([1] * 100) for _ in range(CAREFUL_FRAMES))
    assert sum(checks.pass_on([1] * 99 + [BAD]) for _ in range(TURNS * ONE_IN)) >= 1


def test_where_every_row_is_to_be_looked_at_none_is_passed_over() -> None:
    checks = RowChecks()
    checks.every = True
    checks.pass_on([1] * 1000)
    assert not checks.pass_on([1] * 999 + [BAD])


def test_the_rows_of_a_frame_that_was_found_out_are_dead_letters_and_no_others() -> None:
    task = flow(lambda row: BAD if row % 10 == 3 else row)
    for _ in range(2):
        task.take(frame(list(range(200))), S)
    frames = task.results.outputs.flush(S, everything=True)
    rows = [row for found in frames for row in found.rows]
    letters = [letter.position - 100 for letter in task.results.letters]
    assert {place % 10 for place in letters} == {3} and len(letters) >= 20
    assert len(rows) + len(letters) == 400
    assert sum(row is BAD for row in rows) == 40 - len(letters)


def test_an_address_without_an_edge_that_reads_it_cannot_travel() -> None:
    task = flow(lambda row: To(0, row), out=outputs("shuffle"))
    task.take(frame([1, 2]), S)
    assert [letter.error for letter in task.results.letters] and not task.results.outputs.buffers


def test_with_one_that_does_it_goes_bare_by_all_edges() -> None:
    task = flow(lambda row: To(0, row), out=outputs("shuffle", "direct"))
    task.take(frame(list(range(100))), S)
    frames = task.results.outputs.flush(S, everything=True)
    assert [found.rows for found in frames] == [list(range(100))] * 2 and not task.results.letters


# ── A sink logs as it goes: a worker that is killed at it leaves little that nobody counted ─────────────


class Desk:
    """A sink whose rows take so long each, and what is seen of it from outside."""

    def __init__(self, row_ns: int, kind: str = "map") -> None:
        self.row_ns, self.now_ns, self.unlogged = row_ns, 0, 0
        self.done: list[int] = []
        self.logged = 0
        self.unlogged_most = 0  # rows done in no log, at a moment at which the meter said so
        self.task = flow(self.work, kind, sink=True)
        self.task.results.pieces = Pieces(lambda: self.now_ns, self)

    def begun(self, rows: int) -> None:
        self.unlogged = rows

    def log(self, finished: list[Finished]) -> None:
        self.logged += sum(count for _, _, count, _ in finished)

    def work(self, row: int) -> bool:
        self.now_ns += self.row_ns
        self.done.append(row)
        assert len(self.done) - self.logged <= self.unlogged, "the meter knows of every row that is in no log"
        self.unlogged_most = max(self.unlogged_most, len(self.done) - self.logged)
        return True


def test_a_slow_sink_logs_row_by_row() -> None:
    desk = Desk(2 * PIECE_NS)
    parts = [root(0, 100), root(1, 200)]
    acks = desk.task.take(frame(list(range(40)), *parts), 0)
    assert (len(desk.done), desk.logged, desk.unlogged_most, desk.unlogged) == (40, 40, 1, 0)
    assert set(open_after(acks, *parts).values()) == {0}
    assert desk.task.code.watch.moved >= 40, "forty calls are not one that never returns"


def test_a_fast_sink_logs_a_millisecond_of_rows_at_once() -> None:
    desk = Desk(PIECE_NS // 100)
    desk.task.take(frame(list(range(1000))), 0)
    assert desk.logged == 1000 and 25 <= desk.unlogged_most <= 100
    endless = Desk(0)
    endless.task.take(frame(list(range(10 * MOST_ROWS))), 0)
    assert endless.unlogged_most == MOST_ROWS


def test_a_sink_that_filters_logs_every_row_that_it_saw() -> None:
    desk = Desk(PIECE_NS, "filter")
    desk.task.take(frame(list(range(10))), 0)
    assert (desk.logged, desk.task.results.tuples_out) == (10, 10)
