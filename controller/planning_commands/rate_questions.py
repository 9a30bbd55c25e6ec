"""`headgate plan` with `--compare` and `--rates`: pairs side by side, and what rates take and cost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from headgate.controller.planning_commands.plan_request import flat, short_sizes, supply_of
from headgate.controller.planning_commands.plan_sentences import sentences_of
from headgate.controller.planning_commands.planning_options import rate_of, rates_of, with_progress_bar
from headgate.topology_runtime.commands.output import Format, emit, write_table
from headgate.topology_runtime.platform.planning_time import clocked
from headgate.topology_runtime.wording import significant

if TYPE_CHECKING:
    from headgate.controller.models.plans import Plan
    from headgate.controller.plan.scaling import Row
    from headgate.controller.planning_commands.plan_request import PlanWanted

SPARE = ("limited_by", "extra", "estimated", "vms")  # what a narrow terminal leaves out


def compared_rows(
    question: PlanWanted,
    pairs: tuple[str, ...],
    rates: tuple[float | None, ...],
    base: Plan | None = None,
) -> list[Row]:
    """A row per rate and pair, in that order. A rate of None: the one that `question` looks for itself. base: the plan
    in force."""
    from headgate.controller.plan.scaling import compared

    supply = supply_of(question, base)
    cells = [(rate, pair) for rate in rates for pair in pairs]
    rows = []
    with clocked(time.monotonic):
        for rate, pair in with_progress_bar(cells, "comparing"):
            rows.append(compared(supply, pair, rate))
    return rows


def rates_asked(options: Mapping[str, Any]) -> tuple[float, ...]:
    """Of `--rates` or `--rate`. Raises as `rates_of`."""
    return rates_of(options["rates"]) if options["rates"] is not None else (rate_of(options["rate"], 1.0),)


def write_comparison(output: Format, question: PlanWanted, rows: list[Row]) -> None:
    from headgate.controller.plan.scaling import comparison_document

    if output == "table":
        print_rows(rows)
    else:
        document = comparison_document(question.request, rows, question.acquire is None, question.step_tps)
        emit(output, document, [flat(row) for row in rows] if output == "csv" else rows)


def print_rows(rows: list[Row]) -> None:
    """For people: a table per rate, and below it what has no plan."""
    for number, rate_tps in enumerate(dict.fromkeys(row["rate_tps"] for row in rows)):
        here = [row for row in rows if row["rate_tps"] == rate_tps]
        title = f"{significant(rate_tps, 6)} rows/s" if rate_tps is not None else "no rate"
        click.echo("\n" if number else "", nl=False)
        write_table([pairs_for_people(row) for row in here], title, SPARE)
        for row in here:
            if words := row["reason"] or row["gap_words"]:
                click.echo(f"{row['pair']}: {words}")


def pairs_for_people(row: Row) -> Row:
    """A row of the table; what a pair lacks shows as N/A. weighted, shuffle: rows/s that it is predicted to carry;
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


# ── `--rates`: what a rate needs, what it costs, what breaks first, and where the next step is ──────────


def answer(output: Format, question: PlanWanted, rates: tuple[float, ...] | None) -> list[Row]:
    """Print what each of these rates takes (None: ten, up to what about 40 slots carry); the rows that it prints."""
    from headgate.controller.plan.scaling import scaling_analysis, usual_rates, whatif_document

    supply, fixed = supply_of(question), question.acquire is None
    each = with_progress_bar(rates or usual_rates(supply), "planning")
    rows = [scaling_analysis(supply, rate) for rate in each]
    document = whatif_document(question.request, rows, fixed, sentences_of(rows, fixed))
    shown = {"table": rates_for_people, "csv": flat}.get(output)
    emit(output, document, [shown(row) for row in rows] if shown else rows)
    if output == "table":
        for sentence in document["answers"]:
            click.echo(f"\n{sentence}")
    return rows


def rates_for_people(row: Row) -> Row:
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
        "p95_ms": row["latency"] and round(row["latency"]["p95_ms"], 1),
        "breaks_first": f"{row['limited_by']} on {row['limited_by_slot']}" if row["limited_by"] else None,
        "up_to_tps": row["same_slots_up_to_tps"],
        "next_up_to_tps": more.get("rate_tps"),
        "saves": f"{saved:.0%}" if saved is not None else None,
    }
    return shown if row["reason"] is None else {**shown, "no_plan": row["reason"]}


def _interval(row: Row) -> Row:
    """A column of its own when the models carry the spread of their measurements."""
    low, high = row["predicted_low_tps"], row["predicted_high_tps"]
    return {} if low is None or high is None else {"between_tps": f"{significant(low)} … {significant(high)}"}


def _of_total(counts: Row) -> int | str:
    """Slots that are used, and of how many if not all are."""
    used, total = counts["used"], counts["total"]
    return total if used == total else f"{used} of {total}"
