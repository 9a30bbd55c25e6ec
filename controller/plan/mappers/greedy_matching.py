"""Greedy matching (paper 3, Alg. 1): one operator after another to the slot by which the objective is best. Pure.

    R_dev = Σ |R − mean of R|    of CPU, and of words; the least is best
    R_utl = Σ u / all there is   of CPU, and of words; the most is best

Readings: an operator is a thread, and those that need most of a slot come first: the paper numbers them in no order,
and by falling needs they take no more slots than before. It goes to its best slot, not to each that improves, of equals
the first; R_dev takes absolute deviations; memory has to fit, though the paper takes it for plenty. What is said within
a slot uses no bandwidth. A slot's bandwidth is what it says to other VMs and hears from them, against its VM's link
both ways, where links of VMs and sizes of rows are known; where none is, what it says to other slots, against an equal
part of what all say (`slot_kinds.py`). Threads that are nowhere yet count as elsewhere.

What exceeds D_CPU or D_BW everywhere, and what is left at t_max, goes evenly to light slots (below 40 % of both), then
to moderate and heavy ones (from 80 %), as long as they hold it. t_max is by the clock of who waits (decision 65).
Whether links hold the finished plan is looked at afterwards (`vm_links.py`).
"""

from __future__ import annotations

from headgate.controller.models.plans import Allocation, Placement
from headgate.controller.plan.mappers.free_slots import Room, SlotRoom, refuse_beyond
from headgate.topology_runtime.platform.planning_time import now_s

MOST_LOOKS = 1_000_000_000  # threads times slots


def greedy_matching(allocation: Allocation, room: Room) -> Placement:
    """Raises Infeasible when threads fit into no slot. Pinned threads stay.

    Of n slots about n log n, where few hold different threads."""
    from headgate.controller.plan.mappers.slot_kinds import SlotKinds  # numpy takes 0.1 s to import

    refuse_beyond("greedy-matching", allocation, room, MOST_LOOKS)
    board = SlotRoom(allocation, room)
    slots, ends_s = SlotKinds(board), now_s() + room.greedy.seconds
    order = sorted(range(len(board.tasks)), key=lambda task: -max(board.needs[task]))
    late, before = False, -1
    while not late and 0 < sum(board.left) != before:
        before = sum(board.left)
        for task in (task for task in order if board.left[task]):
            slots.begin(task)
            while board.left[task] and not (late := now_s() > ends_s):
                slot = slots.best(room.greedy)
                if slot is None:
                    break
                slots.put(slot)
    for task in (task for task in order if board.left[task]):
        slots.begin(task)
        while board.left[task] and (slot := slots.lightest()) is not None:
            slots.put(slot)
    return board.placement()
