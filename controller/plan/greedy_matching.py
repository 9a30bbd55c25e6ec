"""Greedy matching (paper 3, Alg. 1): the best slot by CPU and bandwidth for one operator after another. Pure.

Slots are light, moderate or heavy (below 40 %, below 80 %, above) by the larger of their CPU and bandwidth in use. In
each round every task has a bunch of its threads placed: a matching of most weight, found by networkx, of bunches and
slots that hold them, where lighter is better, then less deviation of both resources from their means. Rounds are the
time budget, as what decides here reads no clock: what is left then goes evenly to the light slots.

Readings: R_dev takes absolute deviations; a bunch goes to its best slot, not to each that improves; a slot's bandwidth
is what it says to other slots, against what all tasks say; memory has to fit, though the paper takes it for plenty.
"""

from __future__ import annotations

from typing import Any

from controller.knowledge.plans import Allocation, Placement
from controller.plan.room import Room
from controller.plan.slot_room import SlotRoom, refuse_beyond

MODERATE, HEAVY = 0.4, 0.8
BUNCHES = 16  # a task's threads are placed in at most so many, if a slot holds such a bunch
MOST_ROUNDS = 64
MOST_LOOKS = 40_000_000  # threads times slots
NEAR = 2  # of so many slots for each bunch, the lightest, the best is found


def greedy_matching(allocation: Allocation, room: Room, rounds: int = MOST_ROUNDS) -> Placement:
    """Raises Infeasible when threads fit into no slot. Pinned threads stay."""
    refuse_beyond("greedy-matching", allocation, room, MOST_LOOKS)
    board = SlotRoom(allocation, room)
    said = [sum(link * board.tasks[other].threads for other, link in of.items()) for of in board.links]
    total = sum(one * task.threads for one, task in zip(said, board.tasks, strict=True)) or 1.0
    while rounds and any(board.left):
        matched = _matched(board, [part / total * len(board.slots) for part in said])
        if not matched:
            break
        for task, slot, threads in matched:
            board.put(task, slot, threads)
        rounds -= 1
    _evenly(board)
    return board.placement()


def level(use: float) -> int:
    """0: light, 1: moderate, 2: heavy."""
    return (use >= MODERATE) + (use >= HEAVY)


def _matched(board: SlotRoom, said: list[float]) -> list[tuple[int, int, int]]:
    """(task, slot, threads) of one round. `said`: what a thread of each task says, where 1 is a slot's equal part."""
    import networkx

    graph: Any = networkx.Graph()
    waiting = [task for task, left in enumerate(board.left) if left]
    order = board.emptiest()
    cpu = [1 - free for free in board.cpu]
    bandwidth = [_bandwidth(board, said, slot) for slot in range(len(board.slots))]
    means = sum(cpu) / len(cpu), sum(bandwidth) / len(bandwidth)
    for task in waiting:
        bunch = -(-board.tasks[task].threads // BUNCHES)
        near = [slot for slot in order if board.fits(task, slot)][: NEAR * len(waiting)]
        for slot in near:
            threads = min(bunch, board.fits(task, slot))
            uses = (
                cpu[slot] + threads * board.needs[task][0],
                bandwidth[slot] + threads * (said[task] - 2 * _own(board, said, task, slot)),
            )
            off = sum(abs(use - mean) for use, mean in zip(uses, means, strict=True))
            graph.add_edge(
                ("task", task), ("slot", slot), weight=1 / (1 + 10 * level(max(uses)) + off), n=threads
            )
    found = []
    for one, other in networkx.max_weight_matching(graph, maxcardinality=True):
        (_, task), (_, slot) = (one, other) if one[0] == "task" else (other, one)
        found.append((task, slot, graph.edges[one, other]["n"]))
    return sorted(found)


def _bandwidth(board: SlotRoom, said: list[float], slot: int) -> float:
    """What a slot says to other slots."""
    return sum(
        threads * (said[task] - _own(board, said, task, slot)) for task, threads in board.held[slot].items()
    )


def _own(board: SlotRoom, said: list[float], task: int, slot: int) -> float:
    """What of a thread's words stays within the slot."""
    spoken = sum(link * board.tasks[other].threads for other, link in board.links[task].items())
    return said[task] * board.pull(task, slot) / spoken if spoken else 0.0


def _evenly(board: SlotRoom) -> None:
    """What is left goes to the lightest slots, one thread at a time."""
    for task in range(len(board.tasks)):
        while board.left[task]:
            slot = next((slot for slot in board.emptiest() if board.fits(task, slot)), None)
            if slot is None:
                break
            board.put(task, slot)
