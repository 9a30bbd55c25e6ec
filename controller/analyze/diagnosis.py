"""Exactly one diagnosis per tick, by priority; each says what else was considered and why not. Pure.

This is the only place that says what comes first:

 1 frozen            the controller itself was stalled: all look dead, so nothing is judged
 2 membership        slot_quarantined, vm_lost, vm_drained, vm_joined: passed in, they read no window
 3 unknown           too many samples missing, or a VM is silent or makes up for that
 3a link_cut         two VMs do not reach each other: a plan without one of them, unless each keeps what only it has
 3b link_slow        unstable, and a way between two VMs takes far longer than usual
 4 overloaded        unstable though no more is offered than planned for: the models are too high
 5 rate_changed      up
 6 rate_changed, over_provisioned   down
 7 latency_violated
 8 drift             measured far from predicted: reported only
 9 fine

Where none of these calls for a plan, the findings of others are asked, in the order in which they are given: first
code, first rows and unread events (`Findings.idle`), then models (`Findings.models`, which also take the place of
4: so wrong models look), then the placement (`Findings.placement`, where nothing is worse than 4, 7, 8 or 9). But for
the placement they are asked too where nothing comes of the plan that is called for (`Findings.besides`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from headgate.controller.knowledge.diagnoses import Demand, Diagnosis, Reason, Residual, Stability, Violation
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.wording import significant

CONFIRM_S = 8.0  # a plan is judged once it has been in force this long: 2 s to settle, 6 s of evidence
SHORTFALL_MOST = 1.5  # a plan is raised at most so much over the demand when models are too high
WORTH = 1.05  # a plan for less than 5 % more is not worth a change
LATENCY_AGAIN_S = 30.0  # after a plan, before another is made for a latency constraint
LATENCY_STEP = 1.25  # more headroom for a violated latency constraint
BUSY_SHARE = 0.7  # above it a task's rows wait for it, and more threads shorten the wait
DRIFT = {"rate": 0.2, "cpu": 0.15, "memory": 0.1}  # rate: relative; fractions of a slot: absolute
ONCE_USED = 0.9  # of the plan: the rate was once what the plan was made for


class DiagnosisInput(msgspec.Struct, frozen=True):
    """What a diagnosis is made from. Names of lost, draining and joined VMs and quarantined slots are those that
    the plan in force does not take into account yet; of VMs that are shared, single slots (`vm1/2`) drain and join.

    in_force_s: how long the plan has been in force; None while one is being enacted.
    frozen: why nothing may be judged. held: why no plan may be made. limit_tps: the highest rate that
    fits the slots that there are or may be had, when the plan in force is that. capped: as much is read as may be,
    and done. cut: which VMs do not reach each other. slow: between which it takes far longer than usual. silent: which
    VM is not heard, or was not and makes up for it; or which thread waits for a service."""

    window: MeasuredWindow
    stability: Stability
    demand: Demand
    planned_tps: float
    in_force_s: float | None
    residuals: tuple[Residual, ...] = ()
    violations: tuple[Violation, ...] = ()
    quarantined: tuple[Slot, ...] = ()
    lost: tuple[str, ...] = ()
    draining: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    limit_tps: float | None = None
    frozen: str = ""
    held: str = ""
    capped: bool = False
    cut: str = ""
    slow: str = ""
    silent: str = ""


Finding = Callable[[], Diagnosis | None]
BY_LINKS = ("link_cut", "link_slow")
LEISURE = ("fine", "drift", "overloaded", "latency_violated")  # found, and nothing is to be done for it


@dataclass(frozen=True, slots=True)
class Findings:
    """What those find who know more than `DiagnosisInput`; each is asked when nothing before it calls for a plan.
    placement: the diagnosis, or a plan in its place; cut: likewise, where two VMs do not reach each other."""

    idle: tuple[Finding, ...] = ()
    models: tuple[Finding, ...] = ()
    placement: Callable[[Diagnosis], Diagnosis] | None = None
    cut: Callable[[Diagnosis], Diagnosis] | None = None

    def besides(self, found: Diagnosis) -> tuple[Finding, ...]:
        """Those to ask where nothing comes of the plan that was called for."""
        return self.idle if found.reason in BY_LINKS else (*self.idle, *self.models)


def diagnose(given: DiagnosisInput, findings: Findings = Findings()) -> Diagnosis:
    """The first that applies; see the module's text for their order."""
    found = _by_rules(given)
    if findings.cut is not None and found.reason == "link_cut":
        found = _held(given, findings.cut(found))
    if found.kind == "none":
        found = _first(findings.idle) or found
    if found.reason in BY_LINKS:
        return found  # models and placement are as good as they were
    if found.kind == "none" or found.reason == "overloaded":
        found = _first(findings.models) or found
    if findings.placement is not None and found.kind == "none" and found.reason in LEISURE:
        found = findings.placement(found)
    return found


