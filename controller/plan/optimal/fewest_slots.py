"""Ours: thread counts and what shares a slot chosen together, so that the fewest slots carry the rate. Pure.

The allocator finds a mix for every slot (`slot_mixes.py`), and falls back on MBA's bundles as SAM packs them where
these take no more slots, where the mixes are not predicted to carry the rate (rows that come few at a time cost more
than a model's points say). Of more than 40 tasks only neighbours share slots. The mapper puts the mixes into slots,
those that say much to each other on one VM. `gap`: by what part of its slots the plan may be above the fewest there
are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from headgate.controller.models.plans import Allocation, Bundle, Placement, TaskAllocation
from headgate.controller.models.task_models import Model, Point, cpu, half_widths, memory, peak, peak_rate
from headgate.controller.plan.allocators.allocation_rules import lone_tasks, slots_for
from headgate.controller.plan.allocators.mba import mba
from headgate.controller.plan.allocators.mixed_speeds import counted_for, for_own_slots
from headgate.controller.plan.mappers.free_slots import Room, SlotRoom
from headgate.controller.plan.mappers.sam import sam
from headgate.controller.plan.mappers.traffic_based import onto_vms
from headgate.controller.plan.optimal.slot_mixes import (
    Choice,
    Fixed,
    Flexible,
    Mix,
    Mixed,
    SlotKind,
    few,
    fewest,
)
from headgate.controller.plan.predict.linear_program import TOLERANCE
from headgate.controller.plan.predict.placement_load import load_of
from headgate.controller.plan.predict.row_shares import weighted
from headgate.controller.plan.predict.vm_speeds import topology_at
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.platform.planning_time import ends_s, waited_s
from headgate.topology_runtime.wording import counted, significant

MOST_TASKS = 40  # any of which may share a slot; of more, one and those that come next
SOME_TASKS, SOME_TOGETHER, FEW_TOGETHER = (
    200,
    12,
    4,
)  # up to so many tasks; so many together, and where there are more
MOST_SLOTS = 2_000  # that MBA may need
SEARCH_S, LONG_SEARCH_S = 1.2, 3.0  # where somebody waits, for up to so many tasks, and more
TRIES = 4  # with more and more margin, until the prediction carries the rate

Threads = dict[str, int]  # task → threads, of one slot


def optimal_allocator(topology: Topology, models: Mapping[str, Model], rate_tps: float) -> Allocation:
    """Mixes at input rate `rate_tps`. Raises Infeasible as MBA, and for what needs thousands of slots."""
    usual = mba(topology, models, rate_tps)
    if usual.slots > MOST_SLOTS:
        most, needed = counted(MOST_SLOTS, "slot"), significant(usual.slots, 6)
        what = f"mixes are looked for where MBA needs at most {most}, not {needed}"
        raise Infeasible(what, hint="allocator mba plans for more")
    packed = _packed(usual)
    least = _least(topology, models, usual)
    slots, late = packed, False
    if rate_tps > 0:
        import highspy  # noqa: F401  – that takes 0.2 s, which is no search yet

        until_s = ends_s(SEARCH_S if len(usual.tasks) <= MOST_TASKS else LONG_SEARCH_S)
        found = _carrying(
            lambda margin: _mixed(topology, models, usual, margin, until_s),
            lambda mixes: carried_by(topology, models, mixes) / rate_tps,
            len(packed),
        )
        slots, least, late = found.slots or packed, max(least, found.least), found.late
    fewest_slots = max(1, math.ceil(least - TOLERANCE))
    gap = max(0.0, 1 - fewest_slots / len(slots)) if slots else 0.0
    tasks = tuple(counted_in(task, slots, topology, models) for task in usual.tasks)
    ended = _ended(late, len(usual.tasks)) if gap > 0 else ""
    return Allocation("optimal", rate_tps, tasks, len(slots), tuple(slots), gap, ended)


class _Carrying(msgspec.Struct, frozen=True):
    """slots: none, where nothing in few enough slots was found. least: nothing goes below; late: a search was ended."""

    slots: list[Threads]
    least: float
    late: bool


def _carrying(
    search: Callable[[float], tuple[list[Threads], Mixed]],
    carried: Callable[[list[Threads]], float],
    most: int,
) -> _Carrying:
    """What is found for so many times the rate that the prediction says it carries the rate itself, in less than `most`
    slots. carried: as a part of the rate."""
    margin, least, late = 1.0, 0.0, False
    for _ in range(TRIES):
        mixes, found = search(margin)
        least = found.least if margin == 1.0 else least
        late = late or found.late
        if not mixes or sum(map(bool, mixes)) >= most:
            break
        part = carried(mixes)
        if part >= 1 - TOLERANCE / 10:
            return _Carrying(mixes, least, late)
        margin *= (1 + TOLERANCE) / part if part > 0 else 2.0
    return _Carrying([], least, late)


# ── VMs of several speeds ───────────────────────────────────────────────────────────────────────────────


class OwnSlots(msgspec.Struct, frozen=True):
    """What an allocator makes mixes of for slots of VMs of one speed: `topology` and `models` as they are there."""

    speed: float
    topology: Topology
    models: Mapping[str, Model]


def mixes_for(
    topology: Topology,
    models: Mapping[str, Model],
    rate_tps: float,
    room: Room,
    slots_of: Callable[[float], OwnSlots],
) -> Allocation:
    """Mixes for the very slots of a room with VMs of several speeds, or MBA's bundles counted where SAM has them; CPU
    is counted in slots of the slowest. models: at speed 1. Where nothing fits it needs more slots than there are.

    Raises Infeasible as MBA."""
    speeds, places = {vm.vm: vm.speed for vm in room.vms}, room.slots()
    own = [slots_of(speed) for speed in sorted({speeds[slot.vm] for slot in places}, reverse=True)]
    slow = own[-1]
    counts = replace(mba(slow.topology, slow.models, rate_tps), allocator="optimal", slot_speed=slow.speed)
    bundles = _bundles_for(counts, topology, models, room)
    usual = [bundles.get(slot, {}) for slot in places if bundles]
    mixed, most = _Carrying([], 0.0, False), len(places) + 1
    if usual and carried_by(topology, models, usual, places, room.vms) >= rate_tps * (1 - TOLERANCE):
        most = len(bundles)
    if len(counts.tasks) <= MOST_TASKS and rate_tps > 0:
        mixed = _mixed_for(counts, own, topology, models, room, most)
    slots = mixed.slots or usual
    used = sum(map(bool, slots)) or max(math.ceil(mixed.least - TOLERANCE), len(places) + 1)
    gap = max(0.0, 1 - max(1, math.ceil(mixed.least - TOLERANCE)) / used) if mixed.least else None
    ended = _ended(mixed.late, len(counts.tasks)) if gap else ""
    tasks = tuple(counted_in(task, slots, slow.topology, slow.models) for task in counts.tasks)
    return replace(counts, tasks=tasks, mixes=tuple(slots), slots=used, gap=gap, ended=ended)


def _bundles_for(
    found: Allocation, topology: Topology, models: Mapping[str, Model], room: Room
) -> dict[Slot, Threads]:
    """MBA's bundles, as SAM has them; nothing where they do not fit."""
    speed, fastest = found.slot_speed, max(vm.speed for vm in room.vms)
    slow = topology_at(topology, speed)
    try:
        usual = mba(slow, counted_for(topology, models, found.rate_tps, speed, fastest), found.rate_tps)
        return sam(for_own_slots(replace(usual, slot_speed=speed), topology, models, room), room).by_slot()
    except Infeasible:
        return {}


