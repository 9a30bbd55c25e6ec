"""Moving little: which real slot plays which slot of a new plan, so that most threads stay. Pure.

VMs of one kind are interchangeable, and so are the slots of a VM. Per group of
VMs of one kind an assignment problem says which VM plays which, and within each VM one for its slots; the
gain of a pair is the number of threads that stay. Slots with a thread of a task of fixed size that runs
there already keep their label.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec.structs import replace

from headgate.controller.models.plan_data import with_id
from headgate.controller.models.plans import (
    Allocation,
    Bundle,
    Placement,
    Plan,
    ThreadAt,
    usd_per_hour,
)
from headgate.controller.models.task_models import Model
from headgate.controller.plan.mappers.free_slots import Room
from headgate.controller.plan.optimal.fewest_moves import kept_mixes
from headgate.controller.plan.optimal.fewest_slots import Threads, counted_in, optimal_mapper
from headgate.controller.plan.predict.prediction import vm_uses
from headgate.controller.plan.predict.vm_links import crossings_of
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology

EXACT_PAIRS = 1024  # pairs of VMs up to which slots are assigned for each; above, sums over VMs stand in
FORBIDDEN = -(10**12)  # the gain of a pair that may not be

Part = TypeVar("Part", str, Slot)
Names = dict[Slot, Slot]  # slot of the plan → slot it is to be


@dataclass(frozen=True)
class _Sight:
    """`desired`, `present`: slot → task → threads of the plan and of now. `allowed`: VM → slots that may
    be used; `fixed`: slots of the plan that keep their label; `used`: VM → the plan's slots in it."""

    desired: dict[Slot, Counter[str]]
    present: dict[Slot, Counter[str]]
    allowed: dict[str, list[Slot]]
    fixed: frozenset[Slot]
    used: dict[str, list[Slot]]


def relabel(
    plan: Plan,
    threads: tuple[ThreadAt, ...],
    excluded: frozenset[Slot] | None = None,
    pinned: Mapping[str, tuple[Slot, ...]] = {},
) -> Plan:
    """The plan with its slots renamed so that most of `threads` stay, never fewer than before.

    `excluded`: slots that must hold nothing; None: not known, so only slots that the plan uses are used.
    `pinned`: of a task of fixed size → slots that keep their label, for it is there or is to go there."""
    sight = _sight(plan, threads, excluded, pinned)
    if _kept(sight, {}) >= _most_kept(plan, sight):
        return plan
    names: Names = {}
    kinds: defaultdict[Vm, list[str]] = defaultdict(list)
    for vm in plan.vms:
        kinds[replace(vm, vm="")].append(vm.vm)
    for vms in kinds.values():
        names |= _names_within(vms, sight)
    return plan if _kept(sight, names) <= _kept(sight, {}) else renamed(plan, names.__getitem__, plan.vms)


def _sight(
    plan: Plan,
    threads: Sequence[ThreadAt],
    excluded: frozenset[Slot] | None,
    pinned: Mapping[str, tuple[Slot, ...]],
) -> _Sight:
    desired: dict[Slot, Counter[str]] = defaultdict(Counter)
    present: dict[Slot, Counter[str]] = defaultdict(Counter)
    used: dict[str, list[Slot]] = {vm.vm: [] for vm in plan.vms}
    for bundle in plan.placement.bundles:
        if bundle.slot not in desired:
            used[bundle.slot.vm].append(bundle.slot)
        desired[bundle.slot][bundle.task] += bundle.threads
    planned = _total(desired.values())
    for thread in threads:
        if thread.partition < planned[thread.task]:  # else there is no such partition any more
            present[thread.slot][thread.task] += 1
    static = {task.task for task in plan.allocation.tasks if task.static}
    fixed = {slot for slot in desired if static & desired[slot].keys() & present.get(slot, {}).keys()}
    fixed |= {slot for task, slots in pinned.items() for slot in slots if desired.get(slot, Counter())[task]}
    allowed = used
    if excluded is not None:
        allowed = {vm.vm: [slot for slot in vm.all_slots() if slot not in excluded] for vm in plan.vms}
    return _Sight(dict(desired), dict(present), allowed, frozenset(fixed), used)


def _kept(sight: _Sight, names: Names) -> int:
    return sum(_overlap(sight, slot, names.get(slot, slot)) for slot in sight.desired)


def _most_kept(plan: Plan, sight: _Sight) -> int:
    """More threads than these cannot stay, whatever the labels."""
    vms = {vm.vm for vm in plan.vms}
    present = _total(tasks for slot, tasks in sight.present.items() if slot.vm in vms)
    return sum((_total(sight.desired.values()) & present).values())