def _first(findings: tuple[Finding, ...]) -> Diagnosis | None:
    return next((found for finding in findings if (found := finding()) is not None), None)


def _by_rules(given: DiagnosisInput) -> Diagnosis:
    rejected: list[str] = []
    for rule in (_frozen, _membership, _unknown, _cut, _slow, _overloaded, _up, _down, _latency, _drift):
        if (found := rule(given, rejected)) is not None:
            return _held(given, found)
    text = f"fine: {given.demand.text}, planned {given.planned_tps:,.1f} rows/s; {given.stability.text}"
    return _nothing(given, "fine", text, rejected)


def _replan(
    given: DiagnosisInput, reason: Reason, text: str, rate_tps: float, rejected: list[str]
) -> Diagnosis:
    text = f"{text}: plan for {rate_tps:,.1f} rows/s"
    return Diagnosis("replan", reason, text, rate_tps, _evidence(given), tuple(rejected))


def _nothing(given: DiagnosisInput, reason: Reason, text: str, rejected: list[str]) -> Diagnosis:
    return Diagnosis("none", reason, text, None, _evidence(given), tuple(rejected))


def _held(given: DiagnosisInput, found: Diagnosis) -> Diagnosis:
    if found.kind == "none" or not given.held:
        return found
    rejected = (*found.alternatives, f"{found.text} rejected: {given.held}")
    text = f"{found.text} – held back: {given.held}"
    return Diagnosis("none", found.reason, text, None, found.evidence, rejected)


def _frozen(given: DiagnosisInput, rejected: list[str]) -> Diagnosis | None:
    if not given.frozen:
        return None
    return _nothing(given, "frozen", f"nothing is judged: {given.frozen}", rejected)


def _membership(given: DiagnosisInput, rejected: list[str]) -> Diagnosis | None:
    rate_tps = _rate_needed(given)
    if given.quarantined:
        slots = ", ".join(map(str, given.quarantined))
        text = f"slot {slots} is quarantined: its worker crashed too often"
        return _replan(given, "slot_quarantined", text, rate_tps, rejected)
    if given.lost:
        return _replan(given, "vm_lost", f"VM {', '.join(given.lost)} is lost", rate_tps, rejected)
    if given.draining:
        text = f"{_named(given.draining)} shall be empty"
        return _replan(given, "vm_drained", text, rate_tps, rejected)
    if not given.joined:
        return None
    joined = f"{_named(given.joined)} joined"
    if given.limit_tps is None or rate_tps <= given.planned_tps:
        rejected.append(
            f"{joined}, rejected: the plan in force is for all of {given.planned_tps:,.1f} rows/s"
        )
        return None
    return _replan(
        given, "vm_joined", f"{joined}, only {given.planned_tps:,.1f} rows/s were planned", rate_tps, rejected
    )


def _named(names: tuple[str, ...]) -> str:
    """VMs, and slots of VMs (`vm1/2`)."""
    kinds = {"VM": [n for n in names if "/" not in n], "slot": [n for n in names if "/" in n]}
    return " and ".join(f"{kind} {', '.join(some)}" for kind, some in kinds.items() if some)