def _mixed_for(
    found: Allocation,
    own: Sequence[OwnSlots],
    topology: Topology,
    models: Mapping[str, Model],
    room: Room,
    most: int,
) -> _Carrying:
    """Mixes in the order of the room's slots, each for its very slot, in less than `most`; own: the fastest first."""
    try:
        usual = [mba(one.topology, one.models, found.rate_tps) for one in own]
    except Infeasible:
        return _Carrying([], 0.0, False)
    if len(found.tasks) > MOST_TASKS:
        return _Carrying([], 0.0, False)
    places, speeds = room.slots(), {vm.vm: vm.speed for vm in room.vms}
    slots = [[n for n, slot in enumerate(places) if speeds[slot.vm] == one.speed] for one in own]
    until_s = ends_s(SEARCH_S)

    def search(margin: float) -> tuple[list[Threads], Mixed]:
        parts = [_rated(one.topology, one.models, each, margin) for one, each in zip(own, usual, strict=True)]
        least = [
            min(needs) for needs in zip(*((one.cpu for one in fixed) for _, fixed in parts), strict=True)
        ]
        kinds = [
            SlotKind(
                tuple(flexible),
                tuple(
                    replace(one, cpu=min(1.0, one.cpu) if one.cpu <= max(1.0, low) else math.inf)
                    for one, low in zip(fixed, least, strict=True)
                ),
                len(of),
            )
            for (flexible, fixed), of in zip(parts, slots, strict=True)
        ]
        kinds[-1] = replace(kinds[-1], count=math.inf)
        mixed = fewest(kinds, until_s, most)
        free = [list(of) for of in slots]
        names = kinds_of(own[0].topology, own[0].models, usual[0])
        mixes: list[Threads] = [{} for _ in places]
        for mix in mixed.slots:
            if not free[mix.kind]:
                return [], mixed
            mixes[free[mix.kind].pop(0)] = _threads(mix, *names)
        return mixes, mixed

    def carried(mixes: list[Threads]) -> float:
        return carried_by(topology, models, mixes, places, room.vms) / found.rate_tps

    return _carrying(search, carried, most)


