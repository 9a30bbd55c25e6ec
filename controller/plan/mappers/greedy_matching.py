"""Greedy matching (paper 3, Alg. 1): the best slot by CPU and bandwidth for one operator after another. Pure.

Slots are light, moderate or heavy (below 40 %, below 80 %, above) by the larger of their CPU and bandwidth in use. In
each round every task has a bunch of its threads placed: a matching of most weight, found by networkx, of bunches and
slots that hold them, where lighter is better, then less deviation of both resources from their means. Rounds are the
time budget, as what decides here reads no clock: what is left then goes evenly to the light slots.

Readings: R_dev takes absolute deviations; a bunch goes to its best slot, not to each that improves; memory has to
fit, though the paper takes it for plenty. A slot's bandwidth is what it says to other VMs and hears from them, against
twice its equal part of its VM's link (both ways), where links of VMs and sizes of rows are known; a link that nobody
knows counts as the widest. Where none is known it is what it says to other slots, against what all tasks say. Whether
links hold the finished plan is looked at afterwards (`vm_links.py`): a bunch's peers may have no place yet.
"""

from __future__ import annotations

from typing import Any

from headgate.controller.models.plans import Allocation, Placement
from headgate.controller.plan.mappers.free_slots import Room, SlotRoom, refuse_beyond

MODERATE, HEAVY = 0.4, 0.8
BUNCHES = 16  # a task's threads are placed in at most so many, if a slot holds such a bunch
MOST_ROUNDS = 64
MOST_LOOKS = 40_000_000  # threads times slots
NEAR = 2  # of so many slots for each bunch, the lightest, the best is found


def greedy_matching(allocation: Allocation, room: Room, rounds: int = MOST_ROUNDS) -> Placement:
    """Raises Infeasible when threads fit into no slot. Pinned threads stay."""
    refuse_beyond("greedy-matching", allocation, room, MOST_LOOKS)
    board = SlotRoom(allocation, room)
    words = Words(board)
    while rounds and any(board.left):
        matched = _matched(board, words)
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


class Words:
    """What slots say, as parts of what they may. `said`: of each task, what one thread of it says, both ways; `parts`:
    of each slot, what is 1; `within`: the slots whose threads are spoken to for nothing."""

    def __init__(self, board: SlotRoom) -> None:
        self.board = board
        self.said = [
            sum(link * board.tasks[other].threads for other, link in of.items()) for of in board.links
        ]
        total = sum(one * task.threads for one, task in zip(self.said, board.tasks, strict=True)) or 1.0
        self.parts = [total / len(board.slots)] * len(board.slots)
        self.within: list[tuple[int, ...]] = [(slot,) for slot in range(len(board.slots))]
        links = {vm.vm: vm.bandwidth_bytes_per_s for vm in board.room.vms}
        widest = max((link for link in links.values() if link is not None), default=None)
        if widest is not None and any(flow.row_bytes for flow in board.room.flows):
            sizes = {vm.vm: vm.slots for vm in board.room.vms}
            self.parts = [2 * (links[slot.vm] or widest) / sizes[slot.vm] for slot in board.slots]
            by_vm: dict[str, list[int]] = {}
            for number, slot in enumerate(board.slots):
                by_vm.setdefault(slot.vm, []).append(number)
            self.within = [tuple(by_vm[slot.vm]) for slot in board.slots]

    def used(self, slot: int) -> float:
        """Of a slot's part, by what it holds."""
        held = self.board.held[slot].items()
        return (
            sum(threads * (self.said[task] - self._own(task, slot)) for task, threads in held)
            / self.parts[slot]
        )

    def more(self, task: int, slot: int, threads: int) -> float:
        """… by so many threads of a task besides: what they say to those there is no words to others any more, nor is
        what those say to them."""
        return threads * (self.said[task] - 2 * self._own(task, slot)) / self.parts[slot]

    def _own(self, task: int, slot: int) -> float:
        return sum(self.board.pull(task, near) for near in self.within[slot])


def _matched(board: SlotRoom, words: Words) -> list[tuple[int, int, int]]:
    """(task, slot, threads) of one round."""
    import networkx

    graph: Any = networkx.Graph()
    waiting = [task for task, left in enumerate(board.left) if left]
    order = board.emptiest()
    cpu = [board.used(slot) for slot in range(len(board.slots))]
    bandwidth = [words.used(slot) for slot in range(len(board.slots))]
    means = sum(cpu) / len(cpu), sum(bandwidth) / len(bandwidth)
    for task in waiting:
        bunch = -(-board.tasks[task].threads // BUNCHES)
        near = [slot for slot in order if board.fits(task, slot)][: NEAR * len(waiting)]
        for slot in near:
            threads = min(bunch, board.fits(task, slot))
            uses = (
                cpu[slot] + threads * board.needs[task][0] / board.cpus[slot],
                bandwidth[slot] + words.more(task, slot, threads),
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


def _evenly(board: SlotRoom) -> None:
    """What is left goes to the lightest slots, one thread at a time."""
    for task in range(len(board.tasks)):
        while board.left[task]:
            slot = next((slot for slot in board.emptiest() if board.fits(task, slot)), None)
            if slot is None:
                break
            board.put(task, slot)