def _rate_needed(given: DiagnosisInput) -> float:
    """The rate to plan for when slots come or go: the plan's, unless the demand has left it."""
    if given.demand.direction == "down":
        return given.demand.target_tps
    return max(given.planned_tps, given.demand.target_tps)


def _unknown(given: DiagnosisInput, rejected: list[str]) -> Diagnosis | None:
    window = given.window
    if given.silent:
        return _nothing(given, "unknown", f"unknown: {given.silent}", rejected)
    if window.is_complete:
        return None
    text = f"unknown: only {window.complete:.0%} of the samples of the last {window.seconds:g} s are there"
    return _nothing(given, "unknown", text, rejected)


def _cut(given: DiagnosisInput, rejected: list[str]) -> Diagnosis | None:
    if not given.cut:
        return None
    return _nothing(given, "link_cut", given.cut, rejected)


def _slow(given: DiagnosisInput, rejected: list[str]) -> Diagnosis | None:
    """Rows wait for the way, not for threads: more of them would wait for it too."""
    if not given.slow or given.stability.verdict != "unstable":
        return None
    text = f"{given.slow}; more threads would wait for it too: mend it, or `headgate drain` one of the two"
    return _nothing(given, "link_slow", f"{text}; {given.stability.text}", rejected)


def _overloaded(given: DiagnosisInput, rejected: list[str]) -> Diagnosis | None:
    """The planned rate is not reached: the models' rates are too high by about planned / done."""
    stable, demand, planned_tps = given.stability, given.demand, given.planned_tps
    if stable.verdict != "unstable" or demand.direction == "up" or demand.rate_tps > planned_tps:
        return None
    if given.in_force_s is None or given.in_force_s < CONFIRM_S:
        rejected.append(f"overloaded rejected: {_age(given)} of {CONFIRM_S:g} s; {stable.text}")
        return None
    if given.capped:
        rejected.append(f"overloaded rejected: no more may be read, and what is read is done; {stable.text}")
        return None
    done_tps = stable.out_in * demand.rate_tps
    factor = min(SHORTFALL_MOST, max(1.0, planned_tps / done_tps)) if done_tps > 0 else SHORTFALL_MOST
    rate_tps = demand.target_tps * factor
    text = (
        f"overloaded: {demand.rate_tps:,.1f} rows/s offered, {done_tps:,.1f} done, {planned_tps:,.1f} planned; "
        f"{stable.text}; {demand.target_tps:,.1f} rows/s × {factor:.2f}"
    )
    if no := _no_more(given, rate_tps):
        rejected.append(f"a plan for {rate_tps:,.1f} rows/s rejected: {no}")
        return _nothing(given, "overloaded", f"{text}, but {no}", rejected)
    return _replan(given, "overloaded", text, rate_tps, rejected)


def _no_more(given: DiagnosisInput, rate_tps: float) -> str:
    """Why a plan for `rate_tps` would be no better than the present one."""
    if given.limit_tps is not None and given.planned_tps >= given.limit_tps / WORTH:
        return f"{given.limit_tps:,.1f} rows/s is the most that fits the slots there are"
    if rate_tps < given.planned_tps * WORTH:
        return f"{given.planned_tps:,.1f} rows/s are planned already"
    return ""


def _up(given: DiagnosisInput, rejected: list[str]) -> Diagnosis | None:
    demand = given.demand
    if demand.direction != "up":
        rejected.extend(no for no in demand.rejected if no.startswith("scale up"))
        return None
    if no := "a plan is being enacted" if given.in_force_s is None else _no_more(given, demand.target_tps):
        rejected.append(f"scale up to {demand.target_tps:,.1f} rows/s rejected: {no}")
        return None
    return _replan(given, "rate_changed", demand.text, demand.target_tps, rejected)


def _down(given: DiagnosisInput, rejected: list[str]) -> Diagnosis | None:
    demand = given.demand
    if demand.direction != "down":
        rejected.extend(no for no in demand.rejected if no.startswith("scale down"))
        return None
    no = "a plan is being enacted" if given.in_force_s is None else ""
    if not no and given.stability.verdict in ("unstable", "catching_up"):
        no = given.stability.text
    if no:
        rejected.append(f"scale down to {demand.target_tps:,.1f} rows/s rejected: {no}")
        return None
    headroom = float(demand.evidence["headroom"])
    used = max(_offered_rates(given.window), default=0.0) * headroom >= ONCE_USED * given.planned_tps
    return _replan(
        given, "rate_changed" if used else "over_provisioned", demand.text, demand.target_tps, rejected
    )


