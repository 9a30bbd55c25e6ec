"""Which threads may be run by the thread before them: by the orders, by their task, by what the controller says."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.logic import Hold, any_thread, runs_anywhere
from headgate.topology_runtime.messages import (
    Ack,
    DataPlaneSettings,
    DesiredState,
    RootKey,
    Route,
    ThreadSpec,
    Token,
)
from headgate.topology_runtime.topology import KEY_RANGES, Edge, Task, Topology
from headgate.topology_runtime.worker.acks import summed
from headgate.topology_runtime.worker.chains import chained_to
from headgate.topology_runtime.worker.orders import orders_of

HERE, THERE = Slot("vm", 0), Slot("vm", 1)
ALL = ("source", "parse", "score", "other", "sink")
TASKS = {name: Task(name, kind="source" if name == "source" else "map") for name in ALL}
LINE = (Edge("source", "parse"), Edge("parse", "score"), Edge("score", "sink"))
ONE = {"source": [HERE], "parse": [HERE], "score": [HERE], "sink": [HERE]}


def chains(
    places: dict[str, list[Slot]] | None = None,
    edges: tuple[Edge, ...] = LINE,
    chained: tuple[str, ...] = ALL,
    leaving: tuple[str, ...] = (),
    strict: bool = False,
    **changed: dict[str, Any],
) -> set[tuple[str, str]]:
    """Pairs of tasks, of those that run in HERE, of which the first runs the second."""
    places = places or ONE
    tasks = tuple(replace(TASKS[name], **changed.get(name, {})) for name in places)
    topology = Topology("t", tasks, edges)
    threads, number = [], 0
    for task, slots in places.items():
        for part, slot in enumerate(slots):
            number += 1
            threads.append(ThreadSpec(number, task, slot, part, leaving=task in leaving))
    ids = {task: [t.thread for t in threads if t.task == task] for task in places}
    routes = tuple(
        Route(n, tuple((t, 1.0) for t in ids[edge.target]), ((ids[edge.target][0], KEY_RANGES),))
        for n, edge in enumerate(edges)
    )
    desired = DesiredState(
        token=Token(1, 1, 1), phase="committed", run="r", topology=topology, threads=tuple(threads),
        routes_number=1, routes=routes, settings=DataPlaneSettings(strict=strict),
        chained=chained,
        user_paths=(), workers=(),
    )  # fmt: skip
    orders = orders_of(desired, HERE, 1)
    task_of = {t.thread: t.task for t in threads}
    return {
        (t.task, task_of[to])
        for t in threads
        if t.slot == HERE
        for to in chained_to(orders, t.thread, t.task)
    }


def test_a_line_in_one_slot_is_one_chain() -> None:
    assert chains() == {("source", "parse"), ("parse", "score"), ("score", "sink")}


def test_only_what_the_controller_names() -> None:
    assert chains(chained=("score",)) == {("parse", "score")} and chains(chained=()) == set()


def test_not_over_slots() -> None:
    assert chains({**ONE, "score": [THERE]}) == {("source", "parse")}


@pytest.mark.parametrize("task", ["parse", "score"])
def test_not_where_a_task_has_two_threads(task: str) -> None:
    found = chains({**ONE, task: [HERE, HERE]})
    assert found and not any(task in pair for pair in found)


def test_not_where_the_second_thread_is_elsewhere() -> None:
    """Rows of an edge would not all come from one thread, or go to one."""
    assert not any("parse" in pair for pair in chains({**ONE, "parse": [HERE, THERE]}))


@pytest.mark.parametrize("kind", [{"exclusive": True}, {"state": "keyed"}])
def test_neither_exclusive_nor_keyed(kind: dict[str, Any]) -> None:
    found = chains(score=kind)
    assert ("parse", "score") not in found and ("source", "parse") in found


def test_not_where_edges_meet_but_where_they_part() -> None:
    edges = (Edge("source", "parse"), Edge("source", "other"), Edge("parse", "sink"), Edge("other", "sink"))
    places = {"source": [HERE], "parse": [HERE], "other": [HERE], "sink": [HERE]}
    assert chains(places, edges) == {("source", "parse"), ("source", "other")}


def test_not_to_one_that_leaves_nor_where_every_hop_is_to_be_checked() -> None:
    assert ("parse", "score") not in chains(leaving=("score",)) and chains(strict=True) == set()


class Plain:
    def __call__(self, row: Any) -> Any:
        return row


@any_thread
class Free(Plain):
    pass


class Below(Free):
    pass


@pytest.mark.parametrize(
    ("logic", "anywhere"),
    [
        (len, True),
        (chains, True),
        (lambda row: row, True),
        (Free(), True),
        (Below(), False),
        (Plain(), False),
        (Hold(), False),
        (functools.partial(max, 1), False),
        (Plain().__call__, False),
    ],
)
def test_a_function_runs_anywhere_an_object_where_its_class_says_so(logic: Any, anywhere: bool) -> None:
    assert runs_anywhere(logic) is anywhere


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 2**64 - 1), st.integers(-3, 3)),
        max_size=30,
    )
)
def test_the_acks_of_a_chain_say_as_one_what_they_said_each(told: list[tuple[int, int, int, int]]) -> None:
    acks = [(Slot("vm", slot), Ack(RootKey(1, 1, root, 0), value, held)) for slot, root, value, held in told]
    found = list(summed(acks))
    assert len({(home, ack.key) for home, ack in found}) == len(found)
    for home, ack in found:
        same = [one for there, one in acks if (there, one.key) == (home, ack.key)]
        assert ack.value == functools.reduce(operator.xor, (one.value for one in same))
        assert ack.held == sum(one.held for one in same)
    assert {(home, ack.key) for home, ack in acks} == {(home, ack.key) for home, ack in found}
