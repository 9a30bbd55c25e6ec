"""Measured traffic as knowledge, and the triggers of paper 1's online scheduler (section 3.2). Pure.

A mapper that is online plans again, though rate and VMs are as they were, where a VM's load has been above its bound
for a while, and every so often where a plan made now saves enough of what is said between VMs. What was looked at and
did not do is reported with the diagnosis of that turn. Both plans are judged by the same measured traffic and loads, so
what the model of traffic leaves out (skewed keys) moves nothing to and fro.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from msgspec.structs import asdict, replace

from headgate.controller.analyze.latency_constraints import standings, violations
from headgate.controller.core.background_planning import NotYet, planned_in_background
from headgate.controller.core.decisions import question
from headgate.controller.core.plan_choice import PlanChoice, choose
from headgate.controller.core.profiling import may_plan
from headgate.controller.knowledge.diagnoses import Diagnosis, PathStanding, Stability, Violation
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.controller.models.plans import MeasuredTraffic, Plan, TaskWork, sized
from headgate.controller.plan.predict.vm_links import crossings_of
from headgate.controller.plan.schedulers import MAPPERS
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.wording import counted

# ── Latency constraints in the loop: the workers that manage them are given time before a plan is made for
# one; what they do is reported as events, and an alarm says what they cannot do.

PATIENT_TURNS = 60  # of a second: so long buffers and chains may take
HELPLESS_TURNS = 10  # before there is an alarm


class PathWatch:
    """How long each constraint has stood as it does, in turns of a second."""

    def __init__(self) -> None:
        self.now: tuple[PathStanding, ...] = ()
        self._for: dict[int, int] = {}

    def look(self, turn: Turn, window_of: Callable[[float], MeasuredWindow]) -> tuple[Violation, ...]:
        """Once a turn: the constraints that do not hold."""
        topology = turn.knowledge.topology
        if topology is None or not topology.latency_constraints:
            return ()
        before, self.now = self.now, standings(topology, turn.members.workers.values())
        for number, path in enumerate(self.now):
            same = number < len(before) and before[number].standing == path.standing
            self._for[number] = self._for.get(number, 0) + 1 if same else 0
            if not same:
                self._report(turn, path)
        self._alarm(turn)
        patient = {
            path.path: path
            for number, path in enumerate(self.now)
            if path.standing == "adapting" and self._for[number] < PATIENT_TURNS
        }
        return tuple(
            replace(one, waits_for=_doing(patient[one.path])) if one.path in patient else one
            for one in violations(topology, window_of)
        )

    def _report(self, turn: Turn, path: PathStanding) -> None:
        if path.standing == "adapting":
            turn.event("latency", f"{_name(path)}: {_doing(path)}", path=list(path.path))
        elif path.standing == "held" and (path.shortened or path.chained):
            turn.event("latency", f"{_name(path)}: it holds, {_doing(path)}", path=list(path.path))

    def _alarm(self, turn: Turn) -> None:
        stuck = [
            path
            for number, path in enumerate(self.now)
            if path.standing == "helpless" and self._for[number] >= HELPLESS_TURNS
        ]
        if stuck:
            texts = [f"{_name(path)}: {path.text}; neither buffers nor chains can help" for path in stuck]
            turn.alarm("latency", "; ".join(texts))
        elif all(path.standing == "held" for path in self.now):
            turn.alarm("latency", "", "all latency constraints hold")


def _name(path: PathStanding) -> str:
    return f"{' → '.join(path.path)} within {path.limit_ms:g} ms"


def _doing(path: PathStanding) -> str:
    now = f"{path.most_ms:.0f} ms on the slowest way" if path.most_ms is not None else "not measured yet"
    done = [f"{path.shortened} of {path.channels} buffers leave earlier"] * bool(path.shortened)
    done += [f"{path.chained} threads are chained"] * bool(path.chained)
    return ", ".join([now, *done])


# ── What was measured of traffic, window by window, smoothed. Pure ──────────────────────────────────────

SMOOTH_S = 30.0  # what was measured so long ago counts a third of what is measured now
LEAST_ROWS = 100.0  # emitted in a window; fewer say little

Key = TypeVar("Key")


def traffic_now(window: MeasuredWindow) -> MeasuredTraffic | None:
    """Of one window; None where samples are missing, too few rows came, or none were counted on any edge."""
    rate_tps, edges = window.emitted_tps, window.edges.items()
    if not window.is_complete or rate_tps * window.seconds < LEAST_ROWS:
        return None
    if not any(edge.rate_tps > 0 for _, edge in edges):
        return None
    return MeasuredTraffic(
        window.seconds,
        {ends: edge.rate_tps / rate_tps for ends, edge in edges},
        {
            ends: edge.bytes_per_s / edge.between_slots_tps
            for ends, edge in edges
            if edge.between_slots_tps > 0
        },
        {name: task.work_cores / rate_tps for name, task in window.tasks.items()},
    )


def smoothed(before: MeasuredTraffic | None, window: MeasuredWindow, step_s: float) -> MeasuredTraffic | None:
    """With one window more, `step_s` after the last one. The size of rows that stay within slots now is as it was."""
    now = traffic_now(window)
    if now is None or before is None:
        return now or before
    part = step_s / (SMOOTH_S + step_s) if before.seconds >= SMOOTH_S else step_s / (before.seconds + step_s)
    return MeasuredTraffic(
        before.seconds + step_s,
        _mixed(before.rows, now.rows, part),
        _mixed(before.row_bytes, now.row_bytes, part),
        _mixed(before.work, now.work, part),
    )


def _mixed(before: Mapping[Key, float], now: Mapping[Key, float], part: float) -> dict[Key, float]:
    return {
        key: (1 - part) * before[key] + part * now[key]
        if key in before and key in now
        else {**before, **now}[key]
        for key in {**before, **now}
    }


NS = 1_000_000_000
LOAD_SLACK = 0.05  # so far below the bound a VM must come to be no longer over it
LIGHTER = 0.95  # of the highest load there is now: a plan with more is not worth its moves
AGAIN_S = 30.0  # before a plan for a loaded VM is looked for once more


def take_in(turn: Turn, window: MeasuredWindow) -> None:
    """Know what the window says of traffic, and for mappers that are online of loads."""
    k, now_ns = turn.knowledge, turn.now.mono_ns
    seen = k.traffic
    step_s = min(window.seconds, (now_ns - seen.at_ns) / NS) if seen.at_ns else window.seconds
    seen.measured, seen.at_ns = smoothed(seen.measured, window, step_s), now_ns
    if _is_online(k) and k.plan is not None and window.is_complete:
        _watch_loads(k, vm_loads(window, k.plan), now_ns)


def better_placement(
    turn: Turn, window: MeasuredWindow, verdict: Stability, diagnosis: Diagnosis
) -> Diagnosis:
    """Where nothing else is to be done: a plan to be made for traffic or load, or the diagnosis as it was."""
    k, now_ns = turn.knowledge, turn.now.mono_ns
    seen = k.traffic
    if not _is_online(k) or k.plan is None or not window.is_complete or turn.members.mass_loss:
        return diagnosis
    if not may_plan(k) or seen.measured is None:
        return diagnosis
    since_ns = max(seen.looked_ns, k.in_force_ns)
    try:
        if _is_loaded(k, now_ns):
            diagnosis = _for_load(turn, window, vm_loads(window, k.plan), diagnosis)
            seen.load_looked_ns = now_ns
        elif now_ns - since_ns >= k.settings.triggers.every_s * NS and verdict.verdict == "stable":
            diagnosis = _for_traffic(turn, window, diagnosis)
            seen.looked_ns = now_ns
    except NotYet:  # it is looked at again when there is a plan
        return diagnosis
    return diagnosis


def _is_online(k: Knowledge) -> bool:
    mapper = MAPPERS.get(k.settings.mapper)
    return mapper is not None and mapper.online


# ── load ────────────────────────────────────────────────────────────────────────────────────────


def vm_loads(window: MeasuredWindow, plan: Plan) -> dict[str, float]:
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
    over = max((load - k.settings.triggers.bound_of(vm) for vm, load in loads.items()), default=-1.0)
    if over > 0:
        k.traffic.loaded_since_ns = k.traffic.loaded_since_ns or now_ns
    elif over < -LOAD_SLACK:
        k.traffic.loaded_since_ns = 0


def _is_loaded(k: Knowledge, now_ns: int) -> bool:
    seen, for_ns = k.traffic, k.settings.triggers.load_s * NS
    since_ns = max(seen.loaded_since_ns, k.in_force_ns)
    if not seen.loaded_since_ns or now_ns - since_ns < for_ns:
        return False
    return not seen.load_looked_ns or now_ns - seen.load_looked_ns >= AGAIN_S * NS


def _for_load(turn: Turn, window: MeasuredWindow, loads: dict[str, float], diagnosis: Diagnosis) -> Diagnosis:
    k, triggers = turn.knowledge, turn.knowledge.settings.triggers
    vm = max(loads, key=lambda name: (loads[name] - triggers.bound_of(name), loads[name], name))
    bound = triggers.bound_of(vm)
    seconds = (turn.now.mono_ns - k.traffic.loaded_since_ns) / NS
    text = f"VM {vm} uses {loads[vm]:.0%} of its slots' CPU, above {bound:.0%} for {seconds:.0f} s"
    choice, why = _tried(turn, "vm_loaded")
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
    evidence |= {"load_bound": bound, "seconds": seconds}
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


def _for_traffic(turn: Turn, window: MeasuredWindow, diagnosis: Diagnosis) -> Diagnosis:
    k, triggers = turn.knowledge, turn.knowledge.settings.triggers
    text = f"{triggers.every_s:g} s are over since traffic was looked at"
    choice, why = _tried(turn, "traffic_saved")
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
    change = f"of {now:,.0f} {unit} between VMs {then:,.0f} are left, {saved:.0%} less"
    measured = sum(edge.between_vms_bytes_per_s for edge in window.edges.values())
    evidence = {"before": asdict(before), "after": asdict(after), "saved": round(saved, 4)}
    evidence |= {"saves": triggers.saves, "measured_bytes_per_s": round(measured, 1)}
    if saved <= triggers.saves:
        return _rejected(diagnosis, text, f"{change}; more than {triggers.saves:.0%} is worth a move")
    return Diagnosis(
        "replan",
        "traffic_saved",
        f"by a plan for the traffic that was measured {change}",
        k.plan.rate_tps,
        {**diagnosis.evidence, "traffic": evidence},
        diagnosis.alternatives,
    )


# ── both ────────────────────────────────────────────────────────────────────────────────────────


def _tried(turn: Turn, reason: str) -> tuple[PlanChoice | None, str]:
    """(what would be done now for the rate of the plan in force, why there is nothing)."""
    k = turn.knowledge
    assert k.plan is not None
    try:
        choice = choose(question(k, k.plan.rate_tps, reason), planned_in_background(turn))
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
