"""`headgate compare`: pairs of allocator and mapper side by side, at given rates or at the highest."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from controller.offline.answers import comparison_row, flat, pairs_of, refuse_picture, short_sizes, supply_of
from controller.offline.options import (
    STEP_TPS,
    asked,
    cluster_options,
    rate_of,
    routing_options,
    topology_options,
    weights_option,
)
from controller.offline.rate_list import rates_of
from controller.offline.waiting import waited
from topology_runtime.errors import UsageError
from topology_runtime.output import Format, emit, format_options

if TYPE_CHECKING:
    from controller.offline.answers import Row
    from controller.offline.request import PlanWanted

SCHEMA = "headgate/comparison/v1"


@click.command()
@topology_options
@click.option("--rates", metavar="R,R,…", help="Input rates in tuples/s: 50,100,200 or 100:600:50.")
@click.option("--max-rate", is_flag=True, help="Instead: the highest rate that plans on fixed VMs.")
@click.option("--rate-step", type=float, metavar="S", help=f"… in steps of S (default: {STEP_TPS:g}).")
@click.option(
    "--pairs", metavar="A+M,…", help="Pairs of allocator and mapper (default: the paper's five; all)."
)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: .svg or .png.")
@weights_option
@routing_options
@cluster_options
@format_options
def compare(output: Format, plot: Path | None, **options: Any) -> None:
    """Compare pairs of allocator and mapper: slots, VMs, cost, and what they would carry.

    With --rates a row per pair and rate; with --max-rate and fixed VMs (--vms, --slots) a row per pair at
    the highest rate it plans. What no plan fits is a row with its reason. planned_s: how long the plans took.
    """
    rates = _rates(options)
    pairs = pairs_of(options["pairs"])
    refuse_picture(plot)
    step_tps = rate_of(options["rate_step"], STEP_TPS, "--rate-step")
    question = asked(options)
    if options["max_rate"]:
        question = replace(question, step_tps=step_tps)
    rows = rows_of(question, pairs, rates)
    document = {
        "schema": SCHEMA,
        "topology": question.topology.name,
        "routing": question.request.routing,
        "interference": question.request.interference,
        "fixed": question.acquire is None,
        "rate_step_tps": question.step_tps,
        "rows": rows,
    }
    shown = {"table": for_people, "csv": flat}.get(output)
    emit(output, document, [shown(row) for row in rows] if shown else rows)
    if plot is not None:
        from controller.offline.pictures import comparison_picture

        comparison_picture(rows, plot)


def rows_of(question: PlanWanted, pairs: tuple[str, ...], rates: tuple[float | None, ...]) -> list[Row]:
    """A row per rate and pair, in that order. A rate of None: the one that `question` looks for itself."""
    from controller.plan.scaling import compared

    supply = supply_of(question)
    cells = [(rate, pair) for rate in rates for pair in pairs]
    rows = []
    for rate, pair in waited(cells, "comparing"):
        began_s = time.perf_counter()
        row = comparison_row(compared(supply, pair, rate))
        rows.append({**row, "planned_s": round(time.perf_counter() - began_s, 3)})
    return rows


def for_people(row: Row) -> Row:
    """A row of the table; what a pair lacks shows as N/A."""
    counts = row["slots"] or dict.fromkeys(("estimated", "extra", "total"))
    at = f"{row['limited_by']} on {row['limited_by_slot']}" if row["limited_by"] else None
    shown = {
        "rate_tps": row["rate_tps"],
        "pair": row["pair"],
        **{name: counts[name] for name in ("estimated", "extra", "total")},
        "vms": short_sizes(row["vms"]) if row["vms"] else None,
        "usd_per_hour": row["usd_per_hour"],
        "weighted_tps": row["weighted_tps"],
        "shuffle_tps": row["shuffle_tps"],
        "between_slots": _part(row, "between_slots_tps"),
        "between_vms": _part(row, "between_vms_tps"),
        "limited_by": at,
        "planned_s": row["planned_s"],
    }
    return shown if row["reason"] is None else {**shown, "no_plan": row["reason"]}


def _part(row: Row, name: str) -> str | None:
    """Of all rows on edges, those that leave slots or VMs."""
    return f"{row[name] / row['rows_tps']:.0%}" if row["rows_tps"] else None


def _rates(options: dict[str, Any]) -> tuple[float | None, ...]:
    if (options["rates"] is None) != options["max_rate"]:
        raise UsageError("either --rates or --max-rate must be given", hint="--rates 50,100,200")
    if options["rate_step"] is not None and not options["max_rate"]:
        raise UsageError("--rate-step is for --max-rate")
    if options["max_rate"] and options["vms"] is None and options["slots"] is None:
        raise UsageError("--max-rate needs fixed VMs", hint="headgate compare … --slots 20 --max-rate")
    return (None,) if options["max_rate"] else rates_of(options["rates"])
