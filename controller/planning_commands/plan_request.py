"""What a planning command was asked, and the plan that answers it: acquired or fixed VMs, a cap on cost."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from headgate.controller.models.plans import usd_per_hour
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.errors import HeadgateError, Infeasible, InvalidInput, UsageError
from headgate.topology_runtime.wording import counted, significant

if TYPE_CHECKING:
    from headgate.controller.models.plans import Plan
    from headgate.controller.models.task_models import Model
    from headgate.controller.plan.acquire import Acquire
    from headgate.controller.plan.planner import PlanRequest
    from headgate.controller.plan.predict.vm_links import NarrowLinks
    from headgate.controller.plan.scaling import Row, Supply
    from headgate.topology_runtime.api.topology import Topology

LESS, LESS_MOST = 0.9, 100  # steps by which a rate is lowered until a plan fits, and how many
STEP, STEPS = 0.995, 2760  # the same where the nearest is told: down to a millionth
CENT = 1e-6  # USD: sums of prices that differ by less are equal


class NearestTold(Infeasible):
    """Its hint says the nearest that can be met."""


@dataclass(frozen=True)
class PlanWanted:
    """`request` has topology, models, rate and how to plan. With `acquire` VMs are acquired among `sizes`
    (templates); without it the request's VMs are fixed. `step_tps`: asked for the highest multiple of it
    that fits the fixed VMs, whatever the request's rate. `search_s`: so long a plan may be searched for (None: as
    is usual). A step of 0: to half a percent."""

    request: PlanRequest
    sizes: tuple[Vm, ...] = ()
    acquire: Acquire | None = None
    max_usd_per_hour: float | None = None
    step_tps: float | None = None
    search_s: float | None = None

    @property
    def topology(self) -> Topology:
        return self.request.topology

    @property
    def models(self) -> dict[str, Model]:
        return self.request.models

    def beside(self, base: Plan) -> PlanWanted:
        """The same question, asked while `base` is in force."""
        said = base.prediction
        more = {"states": said.states, "state_most_bytes": said.state_most_bytes}
        return replace(self, request=msgspec.structs.replace(self.request, in_force=base.placement, **more))

    def as_it_is(self, base: Plan) -> Plan | None:
        """The plan in force where it stays: it is by the scheduler that is asked for, for about this rate, carries it,
        and pays for no VM without threads."""
        from headgate.controller.plan.steadiness import as_it_is, is_near

        request = self.request
        same = (base.allocator, base.mapper, base.routing) == (
            request.allocator, request.mapper, request.routing,
        )  # fmt: skip
        used = {bundle.slot.vm for bundle in base.placement.bundles}
        there = base.vms == request.vms if self.acquire is None else used == {vm.vm for vm in base.vms}
        cap = self.max_usd_per_hour
        if not (same and there and self.step_tps is None and is_near(request.rate_tps, base.rate_tps)):
            return None
        if cap is not None and usd_per_hour(base.vms) > cap + CENT:
            return None
        return as_it_is(request, base)

    def moving_least(self, plan: Plan, base: Plan) -> Plan:
        """The plan with its VMs named as those of the one in force, or one as good there that moves fewer threads."""
        from headgate.controller.plan.steadiness import moving_least
        from headgate.controller.planning_commands.plan_changes import based_on

        plan = based_on(plan, base, self.topology, self.request.fixed)
        asked = msgspec.structs.replace(self.request, vms=plan.vms, may_add=(), fixed=True)
        return moving_least(asked, plan, base, base.placement)

    def plan(self) -> Plan:
        """The plan asked for, verified. Raises InvalidInput, Infeasible (also: costs more than the cap)."""
        from headgate.controller.plan.predict.vm_links import NarrowLinks
        from headgate.topology_runtime.platform.planning_time import clocked

        with clocked(monotonic, self.search_s):
            try:
                plan = self._planned()
            except NarrowLinks as error:
                raise self._narrow(error) from error
        check(plan, self.topology, self.models)
        if self.max_usd_per_hour is not None and usd_per_hour(plan.vms) > self.max_usd_per_hour + CENT:
            raise self._too_dear(plan, self.max_usd_per_hour)
        return plan

    def plan_or_best(self) -> tuple[Plan, str]:
        """(the plan, why it is for less than was asked for or ""): where models are not known, or not for sure, no rate
        is refused for them. Raises as `plan`."""
        from headgate.controller.core.plan_choice import planned
        from headgate.controller.models.task_models import unsure_tasks

        try:
            return self.plan(), ""
        except Infeasible as error:
            if not unsure_tasks(self.topology, self.models) or self.step_tps is not None:
                raise
            if self.acquire is None:
                return planned(self.request)
            found = self._acquired_for_less()
            if found is None or self.max_usd_per_hour is not None:
                raise
            return found, error.cause or "; ".join(error.faults) or error.what

    def with_nearest(self, error: Infeasible) -> Infeasible:
        """The same with the highest rate that a plan fits, where it says no nearest limit yet."""
        if isinstance(error, NearestTold) or self.step_tps is not None:
            return error
        rate_tps, by = self._nearest()
        if not rate_tps:
            return self._at_no_rate(error)
        more = f"; {error.hint}" if error.hint else ""
        hint = f"a plan for {significant(rate_tps)} rows/s fits{by}{more}"
        return NearestTold(error.what, cause=error.cause, faults=error.faults, hint=hint)

    def _at_no_rate(self, error: Infeasible) -> Infeasible:
        """The same with what hinders any rate, where that is something else."""
        from headgate.controller.plan.scaling import NEXT_TO_NOTHING

        least = msgspec.structs.replace(self.request, rate_tps=self.request.rate_tps * NEXT_TO_NOTHING)
        try:
            replace(self, request=least).plan()
        except Infeasible as never:
            why = never.cause or "; ".join(never.faults) or never.what
            if why != (error.cause or "; ".join(error.faults) or error.what):
                cause = f"{error.cause or error.what}; no rate fits: {why}"
                return NearestTold(
                    error.what, cause=cause, faults=error.faults, hint="other VMs, or larger ones"
                )
        return error

    def _nearest(self) -> tuple[float, str]:
        """(the highest rate up to the one asked for that a plan fits, within half a percent, or 0; by what, where that
        is another scheduler: one that searches long takes no more slots than it)."""
        from headgate.controller.plan.planner import COUNTED
        from headgate.controller.plan.schedulers import ALLOCATORS, MAPPERS

        asked, by = self, ""
        if ALLOCATORS[self.request.allocator].slow or MAPPERS[self.request.mapper].slow:
            quick = msgspec.structs.replace(self.request, allocator=COUNTED[0], mapper=COUNTED[1])
            asked, by = replace(self, request=quick), f" by {'+'.join(COUNTED)}"
        if asked.acquire is None and asked.request.sure is None:
            return asked._carried_by(asked.request.vms, asked.request.rate_tps), by
        return asked._fitting_at_most(), by

    def _fitting_at_most(self) -> float:
        """As `_carried_by`, of plans on VMs that are acquired, or that are to be sure."""
        rates = [_told(self.request.rate_tps * STEP**step) for step in range(STEPS + 1)]

        def fits(rate_tps: float) -> bool:
            try:
                replace(self, request=msgspec.structs.replace(self.request, rate_tps=rate_tps)).plan()
            except Infeasible:
                return False
            return True

        if not fits(rates[-1]):
            return 0.0
        return rates[bisect_left(rates, True, key=fits)]

    def _acquired_for_less(self) -> Plan | None:
        for step in range(1, LESS_MOST):
            less = msgspec.structs.replace(self.request, rate_tps=self.request.rate_tps * LESS**step)
            try:
                return replace(self, request=less).plan()
            except Infeasible:
                continue
        return None

    def _planned(self) -> Plan:
        from headgate.controller.plan.planner import make_plan, plan_acquiring

        if self.step_tps is not None:
            from headgate.controller.plan.scaling import highest_plan, nearly_highest_plan

            if self.step_tps == 0:
                return nearly_highest_plan(self.request)
            return highest_plan(self.request, self.step_tps)
        if self.acquire is None:
            return make_plan(self.request)
        return plan_acquiring(self.request, self.sizes, self.acquire)

    def _too_dear(self, plan: Plan, cap: float) -> Infeasible:
        vms = self._affordable(plan, cap)
        rate_tps = self._carried_by(vms, plan.rate_tps)
        slots, cost = counted(sum(vm.slots for vm in vms), "slot"), usd_per_hour(vms)
        fits = f"{slots} for ${cost:g} carry about {significant(rate_tps)} rows/s"
        least = min(vm.usd_per_hour for vm in (self.sizes if self.acquire is not None else plan.vms))
        none = f"no rate fits the cap, one VM costs ${least:g}" if not vms else "no rate fits the cap"
        return NearestTold(
            f"a plan for {significant(plan.rate_tps, 6)} rows/s costs ${usd_per_hour(plan.vms):g} per hour, "
            f"more than the ${cap:g} allowed",
            cause=f"it needs {counted(plan.slots.total, 'slot')} on {counted(len(plan.vms), 'VM')}",
            hint=f"allow more, or plan for less: {fits if rate_tps else none}",
        )

    def _narrow(self, error: NarrowLinks) -> Infeasible:
        """The same with the nearest that fits these VMs: a rate, and another mapper."""
        from headgate.controller.plan.planner import make_plan
        from headgate.controller.plan.schedulers import MAPPERS, pair_faults

        asked = msgspec.structs.replace(
            self.request, vms=error.plan.vms, rate_tps=error.plan.rate_tps, fixed=True, in_force=None
        )
        nearest = self._carried_by(asked.vms, asked.rate_tps)
        fits = [f"a plan for {significant(nearest)} rows/s fits"] if nearest else []
        for name, mapper in MAPPERS.items():
            if name == asked.mapper or mapper.slow or pair_faults(asked.allocator, name):
                continue
            try:
                make_plan(msgspec.structs.replace(asked, mapper=name))
            except Infeasible:
                continue
            fits.append(f"--mapper {name} fits at this rate")
            break
        return NearestTold(
            error.what,
            faults=error.faults,
            hint=", ".join(fits) or "give VMs wider links, or fewer and larger VMs",
        )

    def _affordable(self, plan: Plan, cap: float) -> tuple[Vm, ...]:
        """The most VMs that cost no more than `cap`: of the fixed ones the first."""
        most, found = len(plan.vms) if self.acquire is None else plan.slots.total, 0
        while found < most:  # bisection: more never costs less
            middle = (found + most + 1) // 2
            if usd_per_hour(self._first(plan, middle)) <= cap + CENT:
                found = middle
            else:
                most = middle - 1
        return self._first(plan, found)

    def _first(self, plan: Plan, count: int) -> tuple[Vm, ...]:
        if self.acquire is None:
            return plan.vms[:count]
        return self.acquire(count, self.sizes) if count else ()

    def _carried_by(self, vms: tuple[Vm, ...], rate_tps: float) -> float:
        """The highest rate up to `rate_tps` that these VMs carry, within half a percent and as it is said; 0: none."""
        from headgate.controller.plan.planner import best_plan
        from headgate.controller.plan.scaling import NEXT_TO_NOTHING

        least_tps, told_tps = rate_tps * NEXT_TO_NOTHING, rate_tps
        while vms:
            try:
                found = best_plan(msgspec.structs.replace(self.request, vms=vms, rate_tps=told_tps)).rate_tps
            except Infeasible:
                return 0.0
            if found <= least_tps:
                return 0.0
            if _told(found) == told_tps:
                return told_tps
            told_tps = _told(found)
        return 0.0


def _told(rate_tps: float) -> float:
    """The rate as it is said, in four digits, and no more than it is."""
    if rate_tps <= 0:
        return 0.0
    digits = 3 - math.floor(math.log10(rate_tps))
    return math.floor(round(rate_tps * 10.0**digits, 6)) / 10.0**digits


def check(plan: Plan, topology: Topology, models: Mapping[str, Model]) -> None:
    """Raises HeadgateError when the verifier finds a fault: a plan that breaks a rule is never shown."""
    from headgate.controller.plan.verifier import faults_of

    faults = faults_of(plan, topology, models)
    if faults:
        raise HeadgateError(
            "unsound plan, not shown: it breaks rules",
            cause="a fault in headgate's planner, not in what you gave it",
            hint="report the topology, the models and this command line",
            faults=faults,
        )


# ── Where the slots of several plans come from, and plans as rows ───────────────────────────────────────

OBJECTS = frozenset({"slots", "limit", "same_slots", "more_slots", "baseline"})  # parts of a row, or null


def supply_of(asked: PlanWanted, base: Plan | None = None) -> Supply:
    """Every plan is made as `PlanWanted.plan` makes it: verified, and no dearer than allowed. How far slots reach
    is said whatever they cost. base: the plan in force."""
    from headgate.controller.plan.plan_moves import moves
    from headgate.controller.plan.scaling import Supply

    if base is not None:
        asked = asked.beside(base)

    def planned(request: PlanRequest) -> Plan:
        return replace(asked, request=request).plan()

    def highest(request: PlanRequest, step_tps: float) -> Plan:
        return replace(asked, request=request, step_tps=step_tps, max_usd_per_hour=None).plan()

    def moved(plan: Plan) -> int:
        assert base is not None
        of = {"allocator": plan.allocator, "mapper": plan.mapper, "rate_tps": plan.rate_tps}
        wanted = replace(asked, request=msgspec.structs.replace(asked.request, **of))
        if wanted.as_it_is(base) is not None:
            return 0
        return moves(wanted.moving_least(plan, base).placement, base.placement)

    return Supply(
        asked.request, planned, highest, asked.sizes, asked.acquire, moved if base is not None else None
    )


def refuse_picture(path: Path | None) -> None:
    """Raises UsageError for a picture that cannot be drawn, before anything is planned."""
    if path is not None:
        from headgate.controller.pictures.drawing import format_of

        format_of(path)


def pairs_of(text: str) -> tuple[str, ...]:
    """`lsa+rsm,mba+sam` → each pair once; `paper`: those of paper 0; `all`: every one. Raises UsageError."""
    from headgate.controller.files.installed_schedulers import add_installed
    from headgate.controller.plan.schedulers import PAIRS, pair_of, pairs

    if text == "paper":
        return PAIRS
    if text == "all":
        return pairs()
    chosen = dict.fromkeys(part.strip() for part in text.split(","))
    faults: list[str] = []
    for pair in chosen:
        try:
            allocator, _, mapper = pair.partition("+")
            add_installed(allocator=allocator, mapper=mapper)
            pair_of(pair)
        except InvalidInput as error:
            faults += error.faults
    if faults:
        raise UsageError("invalid --compare", faults=faults, hint="name pairs: --compare lsa+rsm,mba+sam")
    return tuple(chosen)


def short_sizes(vms: str) -> str:
    """The same for people: many of one size are counted (`12×4,2`)."""
    sizes = vms.split(",")
    if len(sizes) <= 6:
        return vms
    return ",".join(f"{n}×{size}" if n > 1 else size for size, n in Counter(sizes).items())


def flat(row: Row) -> Row:
    """A row for CSV: what is an object of its own (`slots`) becomes columns (`slots_total` …)."""
    columns: Row = {}
    for name, value in row.items():
        if isinstance(value, dict):
            columns.update({f"{name}_{key}": part for key, part in value.items()})
        elif value is not None or name not in OBJECTS:
            columns[name] = value
    return columns
