"""From runs and what the analysis says of their steps to data: each cell's plan, stable rate, slots and latency.

The stable rate lies between the last step that kept up and the next one; we take their geometric mean. Both, and every
step, are in the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

from msgspec.structs import asdict

from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import WORKER, Model
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.plan.predict.slot_fit import resident_memory
from headgate.lab.predictions.prediction_scores import quantile, r2
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology

Data = dict[str, Any]
HISTOGRAM_SHARE = 1e-4  # of the tuples: thinner bins are not drawn


def plan_facts(plan: Plan) -> Data:
    """What the page says of a plan."""
    return {
        "planned_tps": plan.rate_tps,
        "predicted_tps": plan.prediction.rate_tps,
        "limited_by": plan.prediction.limited_by,
        "limited_by_slot": plan.prediction.limited_by_slot,
        "slots": asdict(plan.slots),
        "placement": {str(slot): threads for slot, threads in plan.placement.by_slot().items()},
    }


def stable_rate(steps: Sequence[Mapping[str, Any]]) -> Data:
    """`steps` as the analysis has them, in their order: the last that kept up, the next one, what lies between.
    actual_tps None: none kept up. bounded: a higher step was seen not to keep up. speed: of the machine in the steps
    that the actual rate comes from."""
    kept = [n for n, step in enumerate(steps) if step["stable"]]
    if not kept:
        return {
            "actual_tps": None, "low_tps": None, "high_tps": None, "bounded": False, "step": None, "speed": None,
        }  # fmt: skip
    low, after = steps[kept[-1]], steps[kept[-1] + 1 :]
    failed = [s for s in after if s["stable"] is False and s["offered_tps"] > low["offered_tps"]]
    high_tps = min((s["offered_tps"] for s in failed), default=None)
    both = [low, *(s for s in failed if s["offered_tps"] == high_tps)]
    actual = math.sqrt(low["offered_tps"] * high_tps) if high_tps else low["offered_tps"]
    return {
        "actual_tps": actual, "low_tps": low["offered_tps"], "high_tps": high_tps, "bounded": bool(high_tps),
        "step": low["step"], "speed": mean(s["speed"] for s in both),
    }  # fmt: skip


def slots_used(
    measured: Sequence[Mapping[str, Any]],
    at_tps: float,
    plan: Plan,
    topology: Topology,
    models: Mapping[str, Model],
    now: Mapping[str, Model],
) -> list[Data]:
    """CPU and memory of each slot, fractions: measured in a step, and predicted at the rate that came through.

    Memory: what a process holds (the bare worker and what its tasks add); what source and sink reserve is no
    prediction and is left out. `now`: the models brought to the speed that the machine had."""
    found = predict(topology, models, plan.placement, plan.vms, at_tps, routing=plan.routing)
    at_speed = predict(topology, now, plan.placement, plan.vms, at_tps, routing=plan.routing)
    cpu_now = {(use.vm, use.slot): use.cpu for use in at_speed.slots}
    held = resident_memory(plan.placement, topology, models)
    worker_bytes = max(float(model.more.get(WORKER, 0.0)) for model in models.values())
    sizes = {vm.vm: vm.slot_memory_bytes for vm in plan.vms}
    seen = {(row["vm"], row["slot"]): row for row in measured}
    rows = []
    for use in found.slots:
        slot, row = Slot(use.vm, use.slot), seen.get((use.vm, use.slot))
        if row is None or row["cpu"] is None:
            continue
        memory = (worker_bytes + held.get(slot, 0.0)) / sizes[use.vm]
        rows.append({
            "vm": use.vm, "slot": use.slot, "cpu": row["cpu"], "cpu_predicted": use.cpu,
            "cpu_predicted_at_speed": cpu_now[use.vm, use.slot],
            "memory": row["memory"], "memory_predicted": memory,
        })  # fmt: skip
    return rows


def latency_facts(step: Mapping[str, Any]) -> Data:
    """Of the last step that kept up; bins of the violin as [from, to, tuples]."""
    total = sum(part["tuples"] for part in step["histogram"]) or 1.0
    bins = [
        [part["from_s"], part["to_s"], part["tuples"]]
        for part in step["histogram"]
        if part["tuples"] >= HISTOGRAM_SHARE * total
    ]
    return {name: step[name] for name in ("mean_s", "p50_s", "p95_s", "p99_s")} | {"histogram": bins}


# ── how good it was ─────────────────────────────────────────────────────────────────────────────


def rate_scores(cells: Sequence[Data], at_speed: bool = False) -> Data:
    """Of cells with a stable rate: planned, predicted and likely against it. `at_speed`: predicted from models brought
    to the speed that the machine had in the steps that the stable rate comes from."""
    good = [cell for cell in cells if cell["actual_tps"]]
    actual = [float(cell["actual_tps"]) for cell in good]
    found: Data = {
        "n": len(good),
        "low_tps": min(actual, default=None),
        "high_tps": max(actual, default=None),
    }
    for of in ("planned", "predicted", "likely"):
        name = f"{of}_at_speed_tps" if at_speed and of != "planned" else f"{of}_tps"
        said = [float(cell[name]) for cell in good]
        errors = [abs(s - a) / a for s, a in zip(said, actual, strict=True)]
        found[of] = {
            "r2": r2(said, actual),
            "median_error": median(errors) if errors else None,
            "p95_error": quantile(errors, 0.95),
        }
    return found


def use_scores(cells: Sequence[Data], of: str, by_vm: bool, at_speed: bool = False) -> Data:
    """R² and mean error of `of` (cpu or memory), a point per slot or per VM, as fractions of a slot or sums of
    them."""
    points = [point for cell in cells for point in use_points(cell, of, by_vm, at_speed)]
    predicted, actual = [p for p, _ in points], [a for _, a in points]
    error = mean(abs(p - a) for p, a in points) if points else None
    return {"n": len(points), "r2": r2(predicted, actual), "mean_error": error}


def use_points(cell: Data, of: str, by_vm: bool, at_speed: bool = False) -> list[tuple[float, float]]:
    """(predicted, actual)."""
    name = f"{of}_predicted_at_speed" if at_speed else f"{of}_predicted"
    sums: dict[Any, list[float]] = {}
    for row in cell.get("slots_used") or []:
        both = sums.setdefault(row["vm"] if by_vm else (row["vm"], row["slot"]), [0.0, 0.0])
        both[0] += row[name]
        both[1] += row[of]
    return [(p, a) for p, a in sums.values()]


def achieved(cells: Sequence[Data], pair: str) -> Data:
    """Stable rate / planned rate of a pair: the mean over its cells, and the least."""
    of = [c for c in cells if c["pair"] == pair and c["actual_tps"]]
    shares = [cell["actual_tps"] / cell["planned_tps"] for cell in of]
    return {
        "n": len(shares),
        "mean": mean(shares) if shares else None,
        "least": min(shares, default=None),
    }


def cpu_of_slots(cells: Sequence[Data]) -> float | None:
    """Mean CPU of the slots there are, used or not, at the last stable step; None without any."""
    shares = [
        sum(row["cpu"] for row in cell["slots_used"]) / cell["slots"]["total"]
        for cell in cells
        if cell["slots_used"]
    ]
    return mean(shares) if shares else None


def gains(cells: Sequence[Data]) -> list[float]:
    """By how much MBA carries more than LSA, of each shape, mapper and routing that has both: 0.2 for a fifth."""
    actual = {(c["shape"], c["pair"], c["routing"]): c["actual_tps"] for c in cells if c["actual_tps"]}
    return [
        rate / actual[shape, pair.replace("mba", "lsa"), routing] - 1
        for (shape, pair, routing), rate in actual.items()
        if pair.startswith("mba+") and (shape, pair.replace("mba", "lsa"), routing) in actual
    ]


def by_latency(cells: Sequence[Data], key: str) -> list[str]:
    """Shapes, or pairs, by rising median latency: of a shape the median of its cells, of a pair the geometric mean of
    its cells over those of their shapes, since a pair may lack a shape (paper 0, section 8.6, Fig. 13)."""
    cells = [cell for cell in cells if cell.get("latency")]
    of_shape = {
        shape: median(cell["latency"]["p50_s"] for cell in cells if cell["shape"] == shape)
        for shape in {cell["shape"] for cell in cells}
    }
    if key == "shape":
        return sorted(of_shape, key=of_shape.__getitem__)
    parts: dict[str, list[float]] = {}
    for cell in cells:
        parts.setdefault(cell[key], []).append(cell["latency"]["p50_s"] / of_shape[cell["shape"]])
    return sorted(parts, key=lambda one: mean(map(math.log, parts[one])))


def slots_per_rate(cells: Sequence[Data], shape: str, routing: str) -> Data | None:
    """Slots that MBA+SAM and LSA+RSM have for each row/s that they achieve, and the ratio of the two: slots at the
    same achieved rate. None when one of them is missing."""
    found: dict[str, list[float]] = {"lsa+rsm": [], "mba+sam": []}
    for cell in cells:
        if (
            cell["shape"] == shape
            and cell["routing"] == routing
            and cell["pair"] in found
            and cell["actual_tps"]
        ):
            found[cell["pair"]].append(cell["slots"]["total"] / cell["actual_tps"])
    if not all(found.values()):
        return None
    lsa, mba = mean(found["lsa+rsm"]), mean(found["mba+sam"])
    return {
        "shape": shape,
        "lsa_rsm": lsa,
        "mba_sam": mba,
        "ratio": mba / lsa,
        "n": sum(map(len, found.values())),
    }
