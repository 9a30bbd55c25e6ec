"""The sentences of `headgate whatif`, made from its rows: what it takes, what breaks first, what is next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.controller.offline.answers import short_sizes
from headgate.topology_runtime.faults.words import counted, significant

if TYPE_CHECKING:
    from headgate.controller.offline.answers import Row

EACH = 3  # with up to so many rates each is told about; with more, the first and the last


def sentences_of(rows: Sequence[Row], fixed: bool) -> list[str]:
    """A few sentences on all rows; `fixed`: the VMs are there anyhow."""
    planned = [row for row in rows if row["reason"] is None]
    told = planned if len(planned) <= EACH else [planned[0], planned[-1]]
    sentences = [_span(planned[0], planned[-1])] if len(planned) > 1 and not fixed else []
    for row in told:
        sentences.append(f"{needs(row, fixed)} {breaks(row['rate_tps'], row['limit'])} {next_step(row)}")
    failed = [row for row in rows if row["reason"] is not None]
    if failed:
        rates = ", ".join(significant(row["rate_tps"]) for row in failed)
        sentences.append(f"No plan for {rates} tuples/s: {failed[0]['reason']}.")
    return sentences


def _span(low: Row, high: Row) -> str:
    more_slots = high["slots"]["total"] - low["slots"]["total"]
    more_tps = high["rate_tps"] - low["rate_tps"]
    first, last = low["slots"]["total"], high["slots"]["total"]
    text = f"From {significant(low['rate_tps'])} to {significant(high['rate_tps'])} tuples/s it takes {first} to "
    text += f"{counted(last, 'slot')}, {money(low['usd_per_hour'])} to {money(high['usd_per_hour'])} an hour"
    if more_tps <= 0:
        return f"{text}."
    return f"{text}: about {100 * more_slots / more_tps:.2g} slots for every 100 tuples/s more."


def needs(row: Row, fixed: bool) -> str:
    """`At 250 tuples/s you need 19 slots (4,4,4,4,2,1), $1.86 an hour, …`."""
    at = f"At {significant(row['rate_tps'])} tuples/s you need "
    cost = f"{money(row['usd_per_hour'])} an hour, {money(row['usd_per_month'])} a month"
    slots = counted(row["slots"]["total"], "slot")
    if fixed:
        return f"{at}{row['slots']['used']} of the {slots} there are ({cost}, used or not)."
    return f"{at}{slots} (VMs of {short_sizes(row['vms'])}), {cost}{_saved(row['baseline'])}."


def _saved(baseline: Row) -> str:
    pair, part = baseline["pair"].upper(), baseline["saved_part"]
    if baseline["slots"] is None:
        return f"; no {pair} ({baseline['reason']})"
    if part is None or baseline["same_pair"]:
        return ""
    much = f"{abs(part):.0%} {'less' if part > 0 else 'more'} than" if part else "as much as"
    text = f", {much} {pair} with its {counted(baseline['slots'], 'slot')}"
    if baseline["short_tps"] > 0:
        return f"{text}, which would carry {significant(baseline['predicted_tps'])} tuples/s only"
    return text


def breaks(rate_tps: float, limit: Row) -> str:
    """What breaks first when the rate rises and the plan stays."""
    if limit["by"] is None:
        return "Nothing limits the rate: no task has a model."
    at, start = significant(limit["rate_tps"]), "The first thing to break"
    if limit["rate_tps"] < rate_tps * (1 - 1e-6):
        start = f"The plan would carry {at} tuples/s only: the first thing to break"
    return f"{start} is task {limit['task']} on {limit['slot']}: above {at} tuples/s {_why(limit)}."


def between(document: Row) -> str:
    """` (between 240 and 260)`, when the models carry the spread of their measurements."""
    low, high = document["predicted_low_tps"], document["predicted_high_tps"]
    return "" if low is None or high is None else f" (between {significant(low)} and {significant(high)})"


def _why(limit: Row) -> str:
    threads, at, peak = counted(limit["threads"], "thread"), limit["slot"], significant(limit["peak_tps"])
    one, weighted = limit["threads"] == 1, limit["weighted_tps"]
    better = f"; weighted routing would carry {significant(weighted)} on the same slots" if weighted else ""
    if limit["by"] == "routing":
        share = f"shuffle gives its {threads} on {at} {limit['share']:.1%} of the rows"
        return f"{share}, more than the {peak} tuples/s they carry at most{better}"
    others = ", and its other slots can take no more" if limit["task_slots"] > 1 and not weighted else ""
    if limit["by"] == "cpu":
        shares = "shares" if one else "share"
        return f"no CPU is left on {at}, where its {threads} {shares} it{others}{better}"
    return f"its {threads} on {at} {'is at its' if one else 'are at their'} peak of {peak} tuples/s{others}"


def next_step(row: Row) -> str:
    """How far the same slots go when planned for more, and what the next step costs and buys."""
    same, more = row["same_slots"], row["more_slots"]
    if same is None:
        return "No rate needs more slots than these."
    all_ = same["slots"] != row["slots"]["used"]
    which = f"all {counted(same['slots'], 'slot')}" if all_ else "the same slots"
    start = f"{which[0].upper()}{which[1:]} do no more than {_up_to(same)}"
    if same["rate_tps"] > row["rate_tps"]:
        start = f"Planned anew, {which} do up to {_up_to(same)}"
    if more is None:
        return f"{start}, and a few slots more would not help."
    extra = more["slots"] - same["slots"]
    verb, fewer = ("buys", "") if extra == 1 else ("buy", ", fewer buy nothing")
    gain = f"{significant(more['carried_tps'] - same['carried_tps'])} tuples/s"
    then = f"{counted(more['slots'], 'slot')}, {money(more['usd_per_hour'])} an hour, up to {_up_to(more)}"
    return f"{start}; {counted(extra, 'slot')} more ({then}) {verb} {gain}{fewer}."


def _up_to(reach: Row) -> str:
    """The rate that plans, and what would be carried of it if that is less."""
    short = reach["carried_tps"] < reach["rate_tps"] * (1 - 1e-6)
    carried = f", of which {significant(reach['carried_tps'])} would be carried" if short else ""
    return f"{significant(reach['rate_tps'])} tuples/s{carried}"


def money(usd: float) -> str:
    return f"${usd:,.0f}" if usd >= 1000 else f"${usd:,.2f}"
