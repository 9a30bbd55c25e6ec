"""A task that takes its rows together gives what it would give one by one: rows, identities, dead letters, acks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st
from test_attempts import Patience
from test_task_logic import HOME, S, flow, frame, open_after, root, sent

from headgate.topology_runtime.api.logic import batched
from headgate.topology_runtime.wire.messages import Frame, RootPart, WireFrame
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.attempts import Poison
from headgate.topology_runtime.worker.calls.batches import edge_of, gathered, rows_in
from headgate.topology_runtime.worker.calls.user_code import Finished, Pieces
from headgate.topology_runtime.worker.operators.thread_core import MapTask
from headgate.topology_runtime.worker.rows import row_runs as r
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.columns import Columns, grouped

KINDS = ("map", "filter", "flat_map")


def doing(kind: str, bad: set[int]) -> Callable[[int], Any]:
    """A function of this kind that fails for the rows of `bad`."""

    def call(row: int) -> Any:
        if row in bad:
            raise ValueError(f"{row} is bad")
        return {"map": row * 3, "filter": row % 2 == 0, "flat_map": [row] * (row % 3)}[kind]

    return call


def together(function: Callable[[Any], Any]) -> Callable[[Sequence[Any]], Any]:
    """The same function as one of many rows."""
    return batched(lambda rows: [function(row) for row in rows])


def outcome(task: MapTask, rows: Sequence[Any]) -> tuple[Any, ...]:
    """Rows that go on and whose they are, dead letters, what is finished, what is left open."""
    part = root()
    left = open_after(task.take(frame(rows, part), S), part)
    results, sink = task.results, task.results.around.sink
    frames = results.outputs.flush(S, everything=True)
    letters = [(letter.position, letter.variant, letter.row, letter.error) for letter in results.letters]
    out = [(row, run) for one in frames for row, run in zip(one.rows, _singles(one.runs), strict=True)]
    for one in frames:
        left[0] ^= one.roots[0].id  # as whoever takes it would ack it
    return out, sorted(letters), _singles(results.finished), left == {0: 0}, sink


def _singles(runs: Sequence[tuple[Any, int, int, int]]) -> list[tuple[int, int]]:
    return [(at + n, variant) for _, at, count, variant in runs for n in range(count)]


@searching(200)
@given(st.sampled_from(KINDS), st.lists(st.integers(0, 30), max_size=40), st.sets(st.integers(0, 30), max_size=6),
       st.booleans())  # fmt: skip
def test_a_batched_task_gives_what_the_row_form_gives(
    kind: str, rows: list[int], bad: set[int], sink: bool
) -> None:
    function = doing(kind, bad)
    one_by_one = outcome(flow(function, kind, sink=sink), rows)
    assert outcome(flow(together(function), kind, sink=sink), rows) == one_by_one
    assert one_by_one[3], "nothing is left open"
    assert {letter[2] for letter in one_by_one[1]} == {str(row) for row in rows if row in bad}


# ── narrowing down ──────────────────────────────────────────────────────────────────────────────────


def test_a_call_that_raises_is_tried_three_times_and_then_halved_down_to_the_row() -> None:
    calls: list[list[int]] = []

    def call(rows: Sequence[int]) -> list[int]:
        calls.append(list(rows))
        if 5 in rows:
            raise ValueError("five")
        return list(rows)

    pauses = Patience()
    out, failures = attempts.together(call, list(range(8)), pauses)
    assert [row for some in out for row in some] == [0, 1, 2, 3, 4, 6, 7]
    assert [failed.place for failed in failures] == [5]
    whole = list(range(8))
    assert calls == [whole] * 3 + [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [4], [5], [5], [5], [6, 7]]
    assert pauses == [0.01, 0.1] * 2


def test_rows_that_fail_only_together_are_all_done() -> None:
    def call(rows: Sequence[int]) -> list[int]:
        if len(rows) > 3:
            raise MemoryError("too many")
        return list(rows)

    out, failures = attempts.together(call, list(range(10)), Patience())
    assert [row for some in out for row in some] == list(range(10)) and not failures


# ── what a batched function may give ────────────────────────────────────────────────────────────────

WRONG: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "a row less": (lambda rows: rows[1:], "2 results for 3 rows"),
    "a row more": (lambda rows: [*rows, 1], "4 results for 3 rows"),
    "nothing": (lambda rows: None, "a NoneType for its rows"),
    "one number": (lambda rows: np.float64(3.0), "a float for its rows"),
    "a text": (lambda rows: "abc", "a str for its rows"),
    "a dict": (lambda rows: dict.fromkeys(rows), "a dict for its rows"),
    "a set, in whatever order": (lambda rows: set(rows), "a set for its rows"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_number_of_results_fails_the_rows_of_that_call_only(what: str) -> None:
    function, words = WRONG[what]
    task = flow(batched(lambda rows: function(rows) if rows[0] == 7 else rows))
    part, other = root(0), root(1, 200)
    assert sent_and_acked(task, [7, 8, 9], part) == []
    assert sent_and_acked(task, [1, 2], other) == [1, 2]
    letters = task.results.letters
    assert [(letter.position, letter.row) for letter in letters] == [(100, "7"), (101, "8"), (102, "9")]
    assert all(letter.error.startswith("BadBatch: ") and words in letter.error for letter in letters)
    assert all("cause: " in letter.traceback and "try: return" in letter.traceback for letter in letters)


def sent_and_acked(task: MapTask, rows: Sequence[Any], part: Any) -> list[Any]:
    acks = task.take(frame(rows, part), S)
    found = sent(task)
    assert len(acks) == 1
    return found


@pytest.mark.parametrize(
    "function",
    [
        lambda rows: (row * 2 for row in rows),
        lambda rows: tuple(row * 2 for row in rows),
        lambda rows: np.array(rows) * 2,
        lambda rows: map(lambda row: row * 2, rows),
    ],
)
def test_results_are_any_list_of_plain_values(function: Any) -> None:
    task = flow(batched(function))
    task.take(frame([1, 2, 3]), S)
    assert sent(task) == [2, 4, 6] and {type(row) for row in [2, 4, 6]} == {int}


def test_a_row_of_a_strange_type_costs_no_other() -> None:
    task = flow(batched(lambda rows: [{row: 1j} if row == 2 else row for row in rows]))
    task.take(frame([1, 2, 3]), S)
    assert sent(task) == [1, 3]
    (letter,) = task.results.letters
    assert letter.position == 101 and letter.error.startswith("BadRow")


def test_an_element_of_a_flat_map_that_is_no_list_costs_its_row() -> None:
    task = flow(batched(lambda rows: [[row] if row != 2 else None for row in rows]), "flat_map")
    task.take(frame([1, 2, 3]), S)
    assert sent(task) == [1, 3]
    (letter,) = task.results.letters
    assert letter.position == 101 and "TypeError" in letter.error


def test_what_a_function_does_with_its_list_changes_no_row() -> None:
    def spoils(rows: list[int]) -> list[int]:
        first = rows.pop(0)
        if len(rows) == 2:
            raise ValueError("and takes one out")
        return [first, *rows]

    task = flow(batched(spoils))
    task.take(frame([1, 2, 3]), S)
    assert sent(task) == [1, 2, 3]


def test_a_class_may_be_batched_by_itself_or_by_its_call() -> None:
    class Named:
        @batched
        def __call__(self, rows: list[int]) -> list[int]:
            return [row + 1 for row in rows]

    @batched
    class Whole:
        def __call__(self, rows: list[int]) -> list[int]:
            return [row + 1 for row in rows]

    for cls in (Named, Whole):
        task = flow(cls())
        task.take(frame([1, 2, 3]), S)
        assert sent(task) == [2, 3, 4]


class Log:
    """Of a sink."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begun(self, rows: int) -> None:
        self.told.append(rows)

    def log(self, finished: list[Finished]) -> None:
        self.told.append([(at, count) for _, at, count, _ in finished])