def _offered_rates(window: MeasuredWindow) -> list[float]:
    """Offered rates over seconds of the history."""
    offered, at_s = window.progress.offered[::2], window.progress.at_s[::2]
    pairs = zip(offered, offered[1:], at_s, at_s[1:], strict=False)
    return [(b - a) / (t - s) for a, b, s, t in pairs]


def _latency(given: DiagnosisInput, rejected: list[str]) -> Diagnosis | None:
    if not given.violations:
        return None
    worst = max(given.violations, key=lambda v: v.measured_ms / v.limit_ms)
    text = (
        f"latency along {' → '.join(worst.path)} is {worst.measured_ms:.1f} ms, limit {worst.limit_ms:g} ms"
    )
    rate_tps = min(LATENCY_STEP * given.planned_tps, SHORTFALL_MOST * given.demand.target_tps)
    if no := _why_not_for_latency(given, worst, rate_tps):
        rejected.append(f"a plan for {rate_tps:,.1f} rows/s rejected: {no}")
        return _nothing(given, "latency_violated", f"{text}; {no}", rejected)
    return _replan(given, "latency_violated", text, rate_tps, rejected)


def _why_not_for_latency(given: DiagnosisInput, worst: Violation, rate_tps: float) -> str:
    if given.in_force_s is None or given.in_force_s < LATENCY_AGAIN_S:
        return f"{_age(given)} of {LATENCY_AGAIN_S:g} s"
    if worst.waits_for:
        return f"first without a plan: {worst.waits_for}"
    if worst.busiest < BUSY_SHARE:
        return f"its busiest task is busy {worst.busiest:.0%} of the time: more threads would not help"
    return _no_more(given, rate_tps)


def _drift(given: DiagnosisInput, rejected: list[str]) -> Diagnosis | None:
    """The worst residual, once the window lies wholly within the plan's rollout."""
    if given.in_force_s is None or given.in_force_s < given.window.seconds + CONFIRM_S:
        return None
    worst = max(given.residuals, key=_off, default=None)
    if worst is None or _off(worst) <= 1.0:
        return None
    text = (
        f"drift: {worst.what} of {worst.where} is {significant(worst.measured, 3)}, "
        f"predicted {significant(worst.predicted, 3)} (× {worst.ratio:.2f})"
    )
    return _nothing(given, "drift", text, [*rejected, "a plan for it rejected: demand and plan agree"])


def _off(residual: Residual) -> float:
    """How far off a residual is, 1 = just worth a report."""
    off = residual.ratio - 1 if residual.what == "rate" else residual.measured - residual.predicted
    return abs(off) / DRIFT[residual.what]


def _age(given: DiagnosisInput) -> str:
    if given.in_force_s is None:
        return "a plan is being enacted, 0 s"
    return f"the plan has been in force for {given.in_force_s:.1f} s"


def _evidence(given: DiagnosisInput) -> dict[str, Any]:
    """Plain values: numbers, texts and dicts of them."""
    window = given.window
    return {
        "demand": given.demand.evidence,
        "stability": {k: v for k, v in msgspec.structs.asdict(given.stability).items() if k != "text"},
        "planned_tps": given.planned_tps,
        "in_force_s": given.in_force_s,
        "limit_tps": given.limit_tps,
        "complete": window.complete,
        "window_s": window.seconds,
        "emitted_tps": window.emitted_tps,
        "acked_tps": window.acked_tps,
        "backlog": window.backlog,
        "latency_ms": {"p50": window.latency.p50_ms, "p99": window.latency.p99_ms},
        "residuals": {f"{r.what} {r.where}": round(r.ratio, 4) for r in given.residuals if _off(r) > 1.0},
    }
