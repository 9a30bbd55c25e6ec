"""A placement as numbers: groups of threads, what each carries at most, and what limits the whole. Pure.

A *group* is the q threads of one task in one slot. With x its rate, w the task's rate at Ω = 1:

    x ≤ I(q)                                   its peak rate
    Σ over the slot's groups C(q) x / I(q) ≤ 1 − CPU reserved by tasks of fixed size

Where models know what it costs to be woken for a row (`wake_cpu`, decision 20), a row costs more than C(q) / I(q) when
fewer rows come than at that peak, and less in a slot that is full: `PlacementLoad.at` tells what rate to count it by.
So it is with frames and with what goes on within a slot, where models know that (decision 114).

A task of fixed size may use CPU in proportion to its rate besides (`Static.cpu_per_tps`). On a VM of another speed than
1 all of this is what `vm_speeds.py` makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headgate.controller.models.plans import Placement, Share
from headgate.controller.models.task_models import EPSILON, Model, cpu, memory, peak_rate
from headgate.controller.plan.predict.vm_speeds import at_speed
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.measuring.wake_cost import (
    IN_FULL_SLOT,
    DispatchOverhead,
    RowsIn,
    cpu_of_slot,
    cpu_per_tps,
    like_own,
)

NOWHERE = -1  # the slot of a task that is not placed


@dataclass(frozen=True, slots=True)
class ThreadGroup:
    """`task` counts in breadth-first order, `slot` in `PlacementLoad.slots`. `peak_tps` is I(q), or None for a
    task of fixed size; `cpu` and `memory`: fractions of the slot at the peak, or reserved; `cpu_each`: of a
    task of fixed size, CPU for one row/s besides; `wake`: what a row alone costs besides."""

    task: int
    slot: int
    threads: int
    peak_tps: float | None
    cpu: float
    memory: float
    cpu_each: float = 0.0
    wake: DispatchOverhead = DispatchOverhead()


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Input rate `rate_tps` is the most that `task` in `slot` lets through; slot NOWHERE: it is in none."""

    rate_tps: float
    task: int
    slot: int