def test_a_batched_sink_takes_its_frame_whole_and_logs_it_at_once() -> None:
    sizes: list[int] = []
    task, log = flow(batched(lambda rows: sizes.append(len(rows)) or rows), sink=True), Log()
    task.results.pieces = Pieces(lambda: 0, log)
    task.take(frame(list(range(20))), S)
    assert sizes == [20]
    assert log.told == [20, [(0, 20)], 0]


@pytest.mark.parametrize("columns", [False, True])
def test_rows_are_named_one_by_one_when_a_worker_was_lost_in_such_a_call(columns: bool) -> None:
    sizes: list[int] = []
    task = flow(batched(columns=columns)(lambda rows: sizes.append(len(rows)) or rows))
    task.code.watch.careful = True
    task.take(frame([1, 2, 3]), S)
    assert sizes == [1, 1, 1] and sent(task) == [1, 2, 3]


@pytest.mark.parametrize("columns", [False, True])
def test_a_row_that_must_not_be_met_again_is_not_in_the_call(columns: bool) -> None:
    met: list[list[int]] = []
    task = flow(batched(columns=columns)(lambda rows: met.append(list(rows)) or rows))
    task.code.watch.poison = Poison({(0, 2, 101, 0, "row"): ("it hung", "")})
    task.take(frame([1, 2, 3]), S)
    assert met == [[1, 3]] and list(sent(task)) == [1, 3]
    (letter,) = task.results.letters
    assert (letter.position, letter.row, letter.error) == (101, "2", "it hung")


