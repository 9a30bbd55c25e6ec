"""From `run` and `key` to what threads call: fresh instances, bound functions, errors that name the task."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.api.drafts import draft_of
from headgate.topology_runtime.api.loading import build, key_function, load
from headgate.topology_runtime.api.logic import (
    Keyed,
    Source,
    Window,
    batched,
    batched_of,
    concurrency_of,
    concurrent,
    flat_map,
    keep_if,
    kind_of,
    no_side_effects,
    side_effects,
    side_effects_of,
)
from headgate.topology_runtime.api.task_functions import call_faults, filled, gives_of, is_async, takes_of
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import InvalidInput

HERE = __name__


def double(row: float, factor: float = 2.0) -> float:
    return row * factor


@flat_map
def copies(row: str, count: int) -> list[str]:
    return [row] * count


@keep_if
def long(row: str) -> bool:
    return len(row) > 3


@batched
def halves(rows: list[float], by: float = 2.0) -> list[float]:
    return [row / by for row in rows]


@batched(columns=True)
def norms(columns: dict[str, Any]) -> Any:
    return columns["x"] ** 2 + columns["y"] ** 2


@batched(columns=True)
@flat_map
def both(columns: Any) -> Any:
    return columns


@batched(columns=True)
class Readings(Source):
    def read(self, position: int, limit: int) -> Any:
        return {"x": [0.5] * limit}


@batched
class Lists(Source):
    def read(self, position: int, limit: int) -> Any:
        return [0.5] * limit


@batched
@flat_map
def in_words(rows: list[str]) -> Iterable[list[str]]:
    for row in rows:
        yield row.split()


class Counter(Source):
    def __init__(self, first: int = 0) -> None:
        if first < 0:
            raise ValueError("first is negative")
        self.first = first

    def read(self, position: int, limit: int) -> Sequence[int]:
        return range(self.first + position, self.first + position + limit)

    class Inner:
        def __call__(self, row: Any) -> Any:
            return row


class Tally(Keyed):
    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: Any, state: int) -> tuple[int, Iterable[Any]]:
        return state + 1, []


class TallyOfNow(Tally):
    state_version = 2


class Unsure(Tally):
    state_version = "2"  # type: ignore[assignment]


class Unwilling(Tally):
    state_version = 2

    def migrate(self, old: Any) -> Any:  # type: ignore[override]
        return old


class Batch(Window):
    def ready(self, key: Any, rows: Sequence[Any]) -> bool:
        return len(rows) > 9

    def finish(self, key: Any, rows: Sequence[Any]) -> Iterable[Any]:
        return [list(rows)]


class Unfinished(Window):
    def ready(self, key: Any) -> bool:  # type: ignore[override]
        return True


class Bare:
    pass


async def later(row: Any) -> Any:
    return row


@batched
async def later_together(rows: list[Any]) -> list[Any]:
    return rows


async def yields_later(row: str) -> AsyncIterator[str]:
    yield row


@flat_map
async def words_later(row: str, mark: str = "") -> AsyncIterator[str]:
    for word in row.split():
        yield word + mark


@concurrent(5)
def at_once(row: Any) -> Any:
    return row


@concurrent(7, ordered=False)
class Later:
    async def open(self, context: Any) -> None: ...

    async def __call__(self, row: int) -> str:
        return str(row)


class OpensLater:
    async def open(self, context: Any) -> None: ...

    def __call__(self, row: Any) -> Any:
        return row

    async def close(self) -> None: ...


class TalliesLater(Tally):
    async def process(self, key: Any, row: Any, state: int) -> Any:  # type: ignore[override]
        return state + 1, []


def lazily(row: Any) -> Any:
    yield row


def nothing() -> None:
    return None


COUNTER = Counter()
BOUND = functools.partial(double, factor=5.0)
NUMBER = 3


def task(run: str | None, kind: Any = "map", **params: Any) -> Task:
    return Task("it", kind, run and f"{HERE}:{run}", params)


def test_a_class_gives_a_fresh_instance_each_time() -> None:
    one, two = (build(task("Counter", "source", first=5)) for _ in range(2))
    assert one is not two
    assert list(one.read(1, 2)) == [6, 7]


def test_a_function_is_itself_and_its_params_are_bound() -> None:
    assert build(task("double")) is double
    assert build(task("double", factor=3.0))(2.0) == 6.0
    assert build(task("BOUND"))(2.0) == 10.0
    assert build(Task("it", run="math:floor"))(2.5) == 2


def test_a_bound_function_keeps_its_mark() -> None:
    bound = build(task("copies", "flat_map", count=2))
    assert bound("a") == ["a", "a"]
    assert kind_of(bound) == "flat_map"


def test_a_batched_function_is_checked_and_bound_as_others_are() -> None:
    assert list(call_faults(halves, {"by": 4.0})) == list(call_faults(in_words, {}, "flat_map")) == []
    assert list(call_faults(halves, {"bye": 4.0}))
    bound = build(task("halves", by=4.0))
    assert batched_of(bound) and bound([2.0]) == [0.5]
    assert batched_of(in_words) and kind_of(in_words) == "flat_map"


def test_rows_of_batched_tasks_are_known_by_what_is_in_their_lists() -> None:
    assert gives_of("map", halves) is takes_of("map", halves) is float
    assert takes_of("flat_map", in_words) is gives_of("flat_map", in_words) is str


def test_the_topology_says_which_tasks_are_batched() -> None:
    document = {
        "name": "t",
        "tasks": [{"name": "s", "run": f"{HERE}:Counter", "kind": "source"}, {"name": "h", "run": f"{HERE}:halves"},
                  {"name": "n", "run": f"{HERE}:norms"}, {"name": "d", "run": f"{HERE}:double", "batched": True}],
        "edges": [{"from": "s", "to": name} for name in "hnd"],
    }  # fmt: skip
    draft, faults = filled(draft_of(document)[0])
    assert [task.batched for task in draft.tasks if task] == [False, True, True, False]
    assert faults == [f"tasks[3].batched: {HERE}:double is not @batched: it takes one row at a time"]


def test_columns_are_of_any_type_and_are_neither_flat_maps_nor_all_sources() -> None:
    assert list(call_faults(norms, {})) == list(call_faults(Readings, {})) == []
    assert takes_of("map", norms) is gives_of("map", norms) is gives_of("source", Readings) is None
    (fault,) = call_faults(both, {})
    assert fault.startswith("is @flat_map and takes columns")
    (fault,) = call_faults(Lists, {})
    assert fault == "Source Lists is @batched: functions are, and classes with __call__"


def test_state_per_key_is_no_business_of_a_batched_task() -> None:
    @batched
    class Sums(Tally):
        pass

    (fault,) = call_faults(Sums, {})
    assert fault == "Keyed Sums is @batched: functions are, and classes with __call__"
    made = Task("it", run=f"{HERE}:halves", state="keyed")
    with pytest.raises(InvalidInput) as caught:
        build(made)
    (fault,) = caught.value.faults
    assert fault.startswith("is @batched, and a task with state per key takes one row at a time")


def test_attributes_may_be_dotted() -> None:
    assert build(task("Counter.Inner"))(4) == 4


@pytest.mark.parametrize(
    ("made", "what", "cause"),
    [
        (task(None), "task 'it' has no `run`", None),
        (task("doubel"), "has no 'doubel'; did you mean 'double'?", None),
        (Task("it", run="no_such_module:f"), "there is no module 'no_such_module'", "looked in"),
        (Task("it", run="xml.no_such:f"), "there is no module 'xml.no_such'", "looked in"),
        (Task("it", run="just text"), "not of the form 'module:attribute'", None),
        (task("Counter", "source", first=-1), "Counter(first=-1) raised ValueError", "first is negative"),
        (task("double", faktor=1), "does not fit", None),
    ],
)
def test_errors_name_the_task_and_what_was_tried(made: Task, what: str, cause: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        build(made)
    assert "'it'" in caught.value.what
    assert what in caught.value.what
    assert (cause or "") in (caught.value.cause or "")


@pytest.mark.parametrize(
    ("run", "params", "faults"),
    [
        (double, {"factor": 1.0}, []),
        (math.floor, {}, []),
        (print, {}, []),
        (Counter, {"first": 1}, []),
        (Batch, {}, []),
        (Tally, {}, []),
        (double, {"row": 1}, ["takes no param 'row'; did you mean 'factor'?"]),
        (copies, {}, ["needs the param 'count'"]),
        (nothing, {}, ["takes no row"]),
        (later, {}, []),
        (Later, {}, []),
        (
            later_together,
            {},
            [
                "is async and @batched: an async task takes one row at a time, and @concurrent says how many at once"
            ],
        ),
        (yields_later, {}, ["is an async generator: mark it with @flat_map"]),
        (
            OpensLater,
            {},
            ["has an async open and close, and its calls are not async: these are only where `__call__` is"],
        ),
        (at_once, {}, ["is @concurrent and not async: write `async def`, or leave the mark"]),
        (
            OpensLater,
            {},
            ["has an async open and close, and its calls are not async: these are only where `__call__` is"],
        ),
        (
            TalliesLater,
            {},
            ["TalliesLater.process is async: only functions and classes with __call__ may be"],
        ),
        (lazily, {}, ["is a generator: mark it with @flat_map"]),
        (NUMBER, {}, ["is int, neither a function nor a class"]),
        (COUNTER, {}, ["is an instance of Counter; name the class, each thread makes its own"]),
        (Bare, {}, ["class Bare has no __call__(self, row)"]),
        (int, {}, ["class int has no __call__(self, row)"]),
        (
            Unfinished,
            {},
            [
                "Window Unfinished does not define finish(key, rows)",
                "Unfinished.ready cannot be called as ready(key, rows)",
            ],
        ),
    ],
)
def test_what_cannot_be_a_task(run: Any, params: dict[str, Any], faults: list[str]) -> None:
    found = [fault.replace("; did you mean 'factor'?", "") for fault in call_faults(run, params)]
    assert found == [fault.replace("; did you mean 'factor'?", "") for fault in faults]


def test_what_is_async_says_how_many_calls_at_once_and_which_rows() -> None:
    bound = build(Task("it", run=f"{HERE}:words_later", kind="flat_map", params={"mark": "!"}))
    assert is_async(bound) and is_async(Later) and is_async(Later()) and not is_async(OpensLater())
    assert concurrency_of(Later) == concurrency_of(Later()) == (7, False) and concurrency_of(later) is None
    assert gives_of("flat_map", words_later) is str and gives_of("map", Later) is str
    assert takes_of("map", Later) is int
    assert list(call_faults(later, {}, state="keyed")) == [
        "is async, and a task with state per key takes one row at a time: ask in a task before it"
    ]
    with pytest.raises(ValueError, match="takes a number of calls from 1 on"):
        concurrent(0)


@pytest.mark.parametrize(
    ("key", "row", "value"),
    [
        (0, ("a", 1), "a"),
        (1, ["a", 1], 1),
        ("id", {"id": 7}, 7),
        (f"{HERE}:double", 4, 8),
    ],
)
def test_keys(key: Any, row: Any, value: Any) -> None:
    assert key_function(key)(row) == value


def test_no_key() -> None:
    with pytest.raises(InvalidInput):
        key_function(None)
    with pytest.raises(InvalidInput):
        key_function(f"{HERE}:no_such_key")


def kinds(*given: dict[str, Any]) -> tuple[list[str], list[str]]:
    tasks = [{"name": f"t{i}", **task, "run": f"{HERE}:{task['run']}"} for i, task in enumerate(given)]
    draft, _ = draft_of({"name": "t", "tasks": tasks})
    draft, faults = filled(draft)
    return [task.kind for task in draft.tasks if task], faults


def test_kinds_come_from_the_code_when_the_file_gives_none() -> None:
    runs = ("Counter", "double", "copies", "long", "Batch", "Tally")
    found, faults = kinds(*({"run": run} for run in runs))
    assert found == ["source", "map", "flat_map", "filter", "hold", "keyed"]
    assert faults == [f"tasks[2].run '{HERE}:copies': needs the param 'count'"]


def test_an_unmarked_function_may_be_declared_in_the_file() -> None:
    found, faults = kinds({"run": "double", "kind": "filter"}, {"run": "lazily", "kind": "flat_map"})
    assert found == ["filter", "flat_map"]
    assert faults == []


def test_a_kind_that_disagrees_with_the_code_is_a_fault() -> None:
    _, faults = kinds(
        {"run": "long", "kind": "map"}, {"run": "Counter", "kind": "map"}, {"run": "double", "kind": "source"}
    )
    assert faults == [
        f"tasks[0].kind 'map': {HERE}:long is a filter",
        f"tasks[1].kind 'map': {HERE}:Counter is a source",
        f"tasks[2].kind 'source': {HERE}:double is a map",
    ]


def test_keyed_code_makes_a_keyed_task() -> None:
    draft, _ = draft_of(Topology("t", (task("Tally"),)))
    draft, _ = filled(draft)
    assert draft.tasks[0] is not None and draft.tasks[0].state == "keyed"


def test_keys_are_tried_too() -> None:
    edges = (
        Edge("a", "b", 1.0, "fields", f"{HERE}:doubel"),
        Edge("a", "c", 1.0, "fields", f"{HERE}:nothing"),
    )
    _, faults = filled(draft_of(Topology("t", (Task("a"), Task("b"), Task("c")), edges))[0])
    assert faults == [
        f"edges[0].key '{HERE}:doubel': {__file__} has no 'doubel'; did you mean 'double'?",
        f"edges[1].key '{HERE}:nothing': takes no row",
    ]


# ── Which tasks are not run on sample rows: sinks, tasks that are marked, and what is behind them ───────

CODE = """
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.api.logic import Source, no_side_effects, side_effects