@dataclass(slots=True)
class PlacementLoad:
    """All groups of a placement. `unit`: w of each task, counting every copy that an `all` edge makes.
    `copied`: tasks reached by an `all` edge, whose threads all see the same rate whatever the routing.
    `absent`: modelled tasks without a thread, which let nothing through. `cpu_left`: what groups of
    modelled tasks may use of each slot; None: they do not share. `rows_tps`: rows/s by which each group's wakes
    are counted, and `flows` by which its frames are; None: as few as can be. `pairs`: of a thread that sends to a group
    and one of its own; `near`: groups in its slot that it sends to or has rows from, and the part of its crossings
    that this is when all rows of that group's task are that group's."""

    tasks: list[str]
    slots: list[Slot]
    groups: list[ThreadGroup]
    unit: list[float]
    copied: list[bool]
    cpu_left: list[float] | None
    by_task: list[list[int]] = field(default_factory=list)
    by_slot: list[list[int]] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    rows_tps: list[float] | None = None
    flows: list[RowsIn] | None = None
    pairs: list[int] = field(default_factory=list)
    near: list[list[tuple[int, float]]] = field(default_factory=list)

    @property
    def wakes(self) -> bool:
        """Does a row's CPU depend on how many come?"""
        return any(group.wake.cpu or group.wake.frame for group in self.groups)

    def at(self, shares: Sequence[float], rate_tps: float) -> PlacementLoad:
        """The same load, with wakes counted at input rate `rate_tps`; itself where no model knows what they cost."""
        if not self.wakes:
            return self
        own_tps = [self.unit[group.task] * shares[g] * rate_tps for g, group in enumerate(self.groups)]
        company_tps = [0.0 if group.wake.waits else own_tps[g] for g, group in enumerate(self.groups)]
        in_slot_tps = [math.fsum(company_tps[g] for g in members) for members in self.by_slot]
        rows_tps = [
            like_own(own_tps[g], in_slot_tps[group.slot] - company_tps[g])
            for g, group in enumerate(self.groups)
        ]
        flows = [
            RowsIn(own_tps[g], self.pairs[g], math.fsum(part * shares[other] for other, part in self.near[g]))
            for g in range(len(self.groups))
        ]
        return replace(self, rows_tps=rows_tps, flows=flows)

    def limits_at(self, shares: Sequence[float]) -> Iterable[RateLimit]:
        """Every limit on Ω when group g takes the share `shares[g]` of its task's rows."""
        yield from (RateLimit(0.0, task, NOWHERE) for task in self.absent)
        for g, group in enumerate(self.groups):
            if group.peak_tps is not None and shares[g] > 0:
                yield RateLimit(group.peak_tps / (self.unit[group.task] * shares[g]), group.task, group.slot)

    def cpu_limits_at(self, shares: Sequence[float]) -> Iterable[RateLimit]:
        """The limit that the CPU of each slot sets, named after the first modelled task that uses it, else
        the first task of fixed size."""
        if self.cpu_left is None:
            return
        for slot, members in enumerate(self.by_slot):
            used = {g: self.cpu_of(g, shares[g], 1.0) for g in members}
            users = [self.groups[g] for g in members if used[g] > 0]
            if users:
                first = min(users, key=lambda group: (group.peak_tps is None, group.task)).task
                yield RateLimit(self.cpu_left[slot] / math.fsum(used.values()), first, slot)

    def cpu_per_unit(self, g: int, full: bool = True) -> float:
        """CPU of the slot, full or not, for one row/s through group g: C(q) / I(q), and what its wakes cost
        besides; of a task of fixed size what it uses besides what it reserves, where wakes are counted as a wake: less
        in a full slot."""
        group = self.groups[g]
        if not group.peak_tps:
            return group.cpu_each * (IN_FULL_SLOT if full and self.rows_tps is not None else 1.0)
        rows_tps = self.rows_tps[g] if self.rows_tps is not None else 0.0
        flow = RowsIn(0.0) if self.flows is None else self.flows[g]
        return cpu_per_tps(group.cpu, group.peak_tps, group.wake, rows_tps, full, flow)

    def cpu_of(self, g: int, share: float, rate_tps: float, full: bool = True) -> float:
        """CPU of the slot, full or not, that grows with the input rate, at `rate_tps`, when group g takes `share` of
        its task's rows."""
        return self.cpu_per_unit(g, full) * self.unit[self.groups[g].task] * share * rate_tps

    def part_of_peak(self, g: int, share: float, rate_tps: float | None) -> float:
        """x / I(q) of group g when its task sees input rate `rate_tps` and it takes `share` of the rows;
        1 at its peak (None) and for tasks of fixed size."""
        group = self.groups[g]
        if group.peak_tps is None or rate_tps is None:
            return 1.0
        rows_tps = self.unit[group.task] * share * rate_tps
        return rows_tps / group.peak_tps if group.peak_tps > 0 else float(rows_tps > 0)

    def needs(
        self, shares: Sequence[float], rate_tps: float | None, most: float = math.inf
    ) -> list[tuple[float, float]]:
        """(CPU, memory) of each slot at input rate `rate_tps` (None: each group at its peak): C(q) x / I(q)
        with its wakes, M(q) x / I(q), and what tasks of fixed size reserve and use; no group needs more than
        `most` of its peak's."""
        alone, in_full, memory = ([0.0] * len(self.slots) for _ in range(3))
        there = self if rate_tps is None else self.at(shares, rate_tps)
        for g, group in enumerate(self.groups):
            part = min(most, self.part_of_peak(g, shares[g], rate_tps))
            for used, full in ((alone, False), (in_full, True)):
                at_peak = group.cpu
                if group.peak_tps and there.rows_tps is not None:
                    at_peak = there.cpu_per_unit(g, full) * group.peak_tps
                used[group.slot] += at_peak * part
                if group.cpu_each and rate_tps is not None:
                    used[group.slot] += there.cpu_of(g, shares[g], rate_tps, full)
            memory[group.slot] += group.memory * part
        return list(zip(map(cpu_of_slot, alone, in_full), memory, strict=True))

    def ceilings(self, shares: Sequence[float]) -> dict[int, float]:
        """Task → the lowest limit on Ω that its threads set, slots not looked at; in breadth-first order."""
        lowest: dict[int, float] = {}
        for limit in self.limits_at(shares):
            lowest[limit.task] = min(limit.rate_tps, lowest.get(limit.task, limit.rate_tps))
        return dict(sorted(lowest.items()))

    def in_order(self, shares: Iterable[Share], otherwise: Sequence[float] | None = None) -> list[float]:
        """Those of a prediction as group by group; where there is none, `otherwise` or 0."""
        known = {(share.slot, share.task): share.share for share in shares}
        return [
            known.get((self.slots[group.slot], self.tasks[group.task]), otherwise[g] if otherwise else 0.0)
            for g, group in enumerate(self.groups)
        ]

    def even_shares(self) -> list[float]:
        """Every thread of a task gets as much as any other: q / τ."""
        totals = [sum(self.groups[g].threads for g in members) for members in self.by_task]
        return [group.threads / totals[group.task] for group in self.groups]

    def peak_shares(self) -> list[float]:
        """In proportion to I(q); even where there is no model or no choice."""
        shares = self.even_shares()
        for task, members in enumerate(self.by_task):
            peaks = [self.groups[g].peak_tps or 0.0 for g in members]
            total = sum(peaks)
            if total > 0 and not self.copied[task]:
                for g, peak_tps in zip(members, peaks, strict=True):
                    shares[g] = peak_tps / total
        return shares