def _total(counts: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for tasks in counts:
        total.update(tasks)
    return total


def _overlap(sight: _Sight, slot: Slot, real: Slot) -> int:
    """Threads that stay when `real` plays `slot`."""
    present = sight.present.get(real)
    if not present:
        return 0
    return sum(min(count, present[task]) for task, count in sight.desired[slot].items() if task in present)


def _names_within(vms: Sequence[str], sight: _Sight) -> Names:
    """The labels of the slots of these VMs of one kind."""
    gains = _gains(vms, sight) if len(vms) ** 2 <= EXACT_PAIRS else _estimates(vms, sight)
    names: Names = {}
    for vm, real in _assigned(vms, vms, gains).items():
        names |= _slots_within(vm, real, sight)
    return names


def _gains(vms: Sequence[str], sight: _Sight) -> list[list[int]]:
    """Threads that stay when VM j plays VM i, its slots labelled as well as possible."""
    desired = [_total(sight.desired[slot] for slot in sight.used[vm]) for vm in vms]
    present = [_total(sight.present.get(s, Counter()) for s in sight.allowed[vm]) for vm in vms]
    held = [any(slot in sight.fixed for slot in sight.used[vm]) for vm in vms]

    def gain(i: int, j: int) -> int:
        vm, real = vms[i], vms[j]
        if i != j and (held[i] or len(sight.used[vm]) > len(sight.allowed[real])):
            return FORBIDDEN
        kept = 0
        if desired[i].keys() & present[j].keys():
            kept = sum(_overlap(sight, slot, name) for slot, name in _slots_within(vm, real, sight).items())
        return kept * (len(vms) + 1) + (i == j)  # the name that is there already when that costs nothing

    return [[gain(i, j) for j in range(len(vms))] for i in range(len(vms))]


def _estimates(vms: Sequence[str], sight: _Sight) -> Any:
    """As `_gains`, with what VM i wants and VM j has of each task in place of their slots."""
    import numpy as np

    rows: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    columns: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for i, vm in enumerate(vms):
        for task, count in _total(sight.desired[slot] for slot in sight.used[vm]).items():
            rows[task].append((i, count))
        for task, count in _total(sight.present.get(s, Counter()) for s in sight.allowed[vm]).items():
            columns[task].append((i, count))
    gains = np.zeros((len(vms), len(vms)))
    for task in rows.keys() & columns.keys():
        at_row, desired = np.array(rows[task]).T
        at_column, present = np.array(columns[task]).T
        gains[np.ix_(at_row, at_column)] += np.minimum.outer(desired, present)
    gains = gains * (len(vms) + 1) + np.eye(len(vms))
    used = np.array([len(sight.used[vm]) for vm in vms])
    allowed = np.array([len(sight.allowed[vm]) for vm in vms])
    held = np.array([any(slot in sight.fixed for slot in sight.used[vm]) for vm in vms])
    gains[((used[:, None] > allowed) | held[:, None]) & ~np.eye(len(vms), dtype=bool)] = FORBIDDEN
    return gains


def _slots_within(vm: str, real: str, sight: _Sight) -> Names:
    """The labels of one VM's slots when `real` plays `vm`."""
    used, allowed = sight.used[vm], sight.allowed[real]

    def gain(slot: Slot, name: Slot) -> int:
        if slot != name and (slot in sight.fixed or (name in sight.fixed and real == vm)):
            return FORBIDDEN
        return _overlap(sight, slot, name) * (len(used) + 1) + (slot.number == name.number)

    return _assigned(used, allowed, [[gain(slot, name) for name in allowed] for slot in used])


def _assigned(parts: Sequence[Part], names: Sequence[Part], gains: Any) -> dict[Part, Part]:
    """Each part gets a name of its own; the sum of `gains` (parts × names) is the highest possible."""
    if not parts:
        return {}
    if len(parts) == 1:
        return {parts[0]: names[max(range(len(names)), key=lambda name: gains[0][name])]}
    from scipy.optimize import linear_sum_assignment  # 0.7 s to import, and a first plan needs none

    rows, columns = linear_sum_assignment(gains, maximize=True)
    return {parts[row]: names[column] for row, column in zip(rows, columns, strict=True)}


def renamed(plan: Plan, name: Callable[[Slot], Slot], vms: tuple[Vm, ...]) -> Plan:
    """The plan with other slots, on these VMs; all in order of VMs and slots, tasks of a slot in theirs."""
    place = {vm.vm: number for number, vm in enumerate(vms)}

    def order(slot: Slot) -> tuple[int, int]:
        return place[slot.vm], slot.number

    was = plan.prediction
    bundles = [replace(bundle, slot=name(bundle.slot)) for bundle in plan.placement.bundles]
    shares = [replace(share, slot=name(share.slot)) for share in was.shares]
    moved = ((use, name(Slot(use.vm, use.slot))) for use in was.slots)
    uses = [replace(use, vm=slot.vm, slot=slot.number) for use, slot in moved]
    uses.sort(key=lambda use: order(Slot(use.vm, use.slot)))
    limited = next(
        (bundle.slot for bundle in plan.placement.bundles if str(bundle.slot) == was.limited_by_slot), None
    )
    prediction = replace(
        was,
        limited_by_slot=str(name(limited)) if limited is not None else None,
        slots=tuple(uses),
        vms=vm_uses(uses, vms),
        shares=tuple(sorted(shares, key=lambda share: order(share.slot))),
    )
    placement = Placement(tuple(sorted(bundles, key=lambda bundle: order(bundle.slot))))
    return with_id(replace(plan, vms=vms, placement=placement, prediction=prediction))


# ── Of plans for as few slots the cheapest, then that with least between VMs, then with the fewest moves
# (ours). Pure
#
# Looked at are the mixes that were found and those that keep most of the plan in force, each put where its
# threads are now, and where those that speak with each other share a VM. What is said between VMs is compared
# in hundredths of all rows: for less than that no thread moves.

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
    here = {slot: threads for slot, threads in in_force.by_slot().items() if slot in usable}
    if not here:
        return
    if len(allocation.mixes) <= MOST_SLOTS:
        yield allocation, _where_they_are(allocation, room, here)
    kept = kept_mixes(topology, models, allocation, list(here.values()), room.memory)
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


def started(placement: Placement, in_force: Placement) -> int:
    """Threads that start."""
    return (_counts(placement) - _counts(in_force)).total()


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
        [(_threads_kept(mix, here.get(slot, {})) + _pinned(mix, slot, room)) * len(slots) - place
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


def _threads_kept(mix: Threads, other: Threads) -> int:
    return sum(min(threads, other.get(task, 0)) for task, threads in mix.items())


def _pinned(mix: Threads, slot: Slot, room: Room) -> int:
    return PINNED * sum(slot in slots for task, slots in room.pinned.items() if task in mix)
