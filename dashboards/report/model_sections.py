"""Predicted against actual: rates, CPU and memory (paper 0, Fig. 9 to 12), and where the residuals are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.dashboards.analytics.storage.result_tables import (
    Cost,
    Forecast,
    LeftOut,
    RateWindow,
    Refitted,
    ResidualCell,
    Residuals,
    Season,
    SlotPredicted,
    TaskResidual,
)
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.findings import fit_of, most_offered
from headgate.dashboards.report.findings import points as points_of
from headgate.dashboards.report.report_charts import (
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
    points,
    spelled,
)
from headgate.dashboards.report.report_wording import count, duration, number, percent

GROUPS_MOST = 9  # epochs or runs told apart in a scatter plot; the others are one group
CELLS_MOST = 60  # columns of a residual map

Pairs = dict[str, list[tuple[float, float]]]  # group → (predicted, actual)
OF = {
    "tasks": ("Rate of a task in an epoch", "rows/s", 1.0),
    "rate": ("Rate", "rows/s", 1.0),
    "cpu": ("CPU of a slot", "% of the slot", 100.0),
    "memory": ("Memory of a slot", "% of the slot", 100.0),
}


def fidelity_section(analysis: Analysis) -> Section:
    words = [
        "On the line, what was predicted is what came; above it, more came than predicted. The rate is only compared "
        "where the plan was tried: more was offered than predicted, or rows waited for long.",
        "R² = 1 − (squared residuals) / (squared deviations from the mean): 1 is perfect, 0 is no better than the "
        "mean. Where a figure hardly varies it says little, and the mean error more.",
    ]
    charts = [
        scatter(analysis, "rate", _rate_pairs(analysis)),
        scatter(analysis, "cpu", _slot_pairs(analysis, lambda slot: (slot.predicted_cpu, slot.cpu))),
        scatter(analysis, "memory", _slot_pairs(analysis, lambda slot: (slot.predicted_memory, slot.memory))),
        tasks_scatter(analysis),
        residual_map(analysis),
    ]
    rows = [_residuals(row) for row in analysis.rows(Residuals)]
    tasks = [spelled(row) for row in analysis.rows(TaskResidual)]
    tables = [Table("Errors by task, slot, VM and pair", rows), Table("Tasks in each epoch", tasks)]
    return Section("fidelity", "Predicted against actual", words, charts, tables)


def _group(analysis: Analysis, run: str, epoch: int) -> str:
    return f"epoch {epoch}" if len(analysis.runs) == 1 else f"run {analysis.runs.index(run) + 1}"


def _rate_pairs(analysis: Analysis) -> Pairs:
    pairs: Pairs = {}
    for window in analysis.rows(RateWindow):
        if window.tried and window.predicted_tps is not None and window.acked_tps is not None:
            group = _group(analysis, window.run, window.epoch)
            pairs.setdefault(group, []).append((window.predicted_tps, window.acked_tps))
    return pairs


def _slot_pairs(
    analysis: Analysis, of: Callable[[SlotPredicted], tuple[float | None, float | None]]
) -> Pairs:
    pairs: Pairs = {}
    for slot in analysis.rows(SlotPredicted):
        predicted, actual = of(slot)
        if predicted is not None and actual is not None:
            pairs.setdefault(_group(analysis, slot.run, slot.epoch), []).append((predicted, actual))
    return pairs


def scatter(analysis: Analysis, of: str, pairs: Pairs) -> Chart:
    """Predicted (x) against actual (y) with the identity line."""
    what, unit, factor = OF[of]
    title = f"{what}: predicted against actual"
    if not pairs:
        why = "nothing was predicted for what was measured"
        windows = [window for window in analysis.rows(RateWindow) if window.predicted_tps]
        if of == "rate" and windows:
            why = f"the predicted rate was never tried: {most_offered(windows)}"
        return nothing(f"scatter-{of}", title, why)
    alt = reading(analysis, of, pairs)
    least, most = bounds([value * factor for group in pairs.values() for pair in group for value in pair])
    identity = {
        "type": "scatter", "mode": "lines", "x": [least, most], "y": [least, most], "hoverinfo": "skip",
        "name": "as predicted", "line": {"color": "@grey", "width": 1.5, "dash": "dash"},
    }  # fmt: skip
    traces: list[Figure] = [identity]
    for index, (name, group) in enumerate(_few(pairs).items()):
        x, y = ([round(value * factor, 6) for value in side] for side in zip(*group, strict=True))
        traces.append(points(x, y, name, index))
    drawn = figure(
        traces, f"predicted, {unit}", f"actual, {unit}", height=430,
        xaxis={"range": [least, most]}, yaxis={"range": [least, most]}, hovermode="closest",
    )  # fmt: skip
    rows = [
        {"group": name, "predicted": p * factor, "actual": a * factor, "residual": (a - p) * factor}
        for name, group in pairs.items()
        for p, a in group
    ]
    return Chart(f"scatter-{of}", title, alt, drawn, rows, wide=False)


def reading(analysis: Analysis, of: str, pairs: Pairs) -> str:
    """How far off the points are, in a line; of a slot over all samples, of which the points are means."""
    flat = [pair for group in pairs.values() for pair in group]
    many = f"{len(flat):,} {'point' if len(flat) == 1 else 'points'}"
    fit = fit_of(analysis, of)
    r2 = f"; R² {number(fit['r2'])}" if fit.get("r2") is not None else ""
    above = sum(actual > predicted for predicted, actual in flat)
    side = f"{above:,} of {many} lie above the line"
    if of in ("cpu", "memory"):
        if fit.get("mae") is None:
            return f"{side[0].upper()}{side[1:]}."
        samples = f" over {fit['n']:,} samples, of which the points are means" if fit.get("n") else ""
        return f"Off by {points_of(fit['mae'])} of the slot in the mean{samples}{r2}; {side}."
    scale = sum(abs(actual) for _, actual in flat)
    error = sum(abs(actual - predicted) for predicted, actual in flat)
    share = f"Off by {percent(error / scale, 2)} of what came, in the mean" if scale else "Nothing came"
    return f"{share}{r2}; {side}."


def bounds(values: list[float]) -> tuple[float, float]:
    """What both axes show: from 0, unless all values are far from it."""
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return (0.0 if 0 <= low <= high / 2 else low - room), high + room


def tasks_scatter(analysis: Analysis) -> Chart:
    """Rows/s that each task took in, against what the topology makes of the emitted rate."""
    pairs: Pairs = {}
    for row in analysis.rows(TaskResidual):
        if row.rate_tps is not None and row.predicted_tps is not None:
            pairs.setdefault(row.task, []).append((row.predicted_tps, row.rate_tps))
    return scatter(analysis, "tasks", pairs)


def _few(pairs: Pairs) -> Pairs:
    """At most `GROUPS_MOST`: the last of many are one."""
    names = list(pairs)
    if len(names) <= GROUPS_MOST:
        return pairs
    kept = {name: pairs[name] for name in names[: GROUPS_MOST - 1]}
    rest = [pair for name in names[GROUPS_MOST - 1 :] for pair in pairs[name]]
    return kept | {f"{len(names) - GROUPS_MOST + 1} others": rest}


def residual_map(analysis: Analysis) -> Chart:
    """Task × slot: where more or less CPU was used than predicted."""
    title = "Where the CPU predictions err: measured − predicted, by task and slot"
    cells = [cell for cell in analysis.rows(ResidualCell) if cell.residual is not None]
    if not cells:
        return nothing("residual-map", title, "no slot has both a measured and a predicted CPU")
    sums: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        entry = sums.setdefault((cell.task, f"{cell.vm}/{cell.slot}"), [0.0, 0.0])
        entry[0] += (cell.residual or 0.0) * cell.windows
        entry[1] += cell.windows
    means = {key: 100 * total / weight for key, (total, weight) in sums.items() if weight}
    tasks, slots = _order(task for task, _ in means), _order(slot for _, slot in means)[:CELLS_MOST]
    grid = [[means.get((task, slot)) for slot in slots] for task in tasks]
    limit = max((abs(value) for value in means.values()), default=0.0) or 1.0
    heat = {
        "type": "heatmap", "x": [label(slot) for slot in slots], "y": [label(task) for task in tasks],
        "z": [[_rounded(value) for value in row] for row in grid], "zmin": -limit, "zmax": limit,
        "colorscale": [[0, "@blue"], [0.5, "@paper"], [1, "@orange"]], "xgap": 2, "ygap": 2, "textfont": {"size": 13},
        "texttemplate": "%{z:+.1f}" if len(slots) <= 16 else "", "hoverongaps": False,
        "colorbar": {"title": {"text": "points of CPU"}},
    }  # fmt: skip
    height = 170 + 34 * len(tasks)
    drawn = figure(
        [heat], "slot", "", yaxis={"autorange": "reversed"}, xaxis={"type": "category"}, height=height
    )
    worst = max(means, key=lambda key: abs(means[key]))
    way = "more" if means[worst] > 0 else "less"
    alt = (
        f"Furthest off in the mean: {worst[0]} in {worst[1]}, {abs(means[worst]):.1f} points of the slot's CPU {way} "
        "than predicted. Errors in both directions cancel here; their sizes are in the table of errors."
    )
    rows = [{"task": t, "slot": s, "residual in points": value} for (t, s), value in means.items()]
    return Chart("residual-map", title, alt, drawn, rows)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _order(names: Any) -> list[str]:
    """Each once, vm2/1 before vm10/0."""
    return sorted(set(names), key=lambda name: [(len(part), part) for part in name.split("/")])


def _residuals(row: Residuals) -> dict[str, Any]:
    shown: Callable[[float | None], str] = percent
    return {
        "of": row.of, "by": row.by, "which": row.name or "all", "n": row.n, "R²": row.r2,
        "R² without offset": row.r2_without_offset,
        "mean error": shown(row.mae) if row.of != "rate" else row.mae, "median error": shown(row.median_error),
        "95th percentile": shown(row.p95_error), "worst": shown(row.worst_error),
        "mean residual": row.mean_residual if row.of == "rate" else shown(row.mean_residual),
    }  # fmt: skip


# ── What it cost, what the rate will do, and the models that the trace gives ────────────────────────────

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
        "USD": row.usd, "rows": row.tuples_acked, "USD per million rows": row.usd_per_million_tuples,
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
        f"“{season.method}” errs by {number(season.mae_tps)} rows/s ({percent(season.relative_error)}){naive}."
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
    drawn = figure(traces, "seconds after the start", "rows/s", yaxis={"rangemode": "tozero"}, height=340)
    last = by_kind["forecast"]
    rates = [number(rate(row.rate_tps for row in last)) for rate in (min, max)] if last else []
    how = "" if _has_season(analysis, run) else ", the last value for want of a season"
    alt = "N/A: no forecast could be made."
    if last:
        rates_words = " to ".join(dict.fromkeys(rates))
        alt = f"Forecast until {duration(last[-1].at_s)} after the start: {rates_words} rows/s{how}."
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