def tightest(limits: Iterable[RateLimit]) -> RateLimit | None:
    """The least limit; of equal ones the first task in breadth-first order, then the first slot."""
    found = list(limits)
    if not found:
        return None
    least = min(limit.rate_tps for limit in found)
    ties = [limit for limit in found if limit.rate_tps <= least * (1 + EPSILON)]
    return min(ties, key=lambda limit: (limit.task, limit.slot))


def load_of(
    topology: Topology,
    models: Mapping[str, Model],
    placement: Placement,
    vms: Sequence[Vm],
    shared_cpu: bool,
) -> PlacementLoad:
    """The load of a placement; slots in order of (VM in `vms`, number). Linear but for sorting the slots."""
    order = topology.breadth_first
    place = {task.name: number for number, task in enumerate(order)}
    vm_place = {vm.vm: number for number, vm in enumerate(vms)}
    slots = sorted(
        {bundle.slot for bundle in placement.bundles},
        key=lambda slot: (vm_place.get(slot.vm, len(vm_place)), slot),
    )
    slot_place = {slot: number for number, slot in enumerate(slots)}
    speeds = {vm.vm: vm.speed for vm in vms}
    groups, known = [], _Curves()
    for bundle in placement.bundles:
        task = order[place[bundle.task]]
        number, slot = place[bundle.task], slot_place[bundle.slot]
        speed = speeds.get(bundle.slot.vm, 1.0)
        if task.static is not None:
            part = bundle.threads / task.static.threads
            used = task.static.cpu / speed * part, task.static.memory * part
            groups.append(
                ThreadGroup(number, slot, bundle.threads, None, *used, task.static.cpu_each / speed)
            )
        else:
            model = known.model(models[task.model_name], speed)
            curve = known.at(number, speed, model, bundle.threads)
            groups.append(ThreadGroup(number, slot, bundle.threads, *curve, wake=model.wake))
    load = PlacementLoad([task.name for task in order], slots, groups, [], [], None)
    load.by_task, load.by_slot = [[] for _ in order], [[] for _ in slots]
    for g, group in enumerate(groups):
        load.by_task[group.task].append(g)
        load.by_slot[group.slot].append(g)
    load.absent = [n for n, task in enumerate(order) if task.static is None and not load.by_task[n]]
    _set_units(load, topology)
    _set_neighbours(load, topology, place)
    if shared_cpu:
        load.cpu_left = [_cpu_left(load, members) for members in load.by_slot]
    return load


class _Curves:
    """I, C and M at the thread counts and speeds of VMs asked for so far: most groups of a task are the same bundle.

    C is that of the largest point above it (decision 22), where `models.cpu` adds up."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, float, int], tuple[float, float, float]] = {}
        self._models: dict[tuple[str, float], Model] = {}

    def model(self, model: Model, speed: float) -> Model:
        """As it is on a VM of that speed."""
        if speed == 1.0:
            return model
        found = self._models.get((model.task, speed))
        if found is None:
            found = self._models[model.task, speed] = at_speed(model, speed)
        return found

    def at(self, task: int, speed: float, model: Model, threads: int) -> tuple[float, float, float]:
        values = self._known.get((task, speed, threads))
        if values is None:
            measured = min(threads, model.points[-1].threads)
            values = peak_rate(model, threads), cpu(model, measured), memory(model, threads)
            self._known[task, speed, threads] = values
        return values


def _set_units(load: PlacementLoad, topology: Topology) -> None:
    rates = topology.rates(1.0)
    copied = {edge.target for edge in topology.edges if edge.grouping == "all"}
    load.copied = [name in copied for name in load.tasks]
    for task, name in enumerate(load.tasks):
        threads = sum(load.groups[g].threads for g in load.by_task[task])
        load.unit.append(rates[name] * (threads if load.copied[task] else 1))


def _set_neighbours(load: PlacementLoad, topology: Topology, place: Mapping[str, int]) -> None:
    """Senders of each group, and who is beside it, where a model knows what frames cost."""
    load.pairs, load.near = [1] * len(load.groups), [[] for _ in load.groups]
    rates = topology.rates(1.0)
    for g, group in enumerate(load.groups):
        if not group.wake.frame:
            continue
        name, senders = load.tasks[group.task], 0
        for _, edge in topology.in_edges(name):
            part = edge.selectivity * rates[edge.source] / rates[name] if rates[name] > 0 else 0.0
            above = load.by_task[place[edge.source]]
            senders += sum(load.groups[o].threads for o in above if load.groups[o].slot != group.slot)
            load.near[g] += [(o, part / 2) for o in above if load.groups[o].slot == group.slot]
        for _, edge in topology.out_edges(name):
            below = load.by_task[place[edge.target]]
            here = [o for o in below if load.groups[o].slot == group.slot]
            load.near[g] += [(o, edge.selectivity / 2) for o in here]
        load.pairs[g] = max(1, senders) * group.threads


def _cpu_left(load: PlacementLoad, members: Sequence[int]) -> float:
    reserved = sum(load.groups[g].cpu for g in members if load.groups[g].peak_tps is None)
    return max(0.0, 1.0 - reserved)
