"""What it cost, what the rate will do, and the models that the trace gives."""

from __future__ import annotations

from typing import Any

from headgate.dashboards.analytics.results import Cost, Forecast, LeftOut, Refitted, Season
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.charts import (
    RUNS_DRAWN,
    Chart,
    Figure,
    Section,
    Table,
    figure,
    label,
    line,
    name_in,
    nothing,
    spelled,
)
from headgate.dashboards.report.wording import count, duration, number, percent

EPOCHS_MOST = 40


def cost_section(analysis: Analysis) -> Section:
    costs = analysis.rows(Cost)
    rows = [_cost(row) for row in costs if row.epoch is None] + [
        _cost(row) for row in costs if row.epoch is not None
    ]
    return Section("cost", "Cost", [], [slots(analysis)], [Table("Slot-hours, VM-hours and dollars", rows)])


def slots(analysis: Analysis) -> Chart:
    """Slots with threads, epoch by epoch."""
    title = "Slots in use, per epoch"
    rows = [row for row in analysis.rows(Cost) if row.epoch is not None][:EPOCHS_MOST]
    if not rows:
        return nothing("slots", title, "no slots were recorded")
    names = [analysis.epoch_name(row.run, row.epoch or 0) for row in rows]
    bars = {
        "type": "bar", "x": [label(name) for name in names], "y": [row.slots_used for row in rows],
        "marker": {"color": "@blue"}, "text": [number(row.slots_used) for row in rows], "showlegend": False,
        "hovertext": [f"{duration(row.seconds)}, {number(row.slot_hours)} slot-hours" for row in rows],
    }  # fmt: skip
    drawn = figure([bars], analysis.epoch_axis, "slots in use", xaxis={"type": "category"}, height=300)
    most, least = max(row.slots_used for row in rows), min(row.slots_used for row in rows)
    total = sum(row.slot_hours for row in rows)
    between = f"{number(least)} to {number(most)}" if number(least) != number(most) else number(most)
    alt = f"{between} slots were in use in the mean of an epoch: {number(total)} slot-hours in all."
    return Chart("slots", title, alt, drawn, [_cost(row) for row in rows])


def _cost(row: Cost) -> dict[str, Any]:
    return {
        "run": row.run, "epoch": "whole run" if row.epoch is None else row.epoch, "lasted": duration(row.seconds),
        "slots": row.slots_used, "slot-hours": row.slot_hours, "VMs": row.vms, "VM-hours": row.vm_hours,
        "USD": row.usd, "tuples": row.tuples_acked, "USD per million tuples": row.usd_per_million_tuples,
    }  # fmt: skip


def forecast_section(analysis: Analysis) -> Section:
    runs = list(dict.fromkeys(row.run for row in analysis.rows(Forecast)))
    charts = [forecast(analysis, run, runs) for run in runs[:RUNS_DRAWN]]
    if not charts:
        charts = [
            nothing("forecast", "The offered rate, and its forecast", "too little of the rate was recorded")
        ]
    words = [season_words(season) for season in analysis.rows(Season)]
    return Section("forecast", "Season and forecast", words, charts, [])


def season_words(season: Season) -> str:
    """Does the rate repeat, and how well did the forecast do on what it had not seen?"""
    if season.period_s is None:
        repeats = f"{season.run}: no season was found" + (f" ({season.why})" if season.why else "")
    else:
        strength = number(season.strength)
        repeats = (
            f"{season.run}: the rate repeats every {duration(season.period_s)} (strength {strength} of 1)"
        )
    if season.method is None or season.mae_tps is None:
        return repeats + "."
    naive = (
        f"; “as the last value” errs by {number(season.naive_mae_tps)}"
        if season.naive_mae_tps is not None and season.period_s is not None
        else ""
    )
    return (
        f"{repeats}. On the last {duration(season.holdout_s)}, which it had not seen, the method "
        f"“{season.method}” errs by {number(season.mae_tps)} tuples/s ({percent(season.relative_error)}){naive}."
    )


def forecast(analysis: Analysis, run: str, runs: list[str]) -> Chart:
    """Actual rate, the forecast of the hold-out, and what comes after, with its interval."""
    title = f"The offered rate, and its forecast{name_in(run, runs)}"
    name = "forecast" if len(runs) == 1 else f"forecast-{runs.index(run) + 1}"
    rows = sorted(analysis.rows(Forecast, run), key=lambda row: row.at_s)
    by_kind = {kind: [row for row in rows if row.kind == kind] for kind in ("actual", "fitted", "forecast")}
    traces: list[Figure] = []
    ahead = [row for row in by_kind["forecast"] if row.low_tps is not None and row.high_tps is not None]
    if ahead:
        x = [row.at_s for row in ahead]
        y = [row.high_tps for row in ahead] + [row.low_tps for row in reversed(ahead)]
        band = line(x + x[::-1], y, "its interval", "@orange", width=0)
        traces.append(band | {"fill": "toself", "fillcolor": "@orange-soft", "hoverinfo": "skip"})
    for kind, what, colour, dash in (
        ("actual", "actual", "@blue", "solid"),
        ("fitted", "foretold (held out)", "@purple", "dash"),
        ("forecast", "forecast", "@orange", "dot"),
    ):
        if by_kind[kind]:
            its = by_kind[kind]
            traces.append(line([r.at_s for r in its], [r.rate_tps for r in its], what, colour, dash=dash))
    drawn = figure(traces, "seconds after the start", "tuples/s", yaxis={"rangemode": "tozero"}, height=340)
    last = by_kind["forecast"]
    rates = [number(rate(row.rate_tps for row in last)) for rate in (min, max)] if last else []
    how = "" if _has_season(analysis, run) else ", the last value for want of a season"
    alt = "N/A: no forecast could be made."
    if last:
        rates_words = " to ".join(dict.fromkeys(rates))
        alt = f"Forecast until {duration(last[-1].at_s)} after the start: {rates_words} tuples/s{how}."
    return Chart(name, title, alt, drawn, [spelled(row, ("run",)) for row in rows])


def _has_season(analysis: Analysis, run: str) -> bool:
    return any(season.period_s is not None for season in analysis.rows(Season, run))


def sources_section(analysis: Analysis) -> Section:
    """Models that were refitted, and what was not used."""
    models, left = analysis.rows(Refitted), analysis.rows(LeftOut)
    made = sum(row.file is not None for row in models)
    words = [
        f"{count(made, 'model')} refitted from these traces; `headgate model import` takes them from "
        f"{analysis.document.get('models') or 'the folder models'}."
        if made
        else "No model could be refitted from these traces.",
        f"{count(len(left), 'file')} (or part of one) left out: what is said above is said without them."
        if left
        else "Nothing was left out.",
    ]
    tables = [
        Table("Refitted models", [spelled(row) for row in models]),
        Table("Left out", [spelled(row) for row in left]),
    ]
    return Section("sources", "Models, and what was left out", words, [], tables)
