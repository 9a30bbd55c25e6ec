"""Traffic-based scheduling (paper 1, section 3.2, online), two greedy phases: threads to slots, slots to VMs. Pure.

1. Pairs of communicating executors by falling traffic. Two that are nowhere go to the least loaded slot; one that is
   goes there or to a slot that holds executors it speaks with, whichever leaves the least traffic between slots.
2. Pairs of slots by falling traffic, likewise onto VMs: the one with the least in use, or one that holds either.

Readings: load is CPU (a share of a slot's core), and memory has to fit as well; executors of a component are alike, so
what is placed is not moved by a later pair of the same components.
"""

from __future__ import annotations

from headgate.controller.models.plans import Allocation, Placement
from headgate.controller.plan.mappers.free_slots import Room, SlotRoom, refuse_beyond

MOST_LOOKS = 4_000_000  # threads times slots
MOST_SLOTS = 400  # of which each pair is looked at


def traffic_based(allocation: Allocation, room: Room) -> Placement:
    """Raises Infeasible when threads fit into no slot. Pinned threads stay, and so does what is with them."""
    refuse_beyond("traffic", allocation, room, MOST_LOOKS)
    board = SlotRoom(allocation, room)
    links = {(a, b): link for a, of in enumerate(board.links) for b, link in of.items() if a < b}
    for a, b in sorted(links, key=lambda pair: -links[pair]):  # stable: ties in breadth-first order
        while board.left[a] or board.left[b]:
            if not _step(board, a, b):
                break
    for task in range(len(board.tasks)):  # what speaks with nobody, or had no room beside
        while board.left[task] and _put_best(board, task):
            pass
    board.refuse_left()
    onto_vms(board)
    return board.placement()


def _step(board: SlotRoom, a: int, b: int) -> bool:
    """Place one or two executors of a pair of components; is there more to do for this pair?"""
    if board.left[a] and board.left[b]:
        slot = board.emptiest()[0]
        if _hold_both(board, a, b, slot):
            board.put(a, slot)
            board.put(b, slot)
            return True
    return any([_put_best(board, task) for task in (a, b) if board.left[task]])


def _hold_both(board: SlotRoom, a: int, b: int, slot: int) -> bool:
    cpu, memory = (one + other for one, other in zip(board.needs[a], board.needs[b], strict=True))
    return cpu <= board.cpu[slot] + 1e-9 and memory <= board.memory[slot] + 1e-9


def _put_best(board: SlotRoom, task: int) -> bool:
    """One executor to the slot with which it speaks most of those that hold it, the least loaded of equals."""
    free = [slot for slot in board.emptiest() if board.fits(task, slot)]
    if not free:
        return False
    board.put(task, max(free, key=lambda slot: board.pull(task, slot)))
    return True


def onto_vms(board: SlotRoom) -> None:
    """Phase 2: exchange contents of slots, so that slots that say much to each other are on one VM. Nothing is
    exchanged where no VM has two slots, slots are too many to look at each pair, or VMs are of several speeds."""
    vms: dict[str, list[int]] = {vm.vm: [] for vm in board.room.vms}
    for place, slot in enumerate(board.slots):
        vms[slot.vm].append(place)
    if len(board.slots) > MOST_SLOTS or max(map(len, vms.values())) < 2 or len(set(board.cpus)) > 1:
        return
    between = _between(board)
    told: list[dict[int, float]] = [{} for _ in board.slots]
    for (one, other), said in between.items():
        told[one][other] = told[other][one] = said
    to_vm: list[dict[str, float]] = [{} for _ in board.slots]  # what a content says to each VM
    free = {vm: [place for place in places if not board.pinned[place]] for vm, places in vms.items()}
    load = dict.fromkeys(vms, 0.0)
    homes: dict[int, int] = {}

    def settle(content: int, home: int) -> None:
        vm = board.slots[home].vm
        homes[content] = home
        load[vm] += board.used(content)
        for other, said in told[content].items():
            to_vm[other][vm] = to_vm[other].get(vm, 0.0) + said

    def emptiest() -> str:
        return min((vm for vm in vms if free[vm]), key=load.__getitem__)

    for place, pinned in enumerate(board.pinned):
        if pinned:
            settle(place, place)
    for pair in sorted(between, key=lambda pair: -between[pair]):
        for content in pair:
            if content not in homes:
                beside = (board.slots[homes[one]].vm for one in pair if one in homes)
                choices = (emptiest(), *(vm for vm in beside if free[vm]))
                settle(content, free[max(choices, key=lambda vm: to_vm[content].get(vm, 0.0))].pop(0))
    for content in range(len(board.slots)):
        if content not in homes:
            settle(content, free[emptiest()].pop(0))
    held = board.held[:]
    for content, home in homes.items():
        board.held[home] = held[content]


def _between(board: SlotRoom) -> dict[tuple[int, int], float]:
    """What the contents of two slots say to each other, where they do."""
    found: dict[tuple[int, int], float] = {}
    where: list[list[int]] = [[] for _ in board.tasks]
    for slot, held in enumerate(board.held):
        for task in held:
            where[task].append(slot)
    for a, links in enumerate(board.links):
        for b, link in links.items():
            if a > b:
                continue
            for one in where[a]:
                for other in where[b]:
                    if one != other:
                        said = link * board.held[one][a] * board.held[other][b]
                        pair = min(one, other), max(one, other)
                        found[pair] = found.get(pair, 0.0) + said
    return found
