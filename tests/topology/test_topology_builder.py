"""Topologies written in Python: `>>`, groupings, references, kinds, and faults told all at once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest

from headgate.topology_runtime.api.builder import End, topology
from headgate.topology_runtime.api.logic import (
    Keyed,
    LiveSource,
    RowId,
    Sink,
    Source,
    Window,
    flat_map,
    keep_if,
)
from headgate.topology_runtime.api.topology import Edge, LatencyConstraint, Static, Task
from headgate.topology_runtime.errors import InvalidInput

HERE = __name__


class Lines(Source):
    def __init__(self, path: str, skip: int = 0) -> None:
        self.path, self.skip = path, skip

    def read(self, position: int, limit: int) -> Sequence[str]:
        return []


class Events(LiveSource):
    def poll(self, limit: int) -> list[dict[str, Any]]:
        return []


@flat_map
def split(line: str) -> Iterator[str]:
    yield from line.split()


@keep_if
def is_long(word: str) -> bool:
    return len(word) > 3


class Count(Keyed):
    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: str, state: int) -> tuple[int, Iterable[tuple]]:  # type: ignore[type-arg]
        return state + 1, [(key, state + 1)]


class Pairs(Window):
    def key(self, row: dict, source: str) -> Any:  # type: ignore[type-arg]
        return row["id"]

    def ready(self, key: Any, rows: Sequence[Any]) -> bool:
        return len(rows) == 2

    def finish(self, key: Any, rows: Sequence[Any]) -> Iterable[dict]:  # type: ignore[type-arg]
        return rows


class Store:
    def __call__(self, row: tuple) -> None:  # type: ignore[type-arg]
        return None


def shout(word: str) -> str:
    return word.upper()


def scaled(number: float, factor: float = 2.0, *, digits: int) -> float:
    return round(number * factor, digits)


def untyped(row):  # type: ignore[no-untyped-def]
    return row


def first_letter(word: str) -> str:
    return word[0]


def fault_list(flow: Any) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        flow.build()
    return list(caught.value.faults)


def test_a_topology_reads_as_it_flows() -> None:
    flow = topology("words")
    lines = flow.source("lines", Lines, path="book.txt")
    words = flow.task("split", split, max_call_s=2.0).emits(8)
    count = flow.task("count", Count, model="counting")
    store = flow.task("store", Store, static=Static(2, 0.1, 0.2), exclusive=False)
    lines >> words >> flow.task("long", is_long).emits(0.5) >> count.by("word") >> store.local_first()
    flow.latency(lines, words, "long", limit_ms=300.0)
    built = flow.build()
    assert built.tasks == (
        Task("lines", "source", f"{HERE}:Lines", {"path": "book.txt"}, static=Static(1)),
        Task("split", "flat_map", f"{HERE}:split", max_call_s=2.0),
        Task("count", "keyed", f"{HERE}:Count", model="counting", state="keyed"),
        Task("store", "map", f"{HERE}:Store", static=Static(2, 0.1, 0.2)),
        Task("long", "filter", f"{HERE}:is_long"),
    )
    assert built.edges == (
        Edge("lines", "split"),
        Edge("split", "long", 8.0),
        Edge("long", "count", 0.5, "fields", "word"),
        Edge("count", "store", 1.0, "local"),
    )
    assert built.latency_constraints == (LatencyConstraint(("lines", "split", "long"), 300.0, 15.0),)


def test_an_unchained_task_makes_another_topology() -> None:
    flow, other = topology("t"), topology("t")
    flow.source("a") >> flow.task("b") >> flow.task("c")
    other.source("a") >> other.task("b").unchained() >> other.task("c")
    assert [task.unchained for task in other.build().tasks] == [False, True, False]
    assert flow.build().digest != other.build().digest


def pairs_of(flow: Any) -> list[tuple[str, str]]:
    return [(edge.source, edge.target) for edge in flow.build().edges]


def planned(*names: str) -> tuple[Any, list[End]]:
    flow = topology("planned")
    return flow, [flow.task(name) for name in names]


def test_fan_out_and_in() -> None:
    flow, (a, b, c, d) = planned("a", "b", "c", "d")
    a >> [b, c] >> d
    assert pairs_of(flow) == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]


def test_paths_inside_a_fan_are_entered_at_their_heads() -> None:
    flow, (a, b, c, d, e) = planned("a", "b", "c", "d", "e")
    a >> [b >> c, d] >> e
    assert pairs_of(flow) == [("b", "c"), ("a", "b"), ("a", "d"), ("c", "e"), ("d", "e")]


def test_a_list_may_come_first() -> None:
    flow, (a, b, c) = planned("a", "b", "c")
    [a, b] >> c
    assert pairs_of(flow) == [("a", "c"), ("b", "c")]


def test_every_grouping() -> None:
    flow, (a, b, c, d, e, f, g, h) = planned("a", "b", "c", "d", "e", "f", "g", "h")
    a >> [b.shuffle(), c.by(0), d.by("id"), e.all(), f.to_one(), g.direct(), h.local_first()]
    assert [(edge.grouping, edge.key) for edge in flow.build().edges] == [
        ("shuffle", None),
        ("fields", 0),
        ("fields", "id"),
        ("all", None),
        ("global", None),
        ("direct", None),
        ("local", None),
    ]


def test_selectivity_belongs_to_the_sender_grouping_to_the_receiver() -> None:
    flow, (a, b, c) = planned("a", "b", "c")
    middle = b.by("id").emits(3.0)
    a >> middle >> c
    assert flow.build().edges == (Edge("a", "b", 1.0, "fields", "id"), Edge("b", "c", 3.0))


def test_a_key_may_be_a_function() -> None:
    flow = topology("t")
    flow.source("a", Lines, path="x") >> flow.task("b", untyped).by(first_letter)
    assert flow.build().edges[0].key == f"{HERE}:first_letter"


def test_a_partial_gives_params_that_have_the_name_of_an_option() -> None:
    flow = topology("t")
    flow.source("a", Events) >> flow.task("b", functools.partial(scaled, digits=3), factor=1.5)
    assert flow.build().tasks[1].params == {"digits": 3, "factor": 1.5}


def test_names_as_text_are_left_to_the_loader() -> None:
    flow = topology("t")
    flow.source("a", "their.code:Source", path="x") >> flow.task("b", "their.code:function")
    assert [task.run for task in flow.build().tasks] == ["their.code:Source", "their.code:function"]


def test_what_another_process_cannot_find_is_refused() -> None:
    def inside(row: Any) -> Any:
        return row

    flow = topology("t")
    source = flow.source("s", Lines(path="x"))  # type: ignore[arg-type]
    source >> flow.task("a", lambda row: row) >> flow.task("b", inside) >> flow.task("c", Store())
    source >> flow.task("d", "x".join).by(lambda row: row)
    found = fault_list(flow)
    assert len(found) == 7
    for number, place in enumerate((0, 0, 1, 2, 3, 4)):
        assert found[number].startswith(f"tasks[{place}].run")
    assert found[6].startswith("edges[3] s → d.key: ") and "a lambda" in found[6]
    assert "is an instance of Lines; name the class" in found[0]
    assert "is an instance" in found[1]
    assert "a lambda: another process cannot import it" in found[2]
    assert "defined inside 'test_what_another_process_cannot_find_is_refused'" in found[3]
    assert "is an instance" in found[4]


def test_params_are_checked_against_the_signature() -> None:
    flow = topology("t")
    flow.source("a", Lines, pth="x") >> flow.task("b", scaled, factr=2)
    assert fault_list(flow) == [
        "tasks[0].run Lines: takes no param 'pth'; did you mean 'path'?",
        "tasks[0].run Lines: needs the param 'path'",
        "tasks[1].run scaled: takes no param 'factr'; did you mean 'factor'?",
        "tasks[1].run scaled: needs the param 'digits'",
        "edges[0] a → b: a gives str, b takes float",
    ]


def test_sources_and_tasks_are_told_apart() -> None:
    flow = topology("t")
    flow.source("a", shout) >> flow.task("b", Lines, path="x")
    found = fault_list(flow)
    assert "tasks[0].run shout: is a map, so it belongs in `task(…)`" in found
    assert "tasks[1].run Lines: is a source, so it belongs in `source(…)`" in found


def test_two_topologies_cannot_be_joined() -> None:
    _, (a,) = planned("a")
    _, (b,) = planned("b")
    with pytest.raises(TypeError, match="different topologies"):
        a >> b


@pytest.mark.parametrize("wrong", [[], ["b"], None, 3])
def test_only_tasks_can_be_joined(wrong: Any) -> None:
    _, (a,) = planned("a")
    with pytest.raises(TypeError):
        a >> wrong


# ── rows by annotation ──────────────────────────────────────────────────────────────────────────


def gives_int(row: str) -> int:
    return 1


def gives_bool(row: str) -> bool:
    return True


def gives_decimal(row: str) -> Decimal:
    return Decimal(1)


def gives_mapping(row: str) -> Mapping[str, int]:
    return {}


def gives_nothing(row: str) -> None:
    return None


def gives_maybe(row: str) -> str | None:
    return row


def gives_unknown(row: str) -> NotImported:  # type: ignore[name-defined] # noqa: F821
    return row


def takes_float(row: float) -> float:
    return row


def takes_str(row: str) -> str:
    return row


@pytest.mark.parametrize(
    ("sender", "receiver", "fault"),
    [
        (takes_str, takes_str, None),
        (gives_int, takes_float, None),
        (gives_bool, takes_float, None),
        (takes_str, untyped, None),
        (untyped, takes_str, None),
        (gives_maybe, takes_float, None),
        (gives_unknown, takes_float, None),
        (gives_mapping, takes_float, None),
        (split, takes_str, None),
        (is_long, takes_str, None),
        (Count, Store, None),
        (gives_int, takes_str, "b gives int, c takes str"),
        (takes_float, gives_int, "b gives float, c takes str"),
        (split, takes_float, "b gives str, c takes float"),
        (is_long, takes_float, "b gives str, c takes float"),
        (gives_nothing, takes_str, "b gives NoneType, c takes str"),
        (gives_decimal, untyped, "b gives Decimal, which is no plain value"),
        (Count, takes_str, "b gives tuple, c takes str"),
        (Pairs, takes_str, "b gives dict, c takes str"),
        (gives_int, Count, "b gives int, c takes str"),
        (gives_int, Pairs, "b gives int, c takes dict"),
        (gives_int, Store, "b gives int, c takes tuple"),
    ],
)
def test_both_ends_of_an_edge_must_agree(sender: Any, receiver: Any, fault: str | None) -> None:
    flow = topology("t")
    flow.source("a", Lines, path="x") >> flow.task("b", sender).by(0) >> flow.task("c", receiver).by(0)
    ours = [f"edges[1] b → c: {fault}"] if fault else []
    try:
        flow.build()
    except InvalidInput as error:
        assert [told for told in error.faults if told.startswith("edges[1]")] == ours
    else:
        assert not ours


class Batches(Pairs):
    key = Window.key


@pytest.mark.parametrize(
    ("window", "how", "fault"),
    [
        (Pairs, "shuffle", True),
        (Pairs, "local_first", True),
        (Pairs, "by", False),
        (Pairs, "to_one", False),
        (Batches, "shuffle", False),
    ],
)
def test_windows_by_key_are_not_torn_apart_by_more_threads(window: Any, how: str, fault: bool) -> None:
    flow = topology("t")
    pairs = flow.task("pairs", window)
    ends = {"local_first": pairs.local_first, "by": lambda: pairs.by("id"), "to_one": pairs.to_one}
    flow.source("a") >> ends.get(how, lambda: pairs)()
    if not fault:
        flow.build()
        return
    with pytest.raises(InvalidInput) as refused:
        flow.build()
    (told,) = refused.value.faults
    assert told.startswith("edges[0] a → pairs.grouping") and "has windows by its `key`" in told


class OneFile(Sink[int]):
    """Another process could not open it."""

    one_thread = True

    def write(self, rows: Sequence[int], ids: Sequence[RowId]) -> None:
        raise AssertionError("it is not run")


@pytest.mark.parametrize("to_one", [True, False])
def test_a_sink_of_one_thread_is_led_to_by_edges_to_one(to_one: bool) -> None:
    flow = topology("t")
    store = flow.task("store", OneFile)
    flow.source("a") >> (store.to_one() if to_one else store)
    if to_one:
        flow.build()
        return
    with pytest.raises(InvalidInput) as refused:
        flow.build()
    (told,) = refused.value.faults
    assert told.startswith("edges[0] a → store.grouping") and "`.to_one()`" in told


def test_a_source_may_have_several_threads() -> None:
    flow = topology("t")
    flow.source("three", Lines, path="x", threads=3) >> flow.task("split", split)
    flow.source("own", Lines, path="y", threads=2, static=Static(1, 0.3, 0.2)) >> flow.task("again", split)
    made = {task.name: task.static for task, _ in flow.tasks}
    assert made["three"] == Static(threads=3) and made["own"] == Static(2, 0.3, 0.2)
    assert {task.name: task.params for task, _ in flow.tasks}["three"] == {"path": "x"}
