"""What `compare`, `whatif` and `explain` share: where slots come from, and plans as rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.controller.offline.request import PlanWanted
from headgate.topology_runtime.errors import InvalidInput, UsageError

if TYPE_CHECKING:
    from headgate.controller.knowledge.plans import Plan
    from headgate.controller.plan.planner import PlanRequest
    from headgate.controller.plan.scaling import Supply

Row = dict[str, Any]

OBJECTS = frozenset({"slots", "limit", "same_slots", "more_slots", "baseline"})  # parts of a row, or null


def supply_of(asked: PlanWanted, base: Plan | None = None) -> Supply:
    """Every plan is made as `PlanWanted.plan` makes it: verified, and no dearer than allowed. How far slots reach
    is told whatever they cost. base: the plan in force."""
    from headgate.controller.offline.basing import based_on
    from headgate.controller.plan.scaling import Supply
    from headgate.controller.plan.steady import moves

    if base is not None:
        asked = asked.beside(base)

    def planned(request: PlanRequest) -> Plan:
        return replace(asked, request=request).plan()

    def highest(request: PlanRequest, step_tps: float) -> Plan:
        return replace(asked, request=request, step_tps=step_tps, max_usd_per_hour=None).plan()

    def moved(plan: Plan) -> int:
        assert base is not None
        return moves(based_on(plan, base, asked.topology, asked.request.fixed).placement, base.placement)

    return Supply(
        asked.request, planned, highest, asked.sizes, asked.acquire, moved if base is not None else None
    )


def refuse_picture(path: Path | None) -> None:
    """Raises UsageError for a picture that cannot be drawn, before anything is planned."""
    if path is not None:
        from headgate.controller.offline.pictures.drawing import format_of

        format_of(path)


def pairs_of(text: str | None) -> tuple[str, ...]:
    """`lsa+rsm,mba+sam` → each pair once; None: those of the paper; `all`: every one. Raises UsageError."""
    from headgate.controller.plan.schedulers import PAIRS, pair_of, pairs

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


def flat(row: Row) -> Row:
    """A row for CSV: what is an object of its own (`slots`) becomes columns (`slots_total` …)."""
    columns: Row = {}
    for name, value in row.items():
        if isinstance(value, dict):
            columns.update({f"{name}_{key}": part for key, part in value.items()})
        elif value is not None or name not in OBJECTS:
            columns[name] = value
    return columns
