"""`headgate whatif`: what a rate needs, what it costs, what breaks first, and where the next step is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from controller.knowledge.plans import usd_per_hour
from controller.offline.answers import flat, refuse_picture, short_sizes, sizes_text, slot_counts, supply_of
from controller.offline.options import asked, planner_options
from controller.offline.rate_list import rates_of
from controller.offline.waiting import waited
from controller.offline.whatif_words import sentences_of
from topology_runtime.output import Format, emit, format_options

if TYPE_CHECKING:
    from controller.knowledge.plans import Plan
    from controller.offline.answers import Row
    from controller.plan.outlook import Comparison, Outlook, Reach

SCHEMA = "headgate/whatif/v1"


@click.command()
@planner_options
@click.option("--rates", metavar="FROM:TO:STEP", help="Input rates in tuples/s; also a list: 50,100,200.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: .svg or .png.")
@format_options
def whatif(output: Format, plot: Path | None, **options: Any) -> None:
    """What do I need, what will it cost, what breaks first? For each of some input rates.

    Without --rates: ten rates, up to what about 40 slots carry.
    """
    from controller.plan.outlook import HOURS_PER_MONTH, outlook, step_for, usual_rates

    given = rates_of(options["rates"]) if options["rates"] is not None else None
    refuse_picture(plot)
    question = asked(options)
    supply, fixed = supply_of(question), question.acquire is None
    rates = given or usual_rates(supply)
    rows = [row_of(outlook(supply, rate)) for rate in waited(rates, "planning")]
    document: Row = {
        "schema": SCHEMA,
        "topology": question.topology.name,
        "allocator": question.request.allocator,
        "mapper": question.request.mapper,
        "routing": question.request.routing,
        "interference": question.request.interference,
        "fixed": fixed,
        "hours_per_month": HOURS_PER_MONTH,
        "rate_step_tps": min(step_for(rate) for rate in rates),
        "rows": rows,
        "answers": sentences_of(rows, fixed),
    }
    shown = {"table": for_people, "csv": flat}.get(output)
    emit(output, document, [shown(row) for row in rows] if shown else rows)
    if output == "table":
        for sentence in document["answers"]:
            click.echo(f"\n{sentence}")
    if plot is not None:
        from controller.offline.pictures import whatif_picture

        whatif_picture(rows, plot)


def row_of(found: Outlook) -> Row:
    """A rate as JSON has it; without a plan everything but the reason is null."""
    from controller.plan.outlook import HOURS_PER_MONTH

    plan, limit = found.plan, found.limit
    cost = usd_per_hour(plan.vms) if plan else None
    return {
        "rate_tps": found.rate_tps,
        "slots": slot_counts(plan) if plan else None,
        "vms": sizes_text(plan.vms) if plan else None,
        "usd_per_hour": cost,
        "usd_per_month": round(cost * HOURS_PER_MONTH, 2) if cost is not None else None,
        "predicted_tps": plan.prediction.rate_tps if plan else None,
        "predicted_low_tps": plan.prediction.rate_low_tps if plan else None,
        "predicted_high_tps": plan.prediction.rate_high_tps if plan else None,
        "headroom_tps": round(plan.prediction.rate_tps - found.rate_tps, 6) + 0.0 if plan else None,
        "limited_by": limit.task if limit else None,
        "limited_by_slot": limit.slot if limit else None,
        "limit": msgspec.to_builtins(limit) if limit else None,
        "same_slots_up_to_tps": found.same_slots.rate_tps if found.same_slots else None,
        "same_slots": reach_row(found.same_slots) if found.same_slots else None,
        "more_slots": reach_row(found.more_slots) if found.more_slots else None,
        "baseline": baseline_row(found.baseline, plan) if found.baseline and plan else None,
        "reason": found.reason,
    }


def reach_row(reach: Reach) -> Row:
    """So many slots, their cost, and the highest rate that plans on them."""
    row: Row = msgspec.to_builtins(reach)
    return {**row, "vms": sizes_text(reach.vms), "carried_tps": reach.carried_tps}


def baseline_row(cell: Comparison, plan: Plan) -> Row:
    """What the baseline takes for the same rate and what the plan saves against it."""
    other, cost = cell.plan, usd_per_hour(plan.vms)
    theirs = usd_per_hour(other.vms) if other else None
    return {
        "pair": cell.pair,
        "same_pair": cell.pair == f"{plan.allocator}+{plan.mapper}",
        "slots": other.slots.total if other else None,
        "usd_per_hour": theirs,
        "predicted_tps": other.prediction.rate_tps if other else None,
        "short_tps": round(max(0.0, plan.rate_tps - other.prediction.rate_tps), 6) if other else None,
        "saved_slots": other.slots.total - plan.slots.total if other else None,
        "saved_usd_per_hour": round(theirs - cost, 6) if theirs is not None else None,
        "saved_part": 1 - cost / theirs if theirs else None,
        "reason": cell.reason,
    }


def for_people(row: Row) -> Row:
    """A row of the table."""
    baseline, more = row["baseline"] or {}, row["more_slots"] or {}
    saved = baseline.get("saved_part")
    shown = {
        "rate_tps": row["rate_tps"],
        "slots": _of_total(row["slots"]) if row["slots"] else None,
        "vms": short_sizes(row["vms"]) if row["vms"] else None,
        "usd/h": row["usd_per_hour"],
        "usd/month": row["usd_per_month"],
        "predicted_tps": row["predicted_tps"],
        **_interval(row),
        "headroom_tps": row["headroom_tps"],
        "breaks_first": f"{row['limited_by']} on {row['limited_by_slot']}" if row["limited_by"] else None,
        "up_to_tps": row["same_slots_up_to_tps"],
        "next_up_to_tps": more.get("rate_tps"),
        "saves": f"{saved:.0%}" if saved is not None else None,
    }
    return shown if row["reason"] is None else {**shown, "no_plan": row["reason"]}


def _interval(row: Row) -> Row:
    """A column of its own when the models carry the spread of their measurements."""
    low, high = row["predicted_low_tps"], row["predicted_high_tps"]
    return {} if low is None or high is None else {"between_tps": f"{low:.4g} … {high:.4g}"}


def _of_total(counts: Row) -> int | str:
    """Slots that are used, and of how many if not all are."""
    used, total = counts["used"], counts["total"]
    return total if used == total else f"{used} of {total}"
