"""`headgate whatif`: what a rate needs, what it costs, what breaks first, and where the next step is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.controller.offline.answers import flat, refuse_picture, short_sizes, supply_of
from headgate.controller.offline.options import asked, planner_options
from headgate.controller.offline.rate_list import rates_of
from headgate.controller.offline.waiting import waited
from headgate.controller.offline.whatif_words import sentences_of
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.output import Format, emit, format_options

if TYPE_CHECKING:
    from headgate.controller.offline.answers import Row


@click.command()
@planner_options
@click.option("--rates", metavar="FROM:TO:STEP", help="Input rates in tuples/s; also a list: 50,100,200.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: .svg or .png.")
@format_options
def whatif(output: Format, plot: Path | None, **options: Any) -> None:
    """What do I need, what will it cost, what breaks first? For each of some input rates.

    Without --rates: ten rates, up to what about 40 slots carry.
    """
    from headgate.controller.plan.outlook_rows import outlook_row, whatif_document
    from headgate.controller.plan.scaling import outlook, usual_rates

    given = rates_of(options["rates"]) if options["rates"] is not None else None
    refuse_picture(plot)
    question = asked(options)
    supply, fixed = supply_of(question), question.acquire is None
    rates = given or usual_rates(supply)
    rows = [outlook_row(outlook(supply, rate)) for rate in waited(rates, "planning")]
    document = whatif_document(question.request, rows, fixed, sentences_of(rows, fixed))
    shown = {"table": for_people, "csv": flat}.get(output)
    emit(output, document, [shown(row) for row in rows] if shown else rows)
    if output == "table":
        for sentence in document["answers"]:
            click.echo(f"\n{sentence}")
    if plot is not None:
        from headgate.controller.offline.pictures import whatif_picture

        whatif_picture(rows, plot)


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
    return {} if low is None or high is None else {"between_tps": f"{significant(low)} … {significant(high)}"}


def _of_total(counts: Row) -> int | str:
    """Slots that are used, and of how many if not all are."""
    used, total = counts["used"], counts["total"]
    return total if used == total else f"{used} of {total}"
