"""From `run` and `key` to what threads call: fresh instances, bound functions, errors that name the task."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.drafts import draft_of
from headgate.topology_runtime.instances import filled
from headgate.topology_runtime.loading import build, key_function
from headgate.topology_runtime.logic import (
    Hold,
    Keyed,
    Source,
    batched,
    batched_of,
    flat_map,
    keep_if,
    kind_of,
)
from headgate.topology_runtime.signatures import call_faults, gives_of, takes_of
from headgate.topology_runtime.topology import Edge, Task, Topology

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


class Batch(Hold):
    def ready(self, key: Any, rows: Sequence[Any]) -> bool:
        return len(rows) > 9

    def finish(self, key: Any, rows: Sequence[Any]) -> Iterable[Any]:
        return [list(rows)]


class Unfinished(Hold):
    def ready(self, key: Any) -> bool:  # type: ignore[override]
        return True


class Bare:
    pass


async def later(row: Any) -> Any:
    return row


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
        (later, {}, ["is async; tasks are plain functions, one thread each"]),
        (lazily, {}, ["is a generator: mark it with @flat_map"]),
        (NUMBER, {}, ["is int, neither a function nor a class"]),
        (COUNTER, {}, ["is an instance of Counter; name the class, each thread makes its own"]),
        (Bare, {}, ["class Bare has no __call__(self, row)"]),
        (int, {}, ["class int has no __call__(self, row)"]),
        (
            Unfinished,
            {},
            [
                "Hold Unfinished does not define finish(key, rows)",
                "Unfinished.ready cannot be called as ready(key, rows)",
            ],
        ),
    ],
)
def test_what_cannot_be_a_task(run: Any, params: dict[str, Any], faults: list[str]) -> None:
    found = [fault.replace("; did you mean 'factor'?", "") for fault in call_faults(run, params)]
    assert found == [fault.replace("; did you mean 'factor'?", "") for fault in faults]


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
