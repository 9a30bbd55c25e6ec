"""Of plans for as few slots the cheapest, then that with least between VMs, then with the fewest moves (ours). Pure.

Looked at are the mixes that were found and those that keep most of the plan in force, each put where its threads are
now, and where those that speak with each other share a VM. What is said between VMs is compared in hundredths of all
rows: for less than that no thread moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.plans import Allocation, Bundle, Placement, Plan, ThreadAt, usd_per_hour
from headgate.controller.plan.crossings import crossings_of
from headgate.controller.plan.fewest_slots import Threads, counted_in, optimal_mapper
from headgate.controller.plan.kept_mixes import kept_mixes
from headgate.controller.plan.relabel import relabel
from headgate.controller.plan.room import Room
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.topology import Topology

MOST_SLOTS = 400  # above, mixes go where the mapper puts them
PINNED = 1_000_000  # threads that stay, as many a thread counts for that is to be in this slot

Rank = tuple[int, float, int, int]


def alternatives(
    topology: Topology, models: Mapping[str, Model], allocation: Allocation, room: Room, in_force: Placement
) -> Iterator[tuple[Allocation, Placement]]:
    """Others than the mapper's own placement of the allocation, for its rate and in no more slots."""
    if not allocation.mixes or allocation.rate_tps <= 0:
        return
    usable = room.slots()
    here: dict[Slot, Threads] = {}
    for bundle in in_force.bundles:
        if bundle.slot in usable:
            here.setdefault(bundle.slot, {})[bundle.task] = bundle.threads
    if not here:
        return
    if len(allocation.mixes) <= MOST_SLOTS:
        yield allocation, _where_they_are(allocation, room, here)
    kept = kept_mixes(topology, models, allocation, list(here.values()))
    if kept is None:
        return
    tasks = tuple(counted_in(task, kept, topology, models) for task in allocation.tasks)
    other = replace(allocation, tasks=tasks, mixes=tuple(kept), slots=len(kept))
    yield other, optimal_mapper(other, room)
    if len(kept) <= MOST_SLOTS:
        yield other, _where_they_are(other, room, here)


def rank(plan: Plan, topology: Topology, in_force: Placement, room: Room) -> Rank:
    """Of two plans that carry the rate, the one with the lower rank is better."""
    crossings = crossings_of(plan, topology)
    part = crossings.between_vms_tps / crossings.rows_tps if crossings.rows_tps > 0 else 0.0
    return (
        plan.slots.used,
        usd_per_hour(plan.vms),
        round(100 * part),
        moves(relabel(plan, threads_of(in_force), room.excluded, room.pinned).placement, in_force),
    )


def moves(placement: Placement, in_force: Placement) -> int:
    """Threads that start and threads that end, from the one to the other: one that goes elsewhere does both."""
    after, before = _counts(placement), _counts(in_force)
    kept = sum((after & before).values())
    return after.total() + before.total() - 2 * kept


def threads_of(placement: Placement) -> tuple[ThreadAt, ...]:
    """The threads of a placement, numbered as they come; of partitions none is looked at."""
    places = [bundle for bundle in placement.bundles for _ in range(bundle.threads)]
    return tuple(ThreadAt(n, bundle.task, bundle.slot) for n, bundle in enumerate(places))


def _counts(placement: Placement) -> Counter[tuple[Slot, str]]:
    return Counter({(bundle.slot, bundle.task): bundle.threads for bundle in placement.bundles})


def _where_they_are(allocation: Allocation, room: Room, here: Mapping[Slot, Threads]) -> Placement:
    """Every mix into a slot of its own, so that most threads stay; of equals into the first slots."""
    from scipy.optimize import linear_sum_assignment  # 0.7 s to import, and a first plan needs none

    usable = room.slots()
    slots = list(
        dict.fromkeys((*usable[: len(allocation.mixes)], *(slot for slot in usable if slot in here)))
    )
    gains = [
        [(_kept(mix, here.get(slot, {})) + _pinned(mix, slot, room)) * len(slots) - place
         for place, slot in enumerate(slots)]
        for mix in allocation.mixes
    ]  # fmt: skip
    rows, columns = linear_sum_assignment(gains, maximize=True)
    order = {vm.vm: place for place, vm in enumerate(room.vms)}
    tasks = {task.task: place for place, task in enumerate(allocation.tasks)}
    bundles = [
        Bundle(slots[column], task, threads)
        for row, column in zip(rows, columns, strict=True)
        for task, threads in allocation.mixes[row].items()
    ]
    bundles.sort(key=lambda one: (order[one.slot.vm], one.slot.number, tasks[one.task]))
    return Placement(tuple(bundles))


def _kept(mix: Threads, other: Threads) -> int:
    return sum(min(threads, other.get(task, 0)) for task, threads in mix.items())


def _pinned(mix: Threads, slot: Slot, room: Room) -> int:
    return PINNED * sum(slot in slots for task, slots in room.pinned.items() if task in mix)