# ── Frames that wait for a batched task, in one call: the same rows, letters and open roots as one after
# the other


def frames_of(seed: int, by_columns: bool = False) -> list[Frame]:
    """Frames by one edge, of some of four roots each, which may go along with others; ids are their own."""
    choose = random.Random(seed)
    made = []
    for _ in range(choose.randint(1, 5)):
        numbers = choose.sample(range(4), choose.randint(1, 4))
        roots = [root(n, 100 * n, choose.getrandbits(64), choose.randint(0, 9)) for n in numbers]
        for number, part in enumerate(roots):
            part.along = [other for other in range(len(roots)) if other != number and choose.random() < 0.3]
        runs = [(choose.randrange(len(roots)), choose.randint(0, 20), choose.randint(1, 4), choose.randint(0, 3))
                for _ in range(choose.randint(1, 4))]  # fmt: skip
        rows: Any = [choose.randint(0, 20) for _ in range(sum(run[2] for run in runs))]
        rows = grouped(rows)[0][1] if by_columns else rows
        made.append(Frame(3, choose.randint(1, 3), HOME, 1, 5, roots, runs, rows, 0, 0))
    return made


def whose(one: Frame) -> list[tuple[Any, ...]]:
    """Of each row: itself, its root, its offset, its way, and all roots that it is of."""

    def all_of(part: RootPart) -> Any:
        return part.key.sequence, sorted(one.roots[other].key.sequence for other in part.along)

    singles = r.single(one.runs)
    return [
        (row, all_of(one.roots[n])[0], at, way) for row, (n, at, way) in zip(one.rows, singles, strict=True)
    ]


@searching(150)
@given(st.integers(0, 2**32), st.booleans())
def test_a_gathered_frame_has_all_rows_with_their_names_and_roots(seed: int, by_columns: bool) -> None:
    frames = frames_of(seed, by_columns)
    whole = gathered(frames)
    assert r.fits(whole) and len({part.key for part in whole.roots}) == len(whole.roots)
    assert whose(whole) == [row for one in frames for row in whose(one)]
    assert (type(whole.rows) is Columns) == by_columns
    ids: dict[int, int] = {}
    floors: dict[int, int] = {}
    along: dict[int, set[int]] = {}
    for one in frames:
        for part in one.roots:
            sequence = part.key.sequence
            ids[sequence] = ids.get(sequence, 0) ^ part.id
            floors[sequence] = max(floors.get(sequence, 0), part.floor)
            along.setdefault(sequence, set()).update(one.roots[other].key.sequence for other in part.along)
    assert {part.key.sequence: part.id for part in whole.roots} == ids
    assert {part.key.sequence: part.floor for part in whole.roots} == floors
    assert {
        part.key.sequence: {whole.roots[other].key.sequence for other in part.along} for part in whole.roots
    } == along


@searching(100)
@given(st.integers(0, 2**32))
def test_taken_together_or_one_after_the_other_the_same_comes_of_them(seed: int) -> None:
    def call(rows: list[int]) -> list[int]:
        if bad := [row for row in rows if row % 7 == 0]:
            raise ValueError(f"{bad[0]} is bad")
        return rows

    def outcome(frames: list[Frame]) -> tuple[Any, ...]:
        task, left = flow(batched(call)), dict.fromkeys(range(4), 0)
        for one in frames:
            for part in one.roots:
                left[part.key.sequence] ^= part.id
            for _, ack in task.take(one, S):
                left[ack.key.sequence] ^= ack.value
        out = task.results.outputs.flush(S, everything=True)
        for one in out:
            for part in one.roots:
                left[part.key.sequence] ^= part.id
        letters = Counter((letter.position, letter.variant, letter.row) for letter in task.results.letters)
        return [row for one in out for row in whose(one)], letters, left

    whole = outcome([gathered(frames_of(seed))])
    assert whole == outcome(frames_of(seed))
    assert set(whole[2].values()) == {0}


def test_what_a_frame_holds_is_known_before_it_is_read() -> None:
    for one, other in pairwise([*frames_of(1), *frames_of(2)]):
        body = msgspec.Raw(wire.write(one.rows, wire.shape_of(one.rows)))
        sent = WireFrame(msgspec.structs.replace(one, rows=[]), wire.PLAIN, body)
        assert rows_in(sent) == rows_in(one) == len(one.rows) and edge_of(sent) == edge_of(one) == other.edge
