"""Sentences about a run that people see everywhere alike. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headgate.controller.knowledge.run_view import Measuring
from headgate.topology_runtime.wire.run_snapshot import Snapshot
from headgate.topology_runtime.wording import counted

RULES = {
    "start": "the first plan of the run",
    "fine": "nothing is to be done",
    "unknown": "too many samples are missing to judge",
    "frozen": "the controller itself stood still, so nothing is judged",
    "slot_quarantined": "a slot crashed too often and is planned around",
    "thread_failed": "a thread cannot be built where it is",
    "thread_costly": "rows of a thread cost more than those of its siblings",
    "out_of_memory": "a slot ran out of memory",
    "vm_lost": "a VM is gone",
    "vm_drained": "an operator drains a VM",
    "code_replaced": "other code takes the place of what runs",
    "vm_joined": "a VM is new",
    "link_cut": "two VMs do not reach each other",
    "link_slow": "rows wait for a link between two VMs that is slow",
    "overloaded": "it does not keep up though no more is offered than planned for",
    "rate_changed": "the offered rate is not the one planned for",
    "over_provisioned": "much less is offered than planned for",
    "latency_violated": "a latency constraint does not hold",
    "drift": "measured is far from predicted: reported only",
    "first_rows": "a task that had no model was measured on its first rows",
    "model_off": "a model was corrected by what its rows really cost",
    "refitted": "a model was corrected by an analysis of the run",
    "events_unread": "events were accepted on a VM where nobody reads their source",
    "vm_loaded": "a VM uses nearly all of its slots' CPU, and another placement lightens it",
    "vm_speed": "a VM turned slower or faster than the others, by what the same rows cost there",
    "traffic_saved": "another placement saves much of what is said between VMs",
    "operator": "an operator asked for it",
    "rollback": "an operator brought an earlier plan back",
    "rolled_back": "the plan before it did not prove itself",
}


def rule_of(trigger: str) -> str:
    return RULES.get(trigger, trigger.replace("_", " "))


def measuring_words(found: Measuring) -> str:
    """`doubles: 1 of 3 tasks measured, plus in vm2/0 (2 of 4 points); about 12 s`: how far a submission is."""
    done = sum(one.state == "measured" for one in found.tasks)
    at_work = [
        f"{one.task} in {one.slot}" + (f" ({one.done} of {one.of} points)" if one.of else "")
        for one in found.tasks
        if one.state == "measuring"
    ]
    parts = ", ".join([f"{done} of {counted(len(found.tasks), 'task')} measured", *at_work])
    left = (
        f"; about {found.left_s:.0f} s" if found.left_s is not None else "; no host that can measure is there"
    )
    return f"{found.topology}: {parts}{left}"


def header_of(now: Snapshot, slots_total: int, measuring: Measuring | None = None) -> str:
    """`stable, slope +0.2 ms/s, plan #17, 13 of 20 slots, 212 rows/s in, headroom 31 rows/s, next bottleneck parse
    on vm2/3`. What is not known is left out."""
    plan, rates = now.plan, now.rates
    told = plan is not None and now.stable.verdict != "unknown"
    if measuring is not None:
        return f"measuring {measuring_words(measuring)}"
    parts = [(now.stable.text or now.stable.verdict) if told else now.stable.verdict if plan else now.stage]
    if now.slope is not None and now.stable.verdict != "unknown":
        parts.append(f"slope {now.slope * 1000:+.1f} ms/s")
    if plan is not None:
        parts.append(f"plan #{plan.epoch}")
        parts.append(f"{plan.slots.used} of {slots_total} slots")
    if rates.offered_tps is not None:
        parts.append(f"{rates.offered_tps:,.0f} rows/s in")
    if rates.headroom_tps is not None:
        short = rates.headroom_tps < 0
        parts.append(f"{'short of' if short else 'headroom'} {abs(rates.headroom_tps):.0f} rows/s")
    if now.next_bottleneck is not None:
        parts.append(f"next bottleneck {now.next_bottleneck.task} on {now.next_bottleneck.slot}")
    if now.stage not in ("committed", "probation") and plan is not None:
        parts.append(now.stage)
    if now.alarms:
        parts.append(counted(len(now.alarms), "alarm"))
    return ", ".join(parts)


Threads = Mapping[tuple[str, str], int]  # (slot, task) → threads


def diff_of(before: Threads, after: Threads) -> tuple[str, ...]:
    """Lines by slot: `- vm1/2 score×2`, `+ vm2/1 score×2, parse×1`."""
    lines = []
    for slot in dict.fromkeys(slot for slot, _ in sorted([*before, *after])):
        for sign, way in (("-", -1), ("+", 1)):
            tasks = dict.fromkeys(task for s, task in [*before, *after] if s == slot)
            changes = {t: way * (after.get((slot, t), 0) - before.get((slot, t), 0)) for t in tasks}
            moved = [f"{task}×{count}" for task, count in changes.items() if count > 0]
            if moved:
                lines.append(f"{sign} {slot} {', '.join(moved)}")
    return tuple(lines)


# ── Numbers as a picture shows them: few digits, so that what nobody can see changes nothing. Pure ──────

DIGITS = 4


def figure(value: float | None, digits: int = 3) -> float | None:
    """So many significant digits, whole numbers as such; None for what is missing, also NaN and infinity."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() else short


def share(value: float | None) -> float | None:
    """A fraction, to a hundredth."""
    if value is None or not math.isfinite(value):
        return None
    return round(value, 2) + 0.0


def plain(value: Any, name: str = "") -> dict[str, Any]:
    """Nested evidence as one flat object, `demand.offered_tps`; without what is not known."""
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, part in value.items():
            found |= plain(part, f"{name}.{key}" if name else str(key))
        return found
    if isinstance(value, float) and not isinstance(value, bool):
        value = figure(value, 4)
    return {} if value is None else {name: value}


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(v, DIGITS) if isinstance(v, float) else v for name, v in values.items()}
