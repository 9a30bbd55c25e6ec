"""Measured traffic as knowledge, and the triggers of paper 1's online scheduler (section 3.2). Pure.

A mapper that is online plans again, though rate and VMs are as they were, where a VM's load has been above its bound
for a while, and every so often where a plan made now saves enough of what is said between VMs. What was looked at and
did not do is told with the diagnosis of that turn. Both plans are judged by the same measured traffic and loads, so
what the model of traffic leaves out (skewed keys) moves nothing to and fro.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import asdict, replace

from headgate.controller.analyze.traffic import smoothed
from headgate.controller.core.decide import PlanChoice, choose
from headgate.controller.core.deciding import question
from headgate.controller.core.first_rows import may_plan
from headgate.controller.core.thinking import NotYet, planned_beside
from headgate.controller.knowledge.diagnoses import Diagnosis, Stability
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.traffic import TaskWork, sized
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.windows import Window
from headgate.controller.plan.crossings import crossings_of
from headgate.controller.plan.schedulers import MAPPERS
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.faults.words import counted

NS = 1_000_000_000
LOAD_SLACK = 0.05  # so far below the bound a VM must come to be no longer over it
LIGHTER = 0.95  # of the highest load there is now: a plan with more is not worth its moves
LEISURE = ("fine", "drift", "overloaded", "latency_violated")  # found, and nothing is to be done for it
AGAIN_S = 30.0  # before a plan for a loaded VM is looked for once more


def looked(
    turn: Turn, members: Membership, window: Window, verdict: Stability, diagnosis: Diagnosis
) -> Diagnosis:
    """Take in what the window says of traffic. The diagnosis, or where it was that nothing is to be done, a plan to be
    made for traffic or load."""
    k, now_ns = turn.knowledge, turn.now.mono_ns
    seen = k.traffic
    step_s = min(window.seconds, (now_ns - seen.at_ns) / NS) if seen.at_ns else window.seconds
    seen.measured, seen.at_ns = smoothed(seen.measured, window, step_s), now_ns
    mapper = MAPPERS.get(k.settings.mapper)
    if mapper is None or not mapper.online or k.plan is None or not window.is_complete:
        return diagnosis
    loads = vm_loads(window, k.plan)
    _watch_loads(k, loads, now_ns)
    if diagnosis.kind != "none" or diagnosis.reason not in LEISURE or members.mass_loss:
        return diagnosis
    if not may_plan(k) or seen.measured is None:
        return diagnosis
    since_ns = max(seen.looked_ns, k.in_force_ns)
    try:
        if _is_loaded(k, now_ns):
            diagnosis = _for_load(turn, members, window, loads, diagnosis)
            seen.load_looked_ns = now_ns
        elif now_ns - since_ns >= k.settings.triggers.every_s * NS and verdict.verdict == "stable":
            diagnosis = _for_traffic(turn, members, window, diagnosis)
            seen.looked_ns = now_ns
    except NotYet:  # it is looked at again when there is a plan
        return diagnosis
    return diagnosis


# ── load ────────────────────────────────────────────────────────────────────────────────────────


def vm_loads(window: Window, plan: Plan) -> dict[str, float]:
    """VM → which part of the CPU of its slots with threads is in use."""
    used = {bundle.slot for bundle in plan.placement.bundles}
    found: dict[str, list[float]] = {}
    for slot, measured in window.slots.items():
        if slot in used:
            found.setdefault(slot.vm, []).append(measured.cpu)
    return {vm: sum(parts) / len(parts) for vm, parts in found.items()}


def loads_by(plan: Plan, works: Iterable[TaskWork]) -> dict[str, float]:
    """The same as it would be by this plan, if rows cost what was measured."""
    cores = {work.task: work.cores for work in works}
    slots: dict[str, set[int]] = {}
    for bundle in plan.placement.bundles:
        slots.setdefault(bundle.slot.vm, set()).add(bundle.slot.number)
    there = {vm.vm: len(slots.get(vm.vm, ())) * vm.slot_cores * vm.speed for vm in plan.vms}
    found = dict.fromkeys(slots, 0.0)
    for share in plan.prediction.shares:
        found[share.slot.vm] += share.share * cores.get(share.task, 0.0) / there[share.slot.vm]
    return found


def _watch_loads(k: Knowledge, loads: dict[str, float], now_ns: int) -> None:
    """Since when a VM is over the bound; it is until all are well below it."""
    most, bound = max(loads.values(), default=0.0), k.settings.triggers.load_bound
    if most > bound:
        k.traffic.loaded_since_ns = k.traffic.loaded_since_ns or now_ns
    elif most < bound - LOAD_SLACK:
        k.traffic.loaded_since_ns = 0


def _is_loaded(k: Knowledge, now_ns: int) -> bool:
    seen, for_ns = k.traffic, k.settings.triggers.load_s * NS
    since_ns = max(seen.loaded_since_ns, k.in_force_ns)
    if not seen.loaded_since_ns or now_ns - since_ns < for_ns:
        return False
    return not seen.load_looked_ns or now_ns - seen.load_looked_ns >= AGAIN_S * NS


def _for_load(
    turn: Turn, members: Membership, window: Window, loads: dict[str, float], diagnosis: Diagnosis
) -> Diagnosis:
    k, triggers = turn.knowledge, turn.knowledge.settings.triggers
    vm = max(loads, key=lambda name: (loads[name], name))
    seconds = (turn.now.mono_ns - k.traffic.loaded_since_ns) / NS
    text = (
        f"VM {vm} uses {loads[vm]:.0%} of its slots' CPU, above {triggers.load_bound:.0%} for {seconds:.0f} s"
    )
    choice, why = _tried(turn, members, "vm_loaded")
    if choice is None or choice.plan is None:
        return _rejected(diagnosis, text, why)
    assert k.plan is not None and k.traffic.measured is not None
    works = k.traffic.measured.works(window.emitted_tps)
    before = max(loads_by(k.plan, works).values(), default=0.0)
    after = max(loads_by(choice.plan, works).values(), default=0.0)
    evidence = {
        "loads": {name: round(load, 4) for name, load in loads.items()},
        "before": before,
        "after": after,
    }
    evidence |= {"load_bound": triggers.load_bound, "seconds": seconds}
    if after > LIGHTER * before:
        return _rejected(
            diagnosis, text, f"its most loaded VM would use {after:.0%}, now {before:.0%} by the same rows"
        )
    return Diagnosis(
        "replan",
        "vm_loaded",
        f"{text}; another placement comes to {after:.0%} at most, where this one has {before:.0%}",
        k.plan.rate_tps,
        {**diagnosis.evidence, "load": evidence},
        diagnosis.alternatives,
    )


# ── traffic ─────────────────────────────────────────────────────────────────────────────────────


def _for_traffic(turn: Turn, members: Membership, window: Window, diagnosis: Diagnosis) -> Diagnosis:
    k, triggers = turn.knowledge, turn.knowledge.settings.triggers
    text = f"{triggers.every_s:g} s are over since traffic was looked at"
    choice, why = _tried(turn, members, "traffic_saved")
    if choice is None or choice.plan is None:
        return _rejected(diagnosis, text, why)
    assert k.plan is not None and k.topology is not None
    if choice.plan.slots.used > k.plan.slots.used:
        return _rejected(
            diagnosis,
            text,
            f"it takes {counted(choice.plan.slots.used, 'slot')}, {k.plan.slots.used} are in use",
        )
    flows = sized(choice.plan.prediction.flows)
    before, after = (crossings_of(plan, k.topology, flows) for plan in (k.plan, choice.plan))
    if before.between_vms_bytes_per_s is not None and after.between_vms_bytes_per_s is not None:
        now, then, unit = before.between_vms_bytes_per_s, after.between_vms_bytes_per_s, "bytes/s"
    else:
        now, then, unit = before.between_vms_tps, after.between_vms_tps, "rows/s"
    saved = 1 - then / now if now > 0 else 0.0
    told = f"of {now:,.0f} {unit} between VMs {then:,.0f} are left, {saved:.0%} less"
    measured = sum(edge.between_vms_bytes_per_s for edge in window.edges.values())
    evidence = {"before": asdict(before), "after": asdict(after), "saved": round(saved, 4)}
    evidence |= {"saves": triggers.saves, "measured_bytes_per_s": round(measured, 1)}
    if saved <= triggers.saves:
        return _rejected(diagnosis, text, f"{told}; more than {triggers.saves:.0%} is worth a move")
    return Diagnosis(
        "replan",
        "traffic_saved",
        f"by a plan for the traffic that was measured {told}",
        k.plan.rate_tps,
        {**diagnosis.evidence, "traffic": evidence},
        diagnosis.alternatives,
    )


# ── both ────────────────────────────────────────────────────────────────────────────────────────


def _tried(turn: Turn, members: Membership, reason: str) -> tuple[PlanChoice | None, str]:
    """(what would be done now for the rate of the plan in force, why there is nothing)."""
    k = turn.knowledge
    assert k.plan is not None
    try:
        choice = choose(question(k, members, k.plan.rate_tps, reason), planned_beside(turn))
    except HeadgateError as error:
        return None, error.what
    if choice.action != "enact" or choice.plan is None:
        return None, choice.text
    if choice.degraded:
        return None, choice.degraded
    if choice.asked and reason == "traffic_saved":
        return None, f"it needs {', '.join(vm.vm for vm in choice.asked)} besides"
    return choice, ""


def _rejected(diagnosis: Diagnosis, text: str, why: str) -> Diagnosis:
    return replace(
        diagnosis, alternatives=(*diagnosis.alternatives, f"{text}: another placement rejected: {why}")
    )
