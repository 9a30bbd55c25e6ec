"""Every sequence of a constrained path has one manager, and a manager nothing beside its sequences (paper 4, 3.4.2):
against all sequences, written down one by one."""

from __future__ import annotations

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.latency.managers import Channels, Manager, anchor_of, managers, sequences
from headgate.topology_runtime.topology import Edge, Grouping, LatencyConstraint, Task, Topology

GROUPINGS: tuple[Grouping, ...] = ("shuffle", "fields", "local", "global", "all")


def line(groupings: tuple[Grouping, ...], *paths: tuple[int, int]) -> Topology:
    """Tasks t0 → t1 → …, and a constraint from one number to another for each of `paths`."""
    names = [f"t{n}" for n in range(len(groupings) + 1)]
    edges = tuple(
        Edge(a, b, grouping=grouping, key=0 if grouping == "fields" else None)
        for (a, b), grouping in zip(pairwise(names), groupings, strict=True)
    )
    limits = tuple(LatencyConstraint(tuple(names[a : b + 1]), 100.0) for a, b in paths)
    tasks = tuple(Task(name, kind="source" if n == 0 else "map") for n, name in enumerate(names))
    return Topology("t", tasks, edges, limits)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Topology, dict[str, tuple[int, ...]], dict[int, Slot]]:
    groupings = tuple(draw(st.lists(st.sampled_from(GROUPINGS), min_size=1, max_size=4)))
    tasks = len(groupings) + 1
    begin = draw(st.integers(0, tasks - 2))
    path = begin, draw(st.integers(begin + 1, tasks - 1))
    threads_of: dict[str, tuple[int, ...]] = {}
    slot_of: dict[int, Slot] = {}
    for task in range(tasks):
        slots = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
        first = len(slot_of)
        slot_of |= {first + n: Slot("vm", slot) for n, slot in enumerate(slots)}
        threads_of[f"t{task}"] = tuple(range(first, first + len(slots)))
    return line(groupings, path), threads_of, slot_of


def joined(grouping: str, sender: int, receivers: tuple[int, ...], slot_of: dict[int, Slot]) -> set[int]:
    """To whom a sender gives rows: said by the docs of groupings, one by one."""
    if grouping == "global":
        return {min(receivers)}
    near = {thread for thread in receivers if slot_of[thread] == slot_of[sender]}
    return near if grouping == "local" and near else set(receivers)


@given(cases())
def test_each_sequence_has_one_manager_and_no_manager_has_more(
    case: tuple[Topology, dict[str, tuple[int, ...]], dict[int, Slot]],
) -> None:
    topology, threads_of, slot_of = case
    (constraint,) = topology.latency_constraints
    steps = [threads_of[name] for name in constraint.path]
    grouping = {(e.source, e.target): e.grouping for e in topology.edges}
    kinds = [grouping[pair] for pair in pairwise(constraint.path)]
    every = [
        one
        for one in product(*steps)
        if all(b in joined(kinds[n], a, steps[n + 1], slot_of) for n, (a, b) in enumerate(pairwise(one)))
    ]
    made = managers(topology, threads_of, slot_of)
    held = {
        manager.slot: {
            one for one in every if all(t in part for t, part in zip(one, its.threads, strict=True))
        }
        for manager in made
        for its in manager.parts
    }
    assert sorted(one for some in held.values() for one in some) == sorted(every)
    for manager in made:
        for its in manager.parts:
            used = [{one[n] for one in held[manager.slot]} for n in range(len(steps))]
            assert [set(part) for part in its.threads] == used, "no thread that no sequence passes"
            channels = [
                Channels(kind, frozenset(a), frozenset(b), slot_of)
                for kind, (a, b) in zip(kinds, pairwise(steps), strict=True)
            ]
            assert sequences(its, channels) == len(held[manager.slot])


def test_the_papers_case_has_a_manager_on_each_worker_and_512_million_sequences() -> None:
    """Figure 5: all to all, three hops within a worker, all to all; 800 threads of each of six tasks."""
    topology, threads_of, slot_of = papers_case(800)
    made = managers(topology, threads_of, slot_of)
    assert len(made) == 800
    (part,) = made[0].parts
    assert [len(threads) for threads in part.threads] == [800, 1, 1, 1, 1, 800]
    assert sum(counted(topology, made, threads_of, slot_of)) == 512_000_000


def papers_case(parallel: int) -> tuple[Topology, dict[str, tuple[int, ...]], dict[int, Slot]]:
    topology = line(("fields", "local", "local", "local", "fields"), (0, 5))
    threads_of = {f"t{n}": tuple(range(n * parallel, (n + 1) * parallel)) for n in range(6)}
    slot_of = {thread: Slot(f"vm{thread % parallel // 4}", thread % 4) for thread in range(6 * parallel)}
    return topology, threads_of, slot_of


def counted(
    topology: Topology, made: list[Manager], threads_of: dict[str, tuple[int, ...]], slot_of: dict[int, Slot]
) -> list[int]:
    channels = [
        Channels(
            edge.grouping, frozenset(threads_of[edge.source]), frozenset(threads_of[edge.target]), slot_of
        )
        for edge in topology.edges
    ]
    return [sequences(part, channels) for manager in made for part in manager.parts]


def test_the_anchor_is_in_most_workers_and_has_the_fewest_channels() -> None:
    a, b = Slot("vm", 0), Slot("vm", 1)
    slot_of = {0: a, 1: a, 2: b, 3: a, 4: b, 5: a}
    steps = [frozenset({0}), frozenset({1, 2}), frozenset({3, 4}), frozenset({5})]
    channels = [Channels("shuffle", x, y, slot_of) for x, y in pairwise(steps)]
    assert anchor_of(steps, channels, slot_of) == 1, (
        "of the two in both workers the first: both have two channels"
    )
    slot_of[0] = b
    assert anchor_of(steps, channels, slot_of) == 1, "one thread is in one worker, whichever"


def test_a_worker_with_parts_of_two_constraints_manages_both() -> None:
    topology = line(("shuffle", "shuffle"), (0, 1), (0, 2))
    at = Slot("vm", 0)
    made = managers(topology, {"t0": (0,), "t1": (1,), "t2": (2,)}, {0: at, 1: at, 2: at})
    assert [part.constraint for manager in made for part in manager.parts] == [0, 1] and len(made) == 1


def test_nobody_manages_what_has_no_threads() -> None:
    topology = line(("shuffle",), (0, 1))
    assert managers(topology, {"t0": (0,)}, {0: Slot("vm", 0)}) == []


def test_a_sender_without_a_receiver_in_its_slot_is_managed_by_every_receivers_worker() -> None:
    """By `local` it sends to all, and the anchor is the second task: it is in more workers."""
    slots = [Slot("vm", n) for n in range(3)]
    threads_of = {"t0": (0, 1), "t1": (2, 3, 4)}
    slot_of = {0: slots[0], 1: Slot("vm", 9), 2: slots[0], 3: slots[1], 4: slots[2]}
    made = managers(line(("local",), (0, 1)), threads_of, slot_of)
    assert {m.slot: [set(step) for step in m.parts[0].threads] for m in made} == {
        slots[0]: [{0, 1}, {2}],
        slots[1]: [{1}, {3}],
        slots[2]: [{1}, {4}],
    }
