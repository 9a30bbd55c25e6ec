"""Windows over rows that come as columns: what they give, what they know of each key and which rows they refuse is what
comes of the same frames as rows, whatever is in them, late, twice or out of order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st
from silent_post import SilentPost

from headgate import Context, Exhausted, Source
from headgate import windows as w
from headgate.topology_runtime.api.timed import END_US
from headgate.topology_runtime.api.topology import Edge, Task, Timestamps, Topology
from headgate.topology_runtime.wire.messages import Ack, DeadLetter, Frame, RootKey, RootPart, ThreadSpec
from headgate.topology_runtime.wire.state_moves import Watermark
from headgate.topology_runtime.worker.calls.user_code import ToRecord
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.operators.timed_task import FIRST_ROWS, TimedTask
from headgate.topology_runtime.worker.process.called_thread import SLOT, orders_for, ports_in
from headgate.topology_runtime.worker.rows.columns import Columns, columns_in, grouped

S, US = 1_000_000_000, 1_000_000
SOURCE, WINDOWS = 1, 2
BIG, FAR = (1 << 63) - 4, 1.5e308
HERE = "test_windows_by_columns"


class Rows(Source):
    def read(self, position: int, limit: int) -> Sequence[Any]:
        raise Exhausted


class CountedWindow(w.EventWindow):
    """by_group: rows that were taken with all others of their group."""

    by_group = 0

    def open(self, context: Context) -> None:
        super().open(context)
        self.metrics = context.metrics

    def adds_group(self, state: Any, start: int, rows: int, fold: Any, time: Any) -> bool:
        found = super().adds_group(state, start, rows, fold, time)
        self.by_group += rows if found else 0
        return found


def flow_of(unit: str, key: str) -> Topology:
    tasks = (
        Task("source", kind="source", run=f"{HERE}:Rows", timestamps=Timestamps("t", unit=unit)),
        Task("windows", kind="keyed", state="keyed", run=f"{HERE}:CountedWindow", timed=True),
        Task("after", run=f"{HERE}:print"),
    )
    edges = Edge("source", "windows", grouping="fields", key=key), Edge("windows", "after")
    return Topology("windows", tasks, edges)


class OneThread(SilentPost):
    """It takes frames by `by_columns` or as rows of the same values."""

    slot, incarnation = SLOT, 1

    def __init__(self, by_columns: bool, key: str = "k", **params: Any) -> None:
        self.by_columns, self.now_ns = by_columns, 1000 * S
        self.frames: list[Frame] = []
        self.given: list[Any] = []
        self.letters: list[DeadLetter] = []
        self.logic = CountedWindow(at="t", **params)
        self.logic.open(Context("windows", WINDOWS, 0, 1, ""))
        flow = flow_of(params.get("unit", "s"), key)
        self.core = ThreadCore(ThreadSpec(WINDOWS, "windows", SLOT), flow, ports_in(self))
        self.core.behaviour = behaviour_of(self.core, self.logic, lambda _: None)
        self.core.obey(orders_for(flow), self.now_ns)
        self.look()
        first = {"k": ["none"] * FIRST_ROWS, "t": [-1e9] * FIRST_ROWS, "v": [0] * FIRST_ROWS}
        self.take(columns_in(first), 1 << 20)  # their times are looked at one by one
        self.watermark(-(1 << 40))
        self.logic.by_group, self.given = 0, []

    def wall_ns(self) -> int:
        return self.now_ns

    def deliver(self, frames: Iterable[Frame]) -> None:
        self.frames += frames

    def write(self, done: ToRecord, holding: int) -> None:
        self.letters += done.letters

    def take(self, columns: Columns, position: int) -> None:
        root = RootPart(RootKey(SOURCE, 1, position, 0), SLOT, 0, 0, position, 0, 0, 7)
        rows: Any = columns if self.by_columns else columns.rows()
        run = 0, 0, len(rows), 0
        self.core.take(Frame(0, SOURCE, SLOT, 1, WINDOWS, [root], [run], rows, 0, 0), self.now_ns)
        self.core.settle([])

    def watermark(self, at_us: int) -> None:
        self.core.hear(Watermark(SOURCE, WINDOWS, at_us), self.now_ns)
        self.look()

    def look(self) -> None:
        for _ in range(3):
            self.now_ns += S
            self.core.on_time(self.now_ns)
            self.core.flush(self.now_ns, everything=True)
            acks = [Ack(root.key, root.id) for frame in self.frames for root in frame.roots]
            self.core.hear(acks, self.now_ns)
            self.given += [row for one in self.frames for row in one.rows]
            self.frames = []

    def seen(self) -> list[Any]:
        """All that can be seen of it, to the last bit: also which numbers are whole ones. In the order of its keys."""
        assert isinstance(self.core.behaviour, TimedTask)
        rows, letters = self.core.behaviour.rows, [(one.position, one.error) for one in self.letters]
        states = [
            (key, exact(self.logic.snapshot(held.state)), sorted(held.events))
            for at in sorted(rows.states.filled)
            for key, held in rows.states.of(at).items()
        ]
        counts = [(name, one.value) for name, one in self.logic.metrics.named.items()]
        given = sorted(self.given, key=lambda row: repr(row["key"]))
        return list(map(repr, (given, letters, states, counts, rows.logic.late, rows.applied.rows)))


def exact(saved: Any) -> Any:
    """A state as it was saved; windows in any order, and the floats of a sum, of which several come to the same, as
    what they come to."""
    if isinstance(saved, list) and saved and all(type(one) is float for one in saved):
        return sum(map(Fraction, saved))
    if not isinstance(saved, list | tuple):
        return saved
    found = [exact(one) for one in saved]
    return sorted(found, key=repr) if all(isinstance(one, list) for one in found) else found


# ── any frames ──────────────────────────────────────────────────────────────────────────────────────

SMALL = st.integers(-9, 9)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "whole": SMALL,
    "far": st.sampled_from([BIG, -BIG, BIG // 2, 1 << 61, 3, -7]),
    "floats": st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1.0, 2.5, -0.25]),
    "zeros": st.sampled_from([0.0, -0.0, 1.0]),
    "far floats": st.sampled_from([FAR, -FAR, 1e299, 1.0]),
    "bad floats": st.sampled_from([float("nan"), float("inf"), 1.0, 2.0]),
    "truths": st.booleans(),
    "anything": st.sampled_from([None, 1, 2.5, "x", Decimal("0.5"), BIG, True, [1]]),
    "with none": st.one_of(st.none(), SMALL),
    "lists": st.just([1.0, 2.0]),
}
TYPES = {"whole": ("int64", "int8", "uint8", "uint64", "float32"), "floats": ("float64", "float32")}
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "texts": st.sampled_from(["a", "b", "c"]),
    "numbers": st.integers(0, 3),
    "floats": st.sampled_from([0.0, 1.0, -0.0]),
    "anything": st.sampled_from(["a", 1, 1.0, True, None]),
}
TIMES: dict[str, st.SearchStrategy[Any]] = {
    "whole": st.integers(-25, 40),
    "floats": st.integers(-50, 80).map(lambda t: t / 2 + 0.3),
    "bad": st.sampled_from([float("nan"), 1e30, 3.0, (1 << 60) / 1e6, 36e9, 1.1529215e12]),
    "texts": st.sampled_from(["1970-01-01T00:00:07", "1970-01-01T00:00:01", 3]),
}


@st.composite
def frames(draw: Any) -> tuple[Columns, int | None]:
    """Rows alike as columns, and where they come again from: so many positions back."""
    many = draw(st.integers(1, 12))
    kinds = draw(st.sampled_from([*VALUES, "whole", "floats"])), draw(st.sampled_from(["texts", *KEYS]))
    times = TIMES[draw(st.sampled_from(["whole", "whole", "floats", *TIMES]))]
    keys, values = KEYS[kinds[1]], VALUES[kinds[0]]
    rows = [{"k": draw(keys), "t": draw(times), "v": draw(values)} for _ in range(many)]
    if draw(st.integers(0, 9)) == 0:
        rows = [{name: row[name] for name in ("k", "t")} for row in rows]  # a column that is not there
    ((_, columns),) = grouped(rows)
    narrow = TYPES.get(kinds[0], ())
    if narrow and "v" in columns.names and draw(st.booleans()):
        column = (
            abs(columns.given["v"]) if "u" in (dtype := draw(st.sampled_from(narrow))) else columns.given["v"]
        )
        columns = columns_in({**columns.given, "v": column.astype(dtype)})
    return columns, draw(st.sampled_from([None, None, None, 0, 3, many]))


STEPS = st.lists(st.one_of(frames(), st.integers(-30, 45)), min_size=1, max_size=10)
AGGREGATES: dict[str, Any] = {
    "count": w.count(),
    "count of": w.count("v"),
    "sum": w.sum_of("v"),
    "mean": w.mean_of("v"),
    "least": w.min_of("v"),
    "several": w.several(n=w.count("v"), low=w.min_of("v"), high=w.max_of("v"), all=w.sum_of("v"), mean=w.mean_of("v")),
    "not by columns": w.several(n=w.count(), kinds=w.distinct("v")),
}  # fmt: skip
WINDOW_KINDS = st.sampled_from(
    [w.tumbling(10), w.tumbling(4, 1), w.sliding(10, 2), w.sliding(9, 3, -4), w.sliding(7, 2)]
)
FIRINGS = st.sampled_from(
    [{}, {}, {"late": 5}, {"late": {"within_s": 3, "emit": True}}, {"late": {"emit": True}},
     {"early": {"rows": 3}, "emit": "retractions"}, {"early": {"seconds": 1}, "emit": "updates", "late": 4}]
)  # fmt: skip


def both(steps: Sequence[Any], **params: Any) -> tuple[OneThread, OneThread]:
    """The same steps, frames and watermarks, in both forms; what is seen of them is compared after each."""
    forms = OneThread(True, **params), OneThread(False, **params)
    position, mark = 0, -(1 << 40)
    for step in [*steps, None]:
        if isinstance(step, tuple):
            columns, back = step
            for one in forms:
                one.take(columns, position if back is None else max(0, position - back))
            position += len(columns) if back is None else 0
        else:
            mark = END_US if step is None else max(mark, step * US)
            for one in forms:
                one.watermark(mark)
        found, wanted = (one.seen() for one in forms)
        assert found == wanted
    return forms


@pytest.mark.parametrize("aggregate", AGGREGATES)
@searching(100)
@given(STEPS, WINDOW_KINDS, FIRINGS)
def test_frames_of_columns_give_what_the_same_rows_give(
    aggregate: str, steps: list[Any], kind: Any, firing: dict[str, Any]
) -> None:
    both(steps, windows=kind, aggregate=AGGREGATES[aggregate], **firing)


# ── which rows are taken together ───────────────────────────────────────────────────────────────────


def frame_of(**columns: Any) -> tuple[Columns, None]:
    return columns_in(columns), None


TEN = {"k": ["a", "b"] * 5, "t": np.arange(10), "v": np.arange(10) / 8}


@pytest.mark.parametrize("kind", [w.tumbling(4), w.sliding(8, 2)], ids=["tumbling", "sliding"])
def test_all_rows_of_sound_columns_are_taken_by_the_group(kind: Any) -> None:
    by_columns, by_rows = both(
        [frame_of(**TEN), 0, frame_of(**TEN)], windows=kind, aggregate=AGGREGATES["several"]
    )
    assert by_columns.logic.by_group == 20 and by_rows.logic.by_group == 0
    assert len(by_columns.given) > 4


def test_late_rows_are_taken_one_by_one_and_the_others_by_the_group() -> None:
    late = {"within_s": 5, "emit": True}
    steps = [frame_of(**TEN), 4, frame_of(**TEN)]
    by_columns, _ = both(steps, windows=w.tumbling(4), aggregate=w.sum_of("v"), late=late)
    assert by_columns.logic.by_group == 10 + 6
    assert [row["timing"] for row in by_columns.given].count("late") == 4


def test_a_row_that_comes_again_is_not_counted_again() -> None:
    columns = columns_in(TEN)
    by_columns, _ = both([(columns, None), (columns, 10), (columns, 4)], windows=w.tumbling(100))
    assert [row["value"] for row in by_columns.given] == [8, 8]


def test_sums_near_sixty_four_bits_are_refused_row_by_row() -> None:
    steps = [frame_of(k=["a"] * 3, t=[1, 2, 3], v=[BIG, 3, 1])] * 2
    by_columns, _ = both(steps, windows=w.tumbling(10), aggregate=w.sum_of("v"))
    assert by_columns.logic.by_group == 0 and len(by_columns.letters) > 0
    assert by_columns.given[0]["value"] == BIG + 3


def test_floats_are_added_exactly_and_rounded_once() -> None:
    steps = [
        frame_of(k=["a"] * 3, t=[1, 2, 3], v=[1e16, 1.0, -1e16]),
        frame_of(k=["a"] * 2, t=[1, 2], v=[0.1, 0.2]),
    ]
    by_columns, _ = both(steps, windows=w.tumbling(10), aggregate=w.sum_of("v"))
    assert by_columns.logic.by_group == 5
    assert by_columns.given[0]["value"] == float(1 + Fraction(0.1) + Fraction(0.2))


def test_keys_that_are_equal_and_of_several_types_are_told_apart() -> None:
    by_columns, _ = both([frame_of(k=[1, 1.5, True, 1, "a"], t=np.arange(5))], windows=w.tumbling(10))
    assert by_columns.logic.by_group == 0
    assert sorted(repr(row["key"]) for row in by_columns.given) == ["'a'", "1", "1.5", "True"]


def test_times_of_the_first_rows_are_looked_at_one_by_one() -> None:
    """They may be in another unit."""
    one = OneThread(True, windows=w.tumbling(10))
    assert one.logic.by_group == 0 and one.seen()[-1] == str(FIRST_ROWS)
