"""Plans and predictions as rows for tables and CSV, and as sentences for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from headgate.controller.knowledge.plans import Placement, Plan, Prediction, usd_per_hour
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.faults.words import counted, significant

Row = dict[str, Any]


def slot_rows(placement: Placement, prediction: Prediction) -> list[Row]:
    """One row per slot with threads: who is in it, its CPU and memory."""
    threads: dict[tuple[str, int], dict[str, int]] = {}
    full = set()
    for bundle in placement.bundles:
        at = bundle.slot.vm, bundle.slot.number
        threads.setdefault(at, {})[bundle.task] = bundle.threads
        if bundle.full:
            full.add(at)
    rows = []
    for use in prediction.slots:
        at = use.vm, use.slot
        row = {"vm": use.vm, "slot": use.slot, "threads": threads.get(at, {}), "full": at in full}
        rows.append({**row, "cpu": use.cpu, "memory": use.memory})
    return rows


def readable_slots(rows: Sequence[Row]) -> list[Row]:
    """The same rows for people: `vm1/0`, `blob 50, table 20`, per cent."""
    return [
        {
            "slot": f"{row['vm']}/{row['slot']}",
            "threads": ", ".join(f"{task} {count}" for task, count in row["threads"].items())
            + (" (full bundle)" if row["full"] else ""),
            "cpu": f"{row['cpu']:.0%}",
            "memory": f"{row['memory']:.0%}",
        }
        for row in rows
    ]


def task_rows(plan: Plan) -> list[Row]:
    """What was allocated to each task, in words of bundles where MBA made them."""
    return [
        {
            "task": task.task,
            "rate_tps": task.rate_tps,
            "threads": task.threads,
            "bundles": _bundles(task.full_bundles, task.bundle_threads, task.rest_threads, task.static),
            "cpu_slots": task.cpu_slots,
            "memory_slots": task.memory_slots,
        }
        for task in plan.allocation.tasks
    ]


def vm_rows(plan: Plan) -> list[Row]:
    """The VMs with what they cost and what is used of them."""
    uses = {use.vm: use for use in plan.prediction.vms}
    return [
        {
            "vm": vm.vm,
            "slots": vm.slots,
            "rack": vm.rack,
            "usd_per_hour": vm.usd_per_hour,
            "cpu_slots": uses[vm.vm].cpu if vm.vm in uses else 0.0,
            "memory_slots": uses[vm.vm].memory if vm.vm in uses else 0.0,
        }
        for vm in plan.vms
    ]


def headline(plan: Plan) -> str:
    """The plan in a sentence."""
    slots, made = plan.slots, f"{plan.allocator}+{plan.mapper}, {plan.routing}"
    added = f", {slots.extra} more than estimated" if slots.extra else ""
    unused = f", {slots.total - slots.used} of them empty" if slots.total > slots.used else ""
    gap = plan.allocation.gap
    if gap is not None:
        added += ", no fewer do" if gap <= 0 else f", at most {gap:.1%} of them too many"
    return (
        f"{plan.topology} at {significant(plan.rate_tps, 6)} tuples/s ({made}): "
        f"{counted(slots.total, 'slot')}{unused}{added} "
        f"on {vms_words(plan.vms)}, ${usd_per_hour(plan.vms):g} per hour; {carries(plan.prediction)}"
    )


def carries(prediction: Prediction) -> str:
    """What it supports and why no more."""
    text = f"carries {significant(prediction.rate_tps, 6)} tuples/s"
    if (sure := prediction.sure) is not None:
        text += f", {significant(sure.rate_tps, 6)} of them with a probability of {sure.told} at least"
    if prediction.rate_low_tps is not None and prediction.rate_high_tps is not None:
        likely = f", likely {significant(prediction.likely_tps)}" if prediction.likely_tps is not None else ""
        low, high = significant(prediction.rate_low_tps), significant(prediction.rate_high_tps)
        text += f" (between {low} and {high} by its models{likely})"
    if prediction.limited_by is None:
        return f"{text}; nothing that has a model limits it"
    at = f" in slot {prediction.limited_by_slot}" if prediction.limited_by_slot else ""
    return f"{text}, limited by {prediction.limited_by}{at}"


def vms_words(vms: Sequence[Vm]) -> str:
    """`3 VMs (2 × 4 + 2 slots)`."""
    sizes = Counter(vm.slots for vm in vms)
    parts = (
        f"{count} × {slots}" if count > 1 else f"{slots}"
        for slots, count in sorted(sizes.items(), reverse=True)
    )
    return f"{counted(len(vms), 'VM')} ({' + '.join(parts)} slots)"


def _bundles(full: int, size: int, rest: int, static: bool) -> str:
    if static:
        return "fixed size"
    parts = [f"{full} × {size}"] if full else []
    return " + ".join([*parts, *([str(rest)] if rest else [])])