def _ended(late: bool, tasks: int) -> str:
    """Why a gap is left."""
    if late:
        return f"the search was ended after {waited_s():.1f} s"
    if tasks > MOST_TASKS:
        return f"of {tasks} tasks only neighbours were looked at together"
    return "the search was ended after as many steps as it may take"


def optimal_mapper(allocation: Allocation, room: Room) -> Placement:
    """Every mix into a slot, in the room's order, then those that speak with each other onto one VM. Threads of tasks
    of fixed size stay where they are pinned, if there is a mix with them. Raises Infeasible when the slots run out."""
    usable = room.slots()
    needed = len(allocation.mixes)
    if needed > len(usable):
        raise Infeasible(f"the mixes need {counted(needed, 'slot')}, there are {len(usable)}")
    chosen = usable[:needed]
    taken = replace(room, excluded=room.excluded | set(usable[needed:]), pinned={})
    board = SlotRoom(allocation, taken)
    place = {task.task: number for number, task in enumerate(board.tasks)}
    mixes = list(allocation.mixes)
    pinned = _pinned_first(mixes, chosen, room)
    for slot, mix in enumerate(mixes):
        for task, threads in mix.items():
            board.put(place[task], slot, threads)
        if chosen[slot] in pinned:
            board.pinned[slot] = board.held[slot].copy()
    onto_vms(board)
    return board.placement()


def _pinned_first(mixes: list[Threads], chosen: Sequence[Slot], room: Room) -> set[Slot]:
    """Exchange mixes, so that one with a pinned task is where it is pinned; the slots for which there was one."""
    done: set[Slot] = set()
    speeds = {vm.vm: vm.speed for vm in room.vms}
    for task, slots in room.pinned.items():
        for slot in slots:
            if slot not in chosen or slot in done:
                continue
            here = chosen.index(slot)
            with_it = [n for n, mix in enumerate(mixes) if task in mix and chosen[n] not in done]
            with_it = [n for n in with_it if speeds[chosen[n].vm] == speeds[slot.vm]]
            if with_it:
                there = here if here in with_it else with_it[0]
                mixes[here], mixes[there] = mixes[there], mixes[here]
                done.add(slot)
    return done


def _packed(usual: Allocation) -> list[Threads]:
    """MBA's bundles as SAM packs them, in as many slots as it takes."""
    plenty = usual.slots + sum(task.rest_threads if task.static else 1 for task in usual.tasks) + 1
    placement = sam(usual, Room(tuple(Vm(f"vm{number}", 1) for number in range(plenty))))
    return list(placement.by_slot().values())


def _mixed(
    topology: Topology, models: Mapping[str, Model], usual: Allocation, margin: float, until_s: float
) -> tuple[list[Threads], Mixed]:
    """(the threads of each slot, how they were found) for so many times the rate."""
    flexible, fixed = kinds_of(topology, models, usual)
    rated, raw = _rated(topology, models, usual, margin)
    needs = [replace(one, cpu=min(1.0, one.cpu)) for one in raw]
    rest: tuple[TaskAllocation, ...] = ()  # that nothing was looked for
    if len(usual.tasks) <= MOST_TASKS:
        found = fewest([SlotKind(tuple(rated), tuple(needs))], until_s)
    else:
        together = SOME_TOGETHER if len(usual.tasks) <= SOME_TASKS else FEW_TOGETHER
        mixes, done = few(rated, needs, together, until_s)
        rest = (*flexible, *fixed)[done:]
        found = Mixed(tuple(mixes), 0.0, bool(rest))
    slots = [_threads(mix, flexible, fixed) for mix in found.slots]
    if rest:
        slots += _packed(replace(usual, tasks=tuple(rest), slots=slots_for(list(rest))))
    return slots, found


def _rated(
    topology: Topology, models: Mapping[str, Model], usual: Allocation, margin: float
) -> tuple[list[Flexible], list[Fixed]]:
    """The tasks of `kinds_of`, for so many times the rate; counted threads may need more CPU than a slot has."""
    flexible, fixed = kinds_of(topology, models, usual)
    rated = [
        Flexible(task.rate_tps * margin, choices_of(models[topology.by_name[task.task].model_name]))
        for task in flexible
    ]
    cpus = [task.cpu_slots / task.threads for task in fixed]
    return rated, [
        replace(fixed_needs(topology, models, task), cpu=cpu) for task, cpu in zip(fixed, cpus, strict=True)
    ]


def _threads(mix: Mix, flexible: Sequence[TaskAllocation], fixed: Sequence[TaskAllocation]) -> Threads:
    """By the tasks of `kinds_of`."""
    rated = {flexible[task].task: threads for task, (threads, _) in mix.flexible.items()}
    return rated | {fixed[task].task: threads for task, threads in mix.fixed.items()}


