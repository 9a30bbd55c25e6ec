"""Greedy matching against paper 3's Algorithm 1 as it is printed: every operator tried on every node, all loads, words
and both objectives counted anew each time."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace
from worlds import vms_of

from headgate.controller.models.plans import Allocation, Placement, TaskAllocation, TaskFlow
from headgate.controller.plan.mappers.free_slots import GreedyBounds, Room
from headgate.controller.plan.mappers.greedy_matching import greedy_matching
from headgate.controller.plan.schedulers import MAPPERS
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.platform.planning_time import clocked

HAIR = 1e-9  # what numbers may be off by


def allocation(**threads: tuple[int, float, float]) -> Allocation:
    """Task → (threads, CPU and memory of one thread)."""
    tasks = tuple(
        TaskAllocation(name, 1.0, count, cpu * count, memory * count)
        for name, (count, cpu, memory) in threads.items()
    )
    return Allocation("mba", 1.0, tasks, 1)


def threads_in(placement: Placement) -> dict[tuple[Slot, str], int]:
    return {(bundle.slot, bundle.task): bundle.threads for bundle in placement.bundles}


# ── Algorithm 1 ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Cluster:
    """`placed`: A of the paper, how many operators of each task are on each node."""

    allocation: Allocation
    room: Room

    def __post_init__(self) -> None:
        self.nodes = self.room.slots()
        self.speed = {vm.vm: vm.speed for vm in self.room.vms}
        self.needs = {
            t.task: (t.cpu_slots / t.threads, t.memory_slots / t.threads) for t in self.allocation.tasks
        }
        self.threads = {t.task: t.threads for t in self.allocation.tasks}
        self.placed: dict[Slot, Counter[str]] = {node: Counter() for node in self.nodes}
        known = {vm.vm: vm.bandwidth_mbps for vm in self.room.vms if vm.bandwidth_mbps is not UNSET}
        self.by_vm = bool(known) and any(flow.row_bytes for flow in self.room.flows)
        self.mbps = {vm.vm: known.get(vm.vm, max(known.values(), default=0.0)) for vm in self.room.vms}

    def beside(self, node: Slot) -> list[Slot]:
        """The nodes on its link."""
        return [other for other in self.nodes if other.vm == node.vm] if self.by_vm else [node]

    def cpu(self, node: Slot) -> float:
        used = sum(self.needs[task][0] * count for task, count in self.placed[node].items())
        return used / self.speed[node.vm]

    def memory(self, node: Slot) -> float:
        return sum(self.needs[task][1] * count for task, count in self.placed[node].items())

    def crossing(self, node: Slot) -> float:
        """Bytes/s, or rows/s, that leave or enter the link of a node."""
        said = 0.0
        for flow in self.room.flows:
            a, b = (
                sum(self.placed[other][task] for other in self.beside(node)) / self.threads[task]
                for task in (flow.source, flow.target)
            )
            said += flow.rows_tps * (flow.row_bytes or 1.0) * (a * (1 - b) + b * (1 - a))
        return said

    def most(self, node: Slot) -> float:
        if self.by_vm:
            return 2 * self.mbps[node.vm] * 1e6 / 8
        return (
            2 * sum(f.rows_tps * (f.row_bytes or 1.0) for f in self.room.flows) / len(self.nodes) or 1.0
        )  # what all say and hear, in equal parts

    def words(self, node: Slot) -> float:
        return self.crossing(node) / self.most(node)

    def holds(self, node: Slot, cpu: float, bandwidth: float = float("inf")) -> bool:
        """Are its constraints satisfied?"""
        return (
            self.cpu(node) <= cpu + HAIR
            and self.memory(node) <= self.room.memory + HAIR
            and self.words(node) <= bandwidth + HAIR
        )

    def objective(self) -> float:
        """The less the better."""
        kinds = [[self.cpu(node) for node in self.nodes], [self.words(node) for node in self.nodes]]
        if self.room.greedy.objective == "deviation":
            return sum(abs(one - sum(used) / len(used)) for used in kinds for one in used)
        speeds = [self.speed[node.vm] for node in self.nodes]
        links = {self.beside(node)[0] for node in self.nodes}
        cpu = sum(used * speed for used, speed in zip(kinds[0], speeds, strict=True)) / sum(speeds)
        words = sum(map(self.crossing, links)) / sum(map(self.most, links))
        return -(cpu + words) * len(self.nodes)

    def level(self, node: Slot) -> str:
        use = max(self.cpu(node), self.words(node))
        return "1 light" if use < 0.4 else "2 moderate" if use < 0.8 else "3 heavy"


def as_printed(
    asked: Allocation, room: Room, t_max: float = float("inf")
) -> dict[tuple[Slot, str], int] | None:
    """None: an operator has no room. An operator tried takes 1 of the time."""
    cluster, t, late = Cluster(asked, room), 0, False
    left = {task.task: task.threads for task in asked.tasks}
    for task in asked.tasks:  # what runs already
        for node in room.pinned.get(task.task, ())[: task.threads]:
            if node in cluster.placed:
                cluster.placed[node][task.task] += 1
                if cluster.holds(node, 1.0):
                    left[task.task] -= 1
                else:
                    cluster.placed[node][task.task] -= 1
    by_need = sorted(asked.tasks, key=lambda task: -max(cluster.needs[task.task]))
    waiting = [task.task for task in by_need for _ in range(left[task.task])]
    while not late:
        remaining: list[str] = []
        for i, operator in enumerate(waiting):
            t += 1
            if late := t > t_max:
                remaining += waiting[i:]
                break
            best: tuple[float, Slot] | None = None
            for node in cluster.nodes:
                cluster.placed[node][operator] += 1
                if cluster.holds(node, room.greedy.cpu, room.greedy.bandwidth):
                    value = cluster.objective()
                    if best is None or value < best[0] - HAIR:
                        best = value, node
                cluster.placed[node][operator] -= 1
            if best is None:
                remaining.append(operator)
            else:
                cluster.placed[best[1]][operator] += 1
        late, waiting = late or len(remaining) == len(waiting), remaining
    for operator in waiting:
        nodes = [node for node in cluster.nodes if with_room(cluster, node, operator)]
        if not nodes:
            return None
        lightest = min(map(cluster.level, nodes))
        light = [node for node in nodes if cluster.level(node) == lightest]
        least = min(map(cluster.cpu, light))
        node = next(node for node in light if cluster.cpu(node) <= least + HAIR)
        cluster.placed[node][operator] += 1
    return {(node, task): n for node, held in cluster.placed.items() for task, n in held.items() if n}


def with_room(cluster: Cluster, node: Slot, operator: str) -> bool:
    cluster.placed[node][operator] += 1
    holds = cluster.holds(node, 1.0)
    cluster.placed[node][operator] -= 1
    return holds


@st.composite
def rooms(draw: st.DrawFn, most_need: int = 500) -> tuple[Allocation, Room]:
    """Up to five tasks that speak with each other, up to twelve slots; needs in thousandths of a slot."""
    names = "abcde"[: draw(st.integers(1, 5))]
    need = st.integers(1, most_need).map(lambda thousandths: thousandths / 1000)
    asked = allocation(**{name: (draw(st.integers(1, 5)), draw(need), draw(need)) for name in names})
    row_bytes = draw(st.sampled_from([None, 100.0, 100.0]))
    pairs = [pair for pair in itertools.combinations(names, 2) if draw(st.booleans())]
    said = tuple(
        TaskFlow(a, b, draw(st.integers(1, 99)), row_bytes and row_bytes * draw(st.integers(1, 9)))
        for a, b in pairs
    )
    speeds, mbps = st.sampled_from([1.0, 1.0, 0.5, 2.0]), st.sampled_from([0.1, 1.0, 4.0, UNSET])
    vms = tuple(
        Vm(vm.vm, vm.slots, speed=draw(speeds), bandwidth_mbps=draw(mbps))
        for vm in vms_of(*draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    )
    slots = [slot for vm in vms for slot in vm.all_slots()]
    pinned = {name: tuple(draw(st.lists(st.sampled_from(slots), max_size=2))) for name in names[:1]}
    bounds = GreedyBounds(
        draw(st.sampled_from([1.0, 1.0, 0.7, 0.3])),
        draw(st.sampled_from([float("inf"), 2.0, 0.6])),
        draw(st.sampled_from(["deviation", "deviation", "utilization"])),
    )
    excluded = frozenset(slots[-1:] if len(slots) > 2 and draw(st.booleans()) else [])
    return asked, Room(
        vms, excluded, pinned, flows=said, memory=draw(st.sampled_from([1.0, 0.9])), greedy=bounds
    )


@examples(400)
@given(rooms())
def test_it_is_algorithm_1_as_printed(world):
    asked, room = world
    expected = as_printed(asked, room)
    if expected is None:
        with pytest.raises(Infeasible, match="fit into no slot"):
            greedy_matching(asked, room)
    else:
        assert threads_in(greedy_matching(asked, room)) == expected


@examples(200)
@given(rooms(most_need=20), st.integers(0, 26))
def test_out_of_time_the_rest_goes_evenly_to_light_slots(world, t_max):
    """By a clock that goes on by 1 with each operator; there is room for all of them wherever they go."""
    asked, room = world
    room = replace(room, greedy=GreedyBounds(objective=room.greedy.objective, seconds=float(t_max)))
    with clocked(itertools.count().__next__):
        found = greedy_matching(asked, room)
    assert threads_in(found) == as_printed(asked, room, t_max)


def test_what_exceeds_the_bandwidth_is_looked_at_again_once_others_are_placed():
    """`a` says 14 of the 14 that a slot may; beside `c` only 10 of it, and 4 less are left for `c` itself. Without a
    second look it would go to the slot with less CPU in use, beside `b`."""
    asked = allocation(a=(1, 0.45, 0.1), c=(1, 0.4, 0.1), b=(1, 0.1, 0.1))
    flows = (TaskFlow("a", "b", 10.0), TaskFlow("a", "c", 4.0))
    room = Room(vms_of(1, 1), flows=flows, greedy=GreedyBounds(bandwidth=0.72, objective="utilization"))
    found = threads_in(greedy_matching(asked, room))
    assert found == as_printed(asked, room)
    assert found == {(Slot("vm1", 0), "a"): 1, (Slot("vm1", 0), "c"): 1, (Slot("vm2", 0), "b"): 1}


def test_without_a_clock_there_is_no_end_of_time():
    asked, room = allocation(a=(4, 0.2, 0.1)), Room(vms_of(4), greedy=GreedyBounds(cpu=0.2, seconds=0.0))
    assert list(threads_in(greedy_matching(asked, room)).values()) == [1, 1, 1, 1]


# ── what it comes to ────────────────────────────────────────────────────────────────────────────────────


def deviation(placement: Placement, room: Room, needs: dict[str, float]) -> float:
    load = Counter({slot: 0.0 for slot in room.slots()})
    for bundle in placement.bundles:
        load[bundle.slot] += needs[bundle.task] * bundle.threads
    mean = sum(load.values()) / len(load)
    return sum(abs(use - mean) for use in load.values())


def test_it_deviates_less_than_round_robin():
    """One dear task and two cheap ones: dealt out in turn a slot may have two dear threads and another none."""
    asked = allocation(a=(5, 0.5, 0.1), b=(3, 0.1, 0.1), c=(5, 0.2, 0.1))
    flows = (TaskFlow("a", "b", 10.0), TaskFlow("b", "c", 10.0))
    room = Room(vms_of(4, 4), flows=flows)
    needs = {"a": 0.5, "b": 0.1, "c": 0.2}
    assert deviation(MAPPERS["dsm"].place(asked, room), room, needs) == pytest.approx(2.25)
    assert deviation(greedy_matching(asked, room), room, needs) == pytest.approx(0.65)


def test_utilization_keeps_those_that_speak_apart():
    """What two say to each other is bandwidth in use, as long as they are in two slots."""
    asked = allocation(a=(1, 0.2, 0.1), b=(1, 0.2, 0.1))
    for rows_tps, slots in ((10.0, 2), (0.0, 1)):
        room = Room(
            vms_of(1, 1), flows=(TaskFlow("a", "b", rows_tps),), greedy=GreedyBounds(objective="utilization")
        )
        assert len({bundle.slot for bundle in greedy_matching(asked, room).bundles}) == slots
