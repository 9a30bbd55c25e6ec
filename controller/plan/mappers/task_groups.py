"""Paper 2's two algorithms over a topology's threads: groups are tasks, nodes are slots, traffic is rows. Pure.

A slot is a process and at most a core, so it is what the paper calls a node. Its one kind of cost is here the larger of
the CPU and the memory that a thread needs, so that a slot whose costs fit has room for both. The algorithms themselves
are `placing/task_level.py` (Alg. 1 to 3) and `placing/top_down.py` (Alg. 4 and 5), as `headgate lab place` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from headgate.controller.models.plans import Allocation, Placement
from headgate.controller.plan.mappers.free_slots import Room, SlotRoom
from headgate.controller.plan.placing.placement_problem import Counts, Flow, Group, Node, Problem
from headgate.controller.plan.placing.task_level import task_level
from headgate.controller.plan.placing.top_down import top_down
from headgate.topology_runtime.errors import Infeasible

MOST_PAIRS = 2_000_000  # of threads that speak with each other: above, the quadratic algorithm is refused


def task_level_mapper(allocation: Allocation, room: Room) -> Placement:
    """Task-level allocation. Raises Infeasible, also when there are too many pairs of threads for it."""
    threads = {task.task: task.threads for task in allocation.tasks}
    pairs = sum(threads[flow.source] * threads[flow.target] for flow in room.flows)
    if pairs > MOST_PAIRS:
        raise Infeasible(
            f"task-level looks at every pair of threads, and {pairs:,} are more than {MOST_PAIRS:,}",
            hint="mapper top-down looks at pairs of tasks",
        )
    return _grouped(allocation, room, task_level)


def top_down_mapper(allocation: Allocation, room: Room) -> Placement:
    """Top-down allocation. Raises Infeasible when threads fit into no slot."""
    return _grouped(allocation, room, top_down)


class _PlaceGroups(Protocol):
    def __call__(self, problem: Problem, as_printed: bool) -> Counts: ...


def _grouped(allocation: Allocation, room: Room, place: _PlaceGroups) -> Placement:
    board = SlotRoom(allocation, room)
    left = [task for task, threads in enumerate(board.left) if threads]
    number = {task: place for place, task in enumerate(left)}
    flows = tuple(
        Flow(number[a], number[b], link * board.left[a] * board.left[b])
        for a in left
        for b, link in board.links[a].items()
        if a < b and b in number
    )
    counts: Counts = ()
    for costs, frees in _costs(board):
        groups = tuple(
            Group(board.tasks[task].task, board.left[task], costs[task] * board.left[task]) for task in left
        )
        nodes = tuple(Node(str(slot), max(0.0, free)) for slot, free in zip(board.slots, frees, strict=True))
        counts = place(Problem(groups, flows, nodes), room.as_printed)
        if all(sum(at.values()) == board.left[task] for task, at in zip(left, counts, strict=True)):
            break
    for task, at in zip(left, counts, strict=True):
        for slot, threads in at.items():
            board.put(task, slot, min(threads, board.fits(task, slot)))
    return board.placement()


def _costs(board: SlotRoom) -> Iterator[tuple[list[float], list[float]]]:
    """(cost of a thread of each task, what is free of each slot). Of faster slots the larger need would leave CPU
    unused: there memory counts as much more as the fastest slot has more CPU, or is looked at when threads are put."""
    least = [min(cpu, memory) for cpu, memory in zip(board.cpu, board.memory, strict=True)]
    yield [max(need) for need in board.needs], least
    fastest = max(board.cpus)
    if fastest > 1:
        yield [max(cpu, memory * fastest) for cpu, memory in board.needs], board.cpu
        yield [max(cpu, 1e-9) for cpu, _ in board.needs], board.cpu