def kinds_of(
    topology: Topology, models: Mapping[str, Model], usual: Allocation
) -> tuple[list[TaskAllocation], list[TaskAllocation]]:
    """(tasks that may have any number of threads in a slot, tasks whose threads are counted)."""
    counted_ones = lone_tasks(topology) | {
        task.name for task in topology.tasks if task.static is not None or models[task.model_name].unmeasured
    }
    fixed = [task for task in usual.tasks if task.task in counted_ones or task.rate_tps <= 0]
    return [task for task in usual.tasks if task not in fixed], fixed


def choices_of(model: Model) -> tuple[Choice, ...]:
    """The measured numbers of threads that a slot has memory for; of those that the model's spread does not tell apart
    the fewest, which carry more of what is planned when they run (decision 74)."""
    best = peak(model)[1]
    told: list[Point] = []
    for point in model.points:
        fits = point.rate_tps > 0 and (point.memory <= 1 or point.threads == best)
        if fits and not any(_as_good(fewer, point) for fewer in told):
            told.append(point)
    return tuple(Choice(p.threads, p.rate_tps, p.cpu, min(1.0, p.memory)) for p in told)


def _as_good(fewer: Point, more: Point) -> bool:
    """May so few threads take as much as `more`, and at no more CPU a row, by how far that may be off?"""
    least_tps = more.rate_tps - half_widths(more)[0]
    return more.spread is not None and (
        fewer.rate_tps >= least_tps and fewer.cpu * least_tps <= more.cpu * fewer.rate_tps
    )


def fixed_needs(topology: Topology, models: Mapping[str, Model], task: TaskAllocation) -> Fixed:
    each_cpu, each_memory = task.cpu_slots / task.threads, task.memory_slots / task.threads
    if not task.static and not task.full_bundles:
        each_memory = max(each_memory, memory(models[topology.by_name[task.task].model_name], 1))
    return Fixed(task.threads, min(1.0, each_cpu), min(1.0, each_memory))


def carried_by(
    topology: Topology,
    models: Mapping[str, Model],
    mixes: Sequence[Threads],
    places: Sequence[Slot] = (),
    vms: Sequence[Vm] = (),
) -> float:
    """The input rate that slots with these mixes are predicted to carry; any where nothing limits it. places: the
    slots, of these VMs (left out: any of speed 1)."""
    if not places:
        vms = [Vm(f"vm{number}", 1) for number in range(len(mixes))]
        places = [Slot(vm.vm, 0) for vm in vms]
    bundles = [
        Bundle(slot, task, n) for slot, mix in zip(places, mixes, strict=True) for task, n in mix.items()
    ]
    limit = weighted(load_of(topology, models, Placement(tuple(bundles)), vms, shared_cpu=True)).limit
    return limit.rate_tps if limit is not None else math.inf


def _least(topology: Topology, models: Mapping[str, Model], usual: Allocation) -> float:
    """A number of slots that nothing goes below, whatever the mixes: each row costs at least its cheapest part of
    CPU and of memory, of both of which a slot has 1."""
    flexible, fixed = kinds_of(topology, models, usual)
    needs = [fixed_needs(topology, models, task) for task in fixed]
    most = 0.0
    for weight in (1.0, 0.75, 0.5, 0.25, 0.0):
        total = math.fsum(need.count * (weight * need.cpu + (1 - weight) * need.memory) for need in needs)
        for task in flexible:
            choices = choices_of(models[topology.by_name[task.task].model_name])
            total += task.rate_tps * min(
                (weight * one.cpu + (1 - weight) * one.memory) / one.rate_tps for one in choices
            )
        most = max(most, total)
    return most


def counted_in(
    task: TaskAllocation, slots: Sequence[Threads], topology: Topology, models: Mapping[str, Model]
) -> TaskAllocation:
    """Its threads in all slots, with what they need at its rate."""
    groups = [mix[task.task] for mix in slots if task.task in mix]
    if task.static or not groups:
        return replace(task, full_bundles=0, bundle_threads=0, rest_threads=task.threads,
                       rest_cpu=task.cpu_slots, rest_memory=task.memory_slots)  # fmt: skip
    model = models[topology.by_name[task.task].model_name]
    if model.unmeasured:
        return task
    peaks = math.fsum(peak_rate(model, threads) for threads in groups)
    part = min(1.0, task.rate_tps / peaks) if peaks > 0 else 0.0
    used_cpu = math.fsum(cpu(model, threads) for threads in groups) * part
    used_memory = math.fsum(memory(model, threads) for threads in groups)
    return TaskAllocation(
        task.task, task.rate_tps, sum(groups), used_cpu, used_memory,
        rest_threads=sum(groups), rest_cpu=used_cpu, rest_memory=used_memory,
    )  # fmt: skip
