"""What `compare`, `whatif` and `explain` share: where slots come from, and plans as rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.knowledge.plans import usd_per_hour
from controller.offline.request import PlanWanted
from topology_runtime.errors import InvalidInput, UsageError

if TYPE_CHECKING:
    from controller.knowledge.plans import Plan
    from controller.plan.planner import PlanRequest
    from controller.plan.scaling import PairAtRate, Supply

Row = dict[str, Any]

OBJECTS = frozenset({"slots", "limit", "same_slots", "more_slots", "baseline"})  # parts of a row, or null


def supply_of(asked: PlanWanted) -> Supply:
    """Every plan is made as `PlanWanted.plan` makes it: verified, and no dearer than allowed. How far slots reach
    is told whatever they cost."""
    from controller.plan.scaling import Supply

    def planned(request: PlanRequest) -> Plan:
        return replace(asked, request=request).plan()

    def highest(request: PlanRequest, step_tps: float) -> Plan:
        return replace(asked, request=request, step_tps=step_tps, max_usd_per_hour=None).plan()

    return Supply(asked.request, planned, highest, asked.sizes, asked.acquire)


def refuse_picture(path: Path | None) -> None:
    """Raises UsageError for a picture that cannot be drawn, before anything is planned."""
    if path is not None:
        from controller.offline.pictures.drawing import format_of

        format_of(path)


def pairs_of(text: str | None) -> tuple[str, ...]:
    """`lsa+rsm,mba+sam` → each pair once; None: those of the paper; `all`: every one. Raises UsageError."""
    from controller.plan.schedulers import PAIRS, pair_of, pairs

    if text is None:
        return PAIRS
    if text == "all":
        return pairs()
    chosen = dict.fromkeys(part.strip() for part in text.split(","))
    faults: list[str] = []
    for pair in chosen:
        try:
            pair_of(pair)
        except InvalidInput as error:
            faults += error.faults
    if faults:
        raise UsageError("--pairs is no list of pairs", faults=faults, hint="--pairs lsa+rsm,mba+sam")
    return tuple(chosen)


def short_sizes(vms: str) -> str:
    """The same for people: many of one size are counted (`12×4,2`)."""
    sizes = vms.split(",")
    if len(sizes) <= 6:
        return vms
    return ",".join(f"{n}×{size}" if n > 1 else size for size, n in Counter(sizes).items())


def comparison_row(cell: PairAtRate) -> Row:
    """A cell as JSON has it; what an infeasible one lacks is null."""
    from controller.plan.outlook_rows import sizes_text, slot_counts

    allocator, mapper = cell.pair.split("+")
    row: Row = {"pair": cell.pair, "allocator": allocator, "mapper": mapper, "rate_tps": cell.rate_tps}
    plan = cell.plan
    return {
        **row,
        "slots": slot_counts(plan.slots) if plan else None,
        "vms": sizes_text(plan.vms) if plan else None,
        "usd_per_hour": usd_per_hour(plan.vms) if plan else None,
        "weighted_tps": cell.weighted_tps,
        "shuffle_tps": cell.shuffle_tps,
        "rows_tps": cell.crossings.rows_tps if cell.crossings else None,
        "between_slots_tps": cell.crossings.between_slots_tps if cell.crossings else None,
        "between_vms_tps": cell.crossings.between_vms_tps if cell.crossings else None,
        "between_vms_bytes_per_s": cell.crossings.between_vms_bytes_per_s if cell.crossings else None,
        "limited_by": plan.prediction.limited_by if plan else None,
        "limited_by_slot": plan.prediction.limited_by_slot if plan else None,
        "reason": cell.reason,
    }


def flat(row: Row) -> Row:
    """A row for CSV: what is an object of its own (`slots`) becomes columns (`slots_total` …)."""
    columns: Row = {}
    for name, value in row.items():
        if isinstance(value, dict):
            columns.update({f"{name}_{key}": part for key, part in value.items()})
        elif value is not None or name not in OBJECTS:
            columns[name] = value
    return columns
