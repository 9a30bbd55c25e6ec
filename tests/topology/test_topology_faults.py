"""Validation lists every fault of a topology with its place, and finds none in a valid one."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.topology_runtime.api.topology import Edge, LatencyConstraint, Static, Task, Topology
from headgate.topology_runtime.api.validate import MAX_EDGES, MAX_TASKS, faults_of, run_faults

VALID = Topology(
    "words",
    (
        Task("source", "source", "mine.tasks:Lines", {"path": "x"}, static=Static(1, 0.1, 0.15)),
        Task("parse", run="mine.tasks:parse"),
        Task("count", "keyed", "mine.tasks:Count", state="keyed"),
        Task("store", run="mine.tasks:store", exclusive=True),
    ),
    (
        Edge("source", "parse"),
        Edge("parse", "count", 2.5, "fields", "word"),
        Edge("count", "store", grouping="global"),
    ),
    (LatencyConstraint(("source", "parse", "count"), 300.0),),
)


def with_task(number: int, **fields: Any) -> Topology:
    tasks = list(VALID.tasks)
    tasks[number] = replace(tasks[number], **fields)
    return replace(VALID, tasks=tuple(tasks))


def with_edge(number: int, **fields: Any) -> Topology:
    edges = list(VALID.edges)
    edges[number] = replace(edges[number], **fields)
    return replace(VALID, edges=tuple(edges))


def plus(*edges: Edge) -> Topology:
    return replace(VALID, edges=VALID.edges + edges)


def test_a_valid_topology_has_no_fault() -> None:
    assert faults_of(VALID) == []
    assert run_faults(VALID) == []


def test_one_task_alone_is_a_topology() -> None:
    assert faults_of(Topology("one", (Task("only"),))) == []


@pytest.mark.parametrize(
    ("topology", "fault"),
    [
        (replace(VALID, name="a b"), "name 'a b': names are"),
        (replace(VALID, name=".."), "name '..': names are"),
        (replace(VALID, schema="headgate/topology/v2"), "schema 'headgate/topology/v2': must be"),
        (with_task(1, name="par/se"), "tasks[1].name 'par/se': names are"),
        (with_task(1, name="x" * 65), "tasks[1].name 'xxxx"),
        (with_task(1, model="../blob"), "tasks[1].model '../blob': names are"),
        (with_task(1, run="parse"), "tasks[1].run 'parse': not of the form 'module:attribute'"),
        (with_task(1, run="a:b()"), "tasks[1].run 'a:b()': not of the form"),
        (with_task(1, max_call_s=0.0), "tasks[1].max_call_s: 0 must be above 0"),
        (with_task(1, max_call_s=math.inf), "tasks[1].max_call_s: inf is not finite"),
        (with_task(0, static=Static(0)), "tasks[0].static.threads: 0 must be at least 1"),
        (with_task(0, static=Static(10**9)), "tasks[0].static.threads: 1e+09 must be"),
        (with_task(0, static=Static(1, 1.5)), "tasks[0].static.cpu: 1.5 must be at least 0 and at most 1"),
        (with_task(0, static=Static(1, 0, -0.1)), "tasks[0].static.memory: -0.1 must be"),
        (
            with_task(0, static=Static(1, 0, 0, -1e-3)),
            "tasks[0].static.cpu_per_tps: -0.001 must be at least 0",
        ),
        (with_task(0, static=Static(1, math.nan)), "tasks[0].static.cpu: nan is not finite"),
        (with_task(0, static=Static(2), exclusive=True), "tasks[0].static.threads: 2, but an exclusive task"),
        (with_task(3, static=Static(2), exclusive=False), "tasks[3].static.threads: 2, but a 'global' edge"),
        (with_task(0, state="keyed"), "tasks[0].state: a source has no state per key"),
        (with_task(1, params={"at": math.nan}), "tasks[1].params.at: nan is not a plain JSON value"),
        (with_task(1, params={"a": [1, {"b": {1}}]}), "tasks[1].params.a[1].b: {1} is not a plain JSON"),
        (with_task(1, params={"a": {1: 2}}), "tasks[1].params.a: the key 1 is not text"),
        (with_task(1, params={"a": 2**63}), "tasks[1].params.a: 9223372036854775808 is not a plain"),
        (with_task(1, params={"a": "\ud800"}), "tasks[1].params.a: '\\ud800' is not a plain"),
        (with_task(1, params={"a": "x" * (1 << 20)}), "topology: 1,049,0"),
        (with_edge(0, selectivity=0.0), "edges[0].selectivity: 0 must be above 0 and at most 1,000"),
        (with_edge(0, selectivity=1000.5), "edges[0].selectivity: 1000.5 must be"),
        (with_edge(0, selectivity=-1.0), "edges[0].selectivity: -1 must be"),
        (with_edge(0, selectivity=math.nan), "edges[0].selectivity: nan is not finite"),
        (with_edge(1, key=None), "edges[1].key: missing; a 'fields' edge needs"),
        (with_edge(1, key=""), "edges[1].key '': neither a field's name nor"),
        (with_edge(1, key="mine:"), "edges[1].key 'mine:': neither a field's name nor"),
        (with_edge(1, key=-1), "edges[1].key: -1 is not a position"),
        (with_edge(0, key="word"), "edges[0].key: only 'fields' edges have a key, and this one is 'shuffle'"),
        (with_edge(1, grouping="all", key=None), "edges[1].grouping 'all': task 'count' has state per key"),
        (plus(Edge("parse", "store")), "edges[3].grouping 'shuffle': edges[2] is 'global', so task 'store'"),
        (plus(Edge("store", "source")), "tasks[0] 'source': a source, but edges[3] leads to it"),
        (plus(Edge("parse", "parse")), "edges[3] 'parse': leads from a task to itself"),
        (plus(Edge("source", "parse", 2.0)), "edges[3] 'source → parse': the same as edges[0]"),
        (plus(Edge("parse", "skore")), "edges[3].to 'skore': no such task; did you mean 'store'?"),
        (plus(Edge("zzz", "parse")), "edges[3].from 'zzz': no such task"),
        (plus(Edge("store", "parse")), "edges[3]: tasks go round in a circle: parse → count → store → parse"),
        (
            replace(VALID, edges=VALID.edges[:1]),
            "tasks[2] 'count': has state per key, but no edge leads to it",
        ),
    ],
)
def test_each_fault_is_told_with_its_place(topology: Topology, fault: str) -> None:
    found = faults_of(topology)
    assert any(text.startswith(fault) for text in found), found


@pytest.mark.parametrize(
    ("path", "fields", "fault"),
    [
        (("source",), {}, "latency_constraints[0].path: needs two tasks or more"),
        (
            ("source", "count"),
            {},
            "latency_constraints[0].path[1] 'count': no edge leads to it from 'source'",
        ),
        (
            ("source", "prase"),
            {},
            "latency_constraints[0].path[1] 'prase': no such task; did you mean 'parse'?",
        ),
        (("source", "parse"), {"limit_ms": 0.0}, "latency_constraints[0].limit_ms: 0 must be above 0"),
        (
            ("source", "parse"),
            {"limit_ms": 0.01},
            "latency_constraints[0].limit_ms: 0.01, but 1 hop alone takes 0.05 ms or more",
        ),
        (("source", "parse"), {"window_s": -1.0}, "latency_constraints[0].window_s: -1 must be above 0"),
    ],
)
def test_latency_constraints_follow_edges(
    path: tuple[str, ...], fields: dict[str, float], fault: str
) -> None:
    limit = replace(LatencyConstraint(path, 300.0), **fields)
    assert faults_of(replace(VALID, latency_constraints=(limit,))) == [fault]


def test_a_name_used_twice_is_told_once_with_the_first_use() -> None:
    tasks = (*VALID.tasks, Task("parse"))
    assert faults_of(replace(VALID, tasks=tasks)) == ["tasks[4].name 'parse': used twice, first by tasks[1]"]


def test_no_tasks() -> None:
    assert faults_of(Topology("empty", ())) == ["tasks: there is none"]


def test_pieces_are_named() -> None:
    tasks = (*VALID.tasks, Task("alone"), Task("also"), Task("too"))
    found = faults_of(replace(VALID, tasks=tasks, edges=(*VALID.edges, Edge("also", "too"))))
    assert found == [
        "edges: the tasks are in 3 pieces that no edge joins: "
        "{source, parse, count, store}, {alone}, {also, too}"
    ]


def test_a_misspelt_edge_is_one_fault_not_two() -> None:
    """The task it was meant for is not also told to be apart."""
    assert faults_of(with_edge(0, source="sorce")) == [
        "edges[0].from 'sorce': no such task; did you mean 'source'?"
    ]


def test_every_circle_is_named_once() -> None:
    names = "abcdefg"
    tasks = tuple(Task(name) for name in names)
    edges = [Edge(*pair) for pair in ("ab", "bc", "ca", "cd", "de", "ef", "fe", "fg", "ba")]
    found = faults_of(Topology("two", tasks, tuple(edges)))
    assert found == [
        "edges[8]: tasks go round in a circle: a → b → a",
        "edges[6]: tasks go round in a circle: e → f → e",
    ]


def test_rates_that_run_away_are_told() -> None:
    tasks = tuple(Task(f"t{i}") for i in range(9))
    edges = tuple(Edge(f"t{i}", f"t{i + 1}", 1000.0) for i in range(8))
    found = faults_of(Topology("steep", tasks, edges))
    assert found == [
        "tasks[4] 't4': would see 1e+12 rows for each row of the input; look at the selectivities before it"
    ]


def test_all_faults_are_told_at_once() -> None:
    topology = Topology(
        "a b",
        (Task("x", max_call_s=-1.0), Task("x"), Task("y", run="no")),
        (Edge("x", "y", 0.0), Edge("y", "x"), Edge("x", "yy")),
    )
    places = [fault.split(" ")[0].rstrip(":") for fault in faults_of(topology)]
    assert sorted(places) == [
        "edges[0].selectivity",
        "edges[1]",
        "edges[2].to",
        "name",
        "tasks[0].max_call_s",
        "tasks[1].name",
        "tasks[2].run",
    ]


def test_fields_of_the_wrong_type_are_faults_too() -> None:
    """A topology made in Python has had no decoder look at it."""
    odd: Any = Topology("t", [Task("a", max_call_s="soon"), "b"], (Edge("a", "b", grouping="some"),))  # type: ignore[arg-type,list-item]
    assert faults_of(odd) == [
        "tasks[0].max_call_s: expected a number, got 'soon'",
        "tasks[1]: expected a mapping with the keys name, kind, run, params, model, static, state, "
        "exclusive, max_call_s, side_effects, arriving, batched, offsets, timed, timestamps, state_version, "
        "unchained, got 'b'",
        "edges[0].grouping: expected one of shuffle, fields, all, global, direct, local, got 'some'",
    ]


def test_what_can_only_be_planned() -> None:
    planned = Topology(
        "p", (Task("a"), Task("b", run="m:f"), Task("c", run="m:f")), (Edge("a", "c"), Edge("b", "c"))
    )
    assert faults_of(planned) == []
    assert run_faults(planned) == [
        "tasks[0].run: missing; task 'a' can be planned, not run",
        "tasks[1] 'b': no edge leads to it, so it must be a source, not a map",
    ]


def chain(size: int) -> Topology:
    tasks = tuple(Task(f"t{i}") for i in range(size))
    return Topology("chain", tasks, tuple(Edge(f"t{i}", f"t{i + 1}") for i in range(size - 1)))


def test_the_largest_topology_is_valid_and_one_more_is_not() -> None:
    assert faults_of(chain(MAX_TASKS)) == []
    assert faults_of(chain(MAX_TASKS + 1)) == [
        f"tasks: {MAX_TASKS + 1:,} are more than the {MAX_TASKS:,} allowed"
    ]


def test_too_many_edges() -> None:
    a, b = 101, 100  # every task of one half to every task of the other
    tasks = tuple(Task(f"a{i}") for i in range(a)) + tuple(Task(f"b{i}") for i in range(b))
    edges = tuple(Edge(f"a{i}", f"b{j}") for i in range(a) for j in range(b))
    found = faults_of(Topology("wide", tasks, edges))
    assert found == [f"edges: {a * b:,} are more than the {MAX_EDGES:,} allowed"]


@pytest.mark.full  # it measures CPU
@pytest.mark.alone
@pytest.mark.parametrize("misspelt", [False, True])
def test_time_is_linear_even_when_every_edge_is_wrong(misspelt: bool) -> None:
    """Four times the edges take about four times as long, not sixteen; near names are sought for a few."""

    def seconds(edges: int) -> float:
        end = "x" * 50 if misspelt else ""
        topology = Topology(
            "t",
            tuple(Task(f"t{i}") for i in range(edges // 10)),
            tuple(
                Edge(f"t{i % 97}{end}{i}" if misspelt else f"t{i % 97}", f"t{i % 89}") for i in range(edges)
            ),
        )
        began = time.process_time()
        assert faults_of(topology)
        return time.process_time() - began

    small, large = min(seconds(2_000) for _ in range(3)), min(seconds(8_000) for _ in range(3))
    assert large < 10 * small