class Numbers(Source):
    def read(self, position, limit):
        return range(position, position + limit)

def plain(row):
    return row

@side_effects
def pay(row):
    return row

@no_side_effects
class Count:
    def __call__(self, row):
        return row

flow = topology("flow")
flow.source("numbers", Numbers) >> flow.task("before", plain) >> flow.task("pay", pay) >> flow.task("after", plain)
"""


def chained(*tasks: Task) -> Topology:
    edges = tuple(Edge(a.name, b.name) for a, b in zip(tasks, tasks[1:], strict=False))
    return Topology("t", tasks, edges)


def test_a_sink_has_effects_unless_it_says_otherwise():
    numbers, work = Task("numbers", "source", static=Static()), Task("work")
    assert chained(numbers, work, Task("store")).unsampled == ("store",)
    assert chained(numbers, work, Task("store", side_effects=False)).unsampled == ()
    assert chained(numbers, Task("alone", side_effects=False)).unsampled == ()
    assert chained(numbers).unsampled == ()  # a source is read


def test_samples_go_no_further_than_a_task_with_effects():
    numbers = Task("numbers", "source", static=Static())
    found = chained(
        numbers, Task("a"), Task("pay", side_effects=True), Task("b"), Task("c", side_effects=False)
    )
    assert found.unsampled == ("pay", "b", "c")


def test_a_mark_stays_beside_others():
    @side_effects
    @flat_map
    def both(row):
        return [row]

    assert side_effects_of(both) is True and side_effects_of(no_side_effects(lambda row: row)) is False
    assert side_effects_of(lambda row: row) is None
    assert both.__headgate_kind__ == "flat_map"


@pytest.mark.parametrize("form", ["python", "json"])
def test_marks_of_the_code_are_found_however_the_topology_is_written(tmp_path: Path, form: str):
    (tmp_path / "shop.py").write_text(CODE)
    reference = f"{tmp_path / 'shop.py'}:flow"
    if form == "json":
        tasks = [{"name": "numbers", "kind": "source", "run": "shop:Numbers"}, {"name": "before", "run": "shop:plain"},
                 {"name": "pay", "run": "shop:pay"}, {"name": "after", "run": "shop:Count"}]  # fmt: skip
        edges = [{"from": a["name"], "to": b["name"]} for a, b in zip(tasks, tasks[1:], strict=False)]
        document = {"schema": "headgate/topology/v1", "name": "flow", "tasks": tasks, "edges": edges}
        (tmp_path / "flow.json").write_text(json.dumps(document))
        reference = str(tmp_path / "flow.json")
    found = load(reference, runs=True).topology
    assert found.by_name["pay"].side_effects is True and found.by_name["before"].side_effects is None
    assert found.unsampled == ("pay", "after")


def test_a_task_says_so_itself():
    flow = topology("flow")
    flow.source("numbers") >> flow.task("work").side_effects() >> flow.task("sink").side_effects(False)
    assert flow.build().unsampled == ("work", "sink")
    assert flow.build().digest == chained_again().digest  # what it is, not what it does


def chained_again() -> Topology:
    flow = topology("flow")
    flow.source("numbers") >> flow.task("work") >> flow.task("sink")
    return flow.build()


def test_a_task_has_the_state_version_of_its_code() -> None:
    tasks = [{"name": name, "run": f"{HERE}:{name}"} for name in ("TallyOfNow", "Tally")]
    draft, faults = filled(draft_of({"name": "t", "tasks": tasks})[0])
    assert ([task and task.state_version for task in draft.tasks], faults) == ([2, 1], [])
    wrong = {"name": "it", "run": f"{HERE}:TallyOfNow", "state_version": 3}
    assert filled(draft_of({"name": "t", "tasks": [wrong]})[0])[1] == [
        f"tasks[0].state_version 3: {HERE}:TallyOfNow says 2"
    ]


def test_a_run_never_gets_code_of_another_state_version() -> None:
    """A worker that starts again may find other code in its folder."""
    build(Task("it", run=f"{HERE}:TallyOfNow", kind="keyed", state="keyed", state_version=2))
    with pytest.raises(InvalidInput, match="has states of version 1, and its code is of version 2"):
        build(Task("it", run=f"{HERE}:TallyOfNow", kind="keyed", state="keyed"))


def test_a_state_version_is_a_whole_number_and_migrate_takes_two_arguments() -> None:
    assert list(call_faults(Unsure, {})) == ["Unsure.state_version is '2': it is a whole number from 1 on"]
    assert list(call_faults(Unwilling, {})) == ["Unwilling.migrate cannot be called as migrate(old, version)"]
