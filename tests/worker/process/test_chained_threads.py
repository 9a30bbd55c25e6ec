"""Which threads may be run by the thread before them: by the orders, by their task, by what the controller says."""

from __future__ import annotations

import functools
import operator
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from line_of_threads import NAMES, ROWS, held, line_of
from msgspec.structs import replace

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Window, any_thread, runs_anywhere
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Task, Topology
from headgate.topology_runtime.wire.messages import (
    Ack,
    DataPlaneSettings,
    DesiredState,
    RootKey,
    Route,
    ThreadSpec,
    Token,
)
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.orders.thread_orders import chained_to, orders_of
from headgate.topology_runtime.worker.process import task_thread as frames
from headgate.topology_runtime.worker.process.task_thread import TaskThread
from headgate.topology_runtime.worker.rows.acks import summed

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


def test_an_unchained_task_neither_runs_nor_is_run() -> None:
    assert chains(score={"unchained": True}) == {("source", "parse")}
    assert chains(source={"unchained": True}) == {("parse", "score"), ("score", "sink")}


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


class Pane(Window):
    def ready(self, key: object, rows: object) -> bool:
        return True

    def finish(self, key: object, rows: object) -> list[object]:
        return []


@pytest.mark.parametrize(
    ("logic", "anywhere"),
    [
        (len, True),
        (chains, True),
        (lambda row: row, True),
        (Free(), True),
        (Below(), False),
        (Plain(), False),
        (Pane(), False),
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


# ── A chain of real threads that were never started: the source's turns one after the other, in the test's
# thread

TURNS = 5


@pytest.fixture
def line(tmp_path: Path) -> dict[str, TaskThread]:
    return line_of(tmp_path, {})


def test_a_root_is_no_larger_than_the_frames_of_its_receivers(tmp_path: Path) -> None:
    """Or each would be cut in two: a frame that is full, and one of what is left."""
    line = line_of(tmp_path, {2: 600.0})
    for _ in range(TURNS):
        line["numbers"].work.turn()
    words, at = line["pairs"].host.meter.words, line["pairs"].at
    assert (words[at + mt.FRAMES_IN], words[at + mt.TUPLES_IN]) == (TURNS, TURNS * 60)


def test_the_acks_of_a_chain_come_as_one_for_each_root_and_open_nothing(line: dict[str, TaskThread]) -> None:
    source = line["numbers"]
    told = []
    for _ in range(TURNS):
        source.work.turn()
        told.append(source.inbox.get_nowait())
        assert source.inbox.empty()
        source.inbox.put(told[-1])
    assert [[ack.key.sequence for ack in acks] for acks in told] == [[n] for n in range(TURNS)]
    ledger = source.core.behaviour.ledger  # type: ignore[attr-defined]
    assert ledger.acked == (TURNS - 1) * ROWS and list(ledger.open) == [TURNS - 1]
    assert line["sink"].host.meter.words[line["sink"].at + mt.TUPLES_IN] == TURNS * ROWS


def test_the_rows_of_a_frame_are_let_go_before_the_rest_of_the_chain_has_what_came_of_them(
    line: dict[str, TaskThread],
) -> None:
    for _ in range(TURNS):
        line["numbers"].work.turn()
    assert held == [2] * TURNS, "the test's own list and the call that counts, nobody else"


def test_what_threads_of_a_chain_borrow_from_each_other_adds_up_to_nothing(
    line: dict[str, TaskThread],
) -> None:
    for _ in range(TURNS):
        line["numbers"].work.turn()
    words = line["numbers"].host.meter.words
    borrowed = {name: words[thread.at + mt.BORROWED_NS] for name, thread in line.items()}
    assert sum(borrowed.values()) == 0
    assert borrowed["numbers"] < 0 and all(borrowed[name] > 0 for name in NAMES[1:])


def queued(tmp_path: Path) -> dict[str, TaskThread]:
    """Some frames wait at `pairs`, which was not chained for a while and is now."""
    line = line_of(tmp_path, dict.fromkeys(range(1, 5), 1e5))  # a window of many frames
    line["numbers"].work.turn()  # looks at its orders
    targets, line["numbers"].post.targets = line["numbers"].post.targets, frozenset()
    for _ in range(TURNS):
        line["numbers"].work.turn()
    assert not line["numbers"].post.chained
    line["numbers"].post.targets = targets
    return line


def test_a_chain_is_entered_under_load_once_the_queue_before_it_is_drained(tmp_path: Path) -> None:
    line = queued(tmp_path)
    borrowed_ns = line["pairs"].borrowed_ns

    def drain() -> None:
        for _ in range(TURNS):
            time.sleep(0.003)
            line["pairs"].work.turn()

    pairs = threading.Thread(target=drain)
    pairs.start()
    line["numbers"].work.turn()
    pairs.join()
    words, at = line["pairs"].host.meter.words, line["pairs"].at
    assert line["pairs"].borrowed_ns > borrowed_ns, "the source ran it"
    assert words[at + mt.FRAMES_IN] == TURNS + 2 and line["pairs"].inbox.empty()


def test_a_receiver_that_does_not_drain_is_not_waited_for_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "DRAIN_S", 0.01)
    line = queued(tmp_path)
    line["numbers"].work.turn()
    for _ in range(TURNS + 1):
        line["pairs"].work.turn()
    words, at = line["pairs"].host.meter.words, line["pairs"].at
    assert words[at + mt.FRAMES_IN] == TURNS + 2 and line["pairs"].inbox.empty(), "in the order they came"
