"""`headgate compare`: pairs of allocator and mapper side by side, at given rates or at the highest."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.controller.offline.answers import flat, pairs_of, refuse_picture, short_sizes, supply_of
from headgate.controller.offline.options import (
    STEP_TPS,
    asked,
    cluster_options,
    margin_option,
    rate_of,
    routing_options,
    search_option,
    topology_options,
    weights_option,
)
from headgate.controller.offline.rate_list import rates_of
from headgate.controller.offline.waiting import waited
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.output import Format, emit, format_options, write_table
from headgate.topology_runtime.patience import clocked

if TYPE_CHECKING:
    from headgate.controller.knowledge.plans import Plan
    from headgate.controller.offline.answers import Row
    from headgate.controller.offline.request import PlanWanted

SPARE = ("limited_by", "extra", "estimated", "vms")  # what a narrow terminal leaves out


@click.command()
@topology_options
@click.option("--rates", metavar="R,R,…", help="Input rates in tuples/s: 50,100,200 or 100:600:50.")
@click.option("--max-rate", is_flag=True, help="Instead: the highest rate that plans on fixed VMs.")
@click.option("--rate-step", type=float, metavar="S", help=f"… in steps of S (default: {STEP_TPS:g}).")
@click.option(
    "--pairs", metavar="A+M,…", help="Pairs of allocator and mapper (default: the paper's five; all)."
)
@click.option("--base", metavar="PLAN.json", help="The plan in force: count the threads that start and end.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: .svg or .png.")
@search_option
@margin_option
@weights_option
@routing_options
@cluster_options
@format_options
def compare(output: Format, plot: Path | None, base: str | None, **options: Any) -> None:
    """Compare pairs of allocator and mapper: slots, VMs, cost, and what they would carry.

    With --rates a row per pair and rate; with --max-rate and fixed VMs (--vms, --slots) a row per pair at
    the highest rate it plans. What no plan fits is a row with its reason. With --base also how many threads start and
    end from that plan to each (moves). planned_s (s): how long the plans took.
    """
    rates = _rates(options)
    pairs = pairs_of(options["pairs"])
    from headgate.controller.files.plan_files import read_base
    from headgate.controller.plan.outlook_rows import comparison_document

    refuse_picture(plot)
    step_tps = rate_of(options["rate_step"], STEP_TPS, "--rate-step")
    question = asked(options)
    if options["max_rate"]:
        question = replace(question, step_tps=step_tps)
    in_force = read_base(base, question.topology) if base is not None else None
    rows = rows_of(question, pairs, rates, in_force)
    document = comparison_document(question.request, rows, question.acquire is None, question.step_tps)
    if output == "table":
        print_rows(rows)
    else:
        emit(output, document, [flat(row) for row in rows] if output == "csv" else rows)
    if plot is not None:
        from headgate.controller.offline.pictures import comparison_picture

        comparison_picture(rows, plot)


def rows_of(
    question: PlanWanted,
    pairs: tuple[str, ...],
    rates: tuple[float | None, ...],
    base: Plan | None = None,
) -> list[Row]:
    """A row per rate and pair, in that order. A rate of None: the one that `question` looks for itself. base: the plan
    in force."""
    from headgate.controller.plan.outlook_rows import comparison_row
    from headgate.controller.plan.scaling import compared

    supply = supply_of(question, base)
    cells = [(rate, pair) for rate in rates for pair in pairs]
    rows = []
    with clocked(time.monotonic):
        for rate, pair in waited(cells, "comparing"):
            rows.append(comparison_row(compared(supply, pair, rate)))
    return rows


def print_rows(rows: list[Row]) -> None:
    """For people: a table per rate, and below it what has no plan."""
    for number, rate_tps in enumerate(dict.fromkeys(row["rate_tps"] for row in rows)):
        here = [row for row in rows if row["rate_tps"] == rate_tps]
        title = f"{significant(rate_tps, 6)} tuples/s" if rate_tps is not None else "no rate"
        click.echo("\n" if number else "", nl=False)
        write_table([for_people(row) for row in here], title, SPARE)
        for row in here:
            if words := row["reason"] or row["gap_words"]:
                click.echo(f"{row['pair']}: {words}")


def for_people(row: Row) -> Row:
    """A row of the table; what a pair lacks shows as N/A. weighted, shuffle: tuples/s that it is predicted to carry;
    crossing: of all rows on edges, those that leave slots / VMs."""
    counts = row["slots"] or dict.fromkeys(("estimated", "extra", "total"))
    at = f"{row['limited_by']} on {row['limited_by_slot']}" if row["limited_by"] else None
    return {
        "pair": row["pair"],
        "slots": counts["total"],
        "estimated": counts["estimated"],
        "extra": counts["extra"],
        "vms": short_sizes(row["vms"]) if row["vms"] else None,
        "$/h": row["usd_per_hour"],
        "weighted": row["weighted_tps"],
        "shuffle": row["shuffle_tps"],
        "crossing": _crossing(row),
        **({"moves": row["moves"]} if row["moves"] is not None else {}),
        "limited_by": at,
        "s": round(row["planned_s"], 2),
    }


def _crossing(row: Row) -> str | None:
    if not row["rows_tps"]:
        return None
    return "/".join(f"{row[name] / row['rows_tps']:.0%}" for name in ("between_slots_tps", "between_vms_tps"))


def _rates(options: dict[str, Any]) -> tuple[float | None, ...]:
    if (options["rates"] is None) != options["max_rate"]:
        raise UsageError("either --rates or --max-rate must be given", hint="--rates 50,100,200")
    if options["rate_step"] is not None and not options["max_rate"]:
        raise UsageError("--rate-step is for --max-rate")
    if options["max_rate"] and options["vms"] is None and options["slots"] is None:
        raise UsageError("--max-rate needs fixed VMs", hint="headgate compare … --slots 20 --max-rate")
    return (None,) if options["max_rate"] else rates_of(options["rates"])
