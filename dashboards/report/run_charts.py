"""Charts of what a run did: rates over time, latency (paper 0, Fig. 13), what was tight, slots, a forecast."""

from __future__ import annotations

import math
from typing import Any

from headgate.dashboards.analytics.storage import result_tables as r
from headgate.dashboards.analytics.storage.result_tables import HISTOGRAM_BINS_PER_DOUBLING
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.report_charts import (
    RUNS_DRAWN,
    SYMBOLS,
    Chart,
    Figure,
    bars,
    drawn_map,
    figure,
    heatmap,
    label,
    line,
    nothing,
    points,
    rule,
    spelled,
)
from headgate.dashboards.report.report_facts import lasted_s, whole_windows
from headgate.dashboards.report.report_wording import count, duration, listed, number, percent, span
from headgate.topology_runtime.stability.trial_evidence import UNSTABLE_SLOPE

LINES = (
    ("offered_tps", "offered", "@grey", "solid", 2),
    ("acked_tps", "acked (finished)", "@blue", "solid", 3),
    ("planned_tps", "planned for", "@orange", "dash", 2),
    ("predicted_tps", "predicted to carry", "@red", "dot", 2),
)
SECONDS = "seconds after the start"
EPOCHS_MOST = 40
CATEGORIES = {"type": "category"}


def named(analysis: Analysis, name: str, title: str, run: str) -> tuple[str, str]:
    """Name and title of a chart of one run; of several runs they say which."""
    several = len(analysis.runs) > 1
    return (f"{name}-{analysis.runs.index(run) + 1}", f"{title} of {run}") if several else (name, title)


def timelines(analysis: Analysis) -> list[Chart]:
    charts = [timeline(analysis, run) for run in analysis.runs[:RUNS_DRAWN]]
    return charts or [nothing("timeline", "Rates over time", "no rates were recorded")]


def timeline(analysis: Analysis, run: str) -> Chart:
    """Rates offered, finished, planned and predicted, with every plan as a marker, and when rows waited for long."""
    name, title = named(analysis, "timeline", "Rates over time", run)
    windows = sorted(analysis.rows(r.RateWindow, run), key=lambda window: (window.at_s, window.epoch))
    if not windows:
        return nothing(name, title, "no rates were recorded")
    replans = sorted(analysis.rows(r.Replan, run), key=lambda replan: replan.at_s)
    episodes = sorted(analysis.rows(r.Episode, run), key=lambda one: one.from_s)
    begun = {replan.epoch: replan.at_s for replan in replans}
    traces = [_rates(windows, begun, *look) for look in LINES]
    if episodes:
        soft = {"size": 12, "color": "@orange-soft", "symbol": "square"}
        shaded = {"x": [None], "y": [None], "name": "rows waited for long", "hoverinfo": "skip"}
        traces.append({"type": "scatter", "mode": "markers", "marker": soft} | shaded)
    if replans:
        highest = max((getattr(w, key) or 0.0 for w in windows for key, *_ in LINES), default=0.0) or 1.0
        traces.append(_markers(replans, highest * 1.08))
    shapes = [
        rule("x", 0, "", type="rect", x0=one.from_s, x1=one.to_s, fillcolor="@orange-soft", line={"width": 0},
             layer="below")
        for one in episodes
    ] + [rule("x", replan.at_s, "@rule", "dot", layer="below") for replan in replans]  # fmt: skip
    axis = {"rangemode": "tozero"}
    drawn = figure(traces, SECONDS, "rows/s", shapes=shapes, yaxis=axis, height=420)
    shown = ("at_s", "epoch", *(key for key, *_ in LINES))
    rows = [{key: getattr(window, key) for key in shown} for window in windows]
    return Chart(name, title, _timeline_words(analysis, run, replans, episodes), drawn, rows)


def _rates(
    windows: list[r.RateWindow],
    begun: dict[int, float],
    key: str,
    words: str,
    colour: str,
    dash: str,
    width: int,
) -> Figure:
    """What was measured, at the middle of its windows, with a gap where nothing was recorded for one or more; what a
    plan says, in steps from when it was decided (`begun`, by epoch)."""
    if dash != "solid":
        x = [round(max(window.at_s, begun.get(window.epoch, 0.0)), 3) for window in windows]
        drawn = line(x, [getattr(window, key) for window in windows], words, colour, dash=dash, width=width)
        drawn["line"]["shape"] = "hv"
        return drawn
    found: list[tuple[float, float | None]] = []
    for window in windows:
        at_s = round(window.at_s + window.window_s / 2, 3)
        if found and at_s - found[-1][0] > 1.9 * window.window_s:
            found.append((at_s, None))
        found.append((at_s, getattr(window, key)))
    return line([x for x, _ in found], [y for _, y in found], words, colour, dash=dash, width=width)


def _markers(replans: list[r.Replan], height: float) -> Figure:
    """A numbered marker per plan; more about it when pointed at."""
    at_s = [replan.at_s for replan in replans]
    drawn = points(at_s, [height] * len(at_s), "plan (number of its epoch)", "@ink", "triangle-down", size=11)
    hover = [label(f"plan {p.epoch}: {p.reason}, {number(p.rate_tps)} rows/s") for p in replans]
    return drawn | {
        "mode": "markers+text", "text": [str(replan.epoch) for replan in replans], "textposition": "top center",
        "hovertext": hover, "hoverinfo": "text", "cliponaxis": False,
    }  # fmt: skip


def _timeline_words(analysis: Analysis, run: str, replans: list[r.Replan], episodes: list[r.Episode]) -> str:
    windows = whole_windows(analysis, run)
    offered = [w.offered_tps for w in windows if w.offered_tps is not None]
    acked = [w.acked_tps for w in windows if w.acked_tps is not None]
    rates = f"{span(offered)} rows/s were offered" if offered else "what was offered was not recorded"
    mean = f", {number(sum(acked) / len(acked))} finished in the mean" if acked else ""
    plans = "; no decisions were recorded" if not replans else f"; {count(len(replans), 'plan')}"
    hurt = [f"{duration(one.from_s)} to {duration(one.to_s)}" for one in episodes]
    waited = f" Shaded: rows waited for long, from {listed(hurt, 4)}." if hurt else ""
    return f"In {duration(lasted_s(analysis, run))}, {rates}{mean}{plans}.{waited}"


# ── Latency from a source's intended emit time to a sink: violins per epoch, and quantiles ──────────────

VIOLINS_MOST = 24
NEAR = 0.2  # of a median: predicted well
LATENCY = "latency (logarithmic)"
SMOOTHING = (1, 2, 3, 2, 1)  # over bins of 19 %
QUANTILES = (("p50_s", "median", "@blue", "solid"), ("p95_s", "95 %", "@orange", "dash"),
             ("p99_s", "99 %", "@red", "dot"))  # fmt: skip


def latencies(analysis: Analysis) -> list[Chart]:
    rows = [row for row in analysis.rows(r.LatencyEpoch) if row.tuples > 0]
    paths = {(row.source, row.sink) for row in rows}
    names = [
        analysis.epoch_name(row.run, row.epoch) + (f" {row.source} → {row.sink}" if len(paths) > 1 else "")
        for row in rows
    ]
    both = list(zip(names, rows, strict=True))
    return [violins(analysis, both), quantiles(analysis, both), foreseen(analysis)]


def foreseen(analysis: Analysis) -> Chart:
    """Predicted (x) against measured (y), of each plan, rate and sink."""
    title, rows = "Latency: predicted against measured", analysis.rows(r.LatencyForeseen)
    if not rows:
        return nothing("latency-foreseen", title, "no latency was predicted for what was measured")
    traces, ends = [], list[float]()
    for index, (key, what, colour, _) in enumerate(QUANTILES):
        error = f"{key.removesuffix('_s')}_error"
        known = [row for row in rows if getattr(row, error) is not None]
        x, y = ([getattr(row, name) for row in known] for name in (f"predicted_{key}", key))
        ends += [*x, *y]
        traces.append(points(x, y, what, colour, SYMBOLS[index], size=9))
    axis = time_axis(ends)
    same = [min(ends, default=1.0), max(ends, default=1.0)]
    identity = line(same, same, "as predicted", "@grey", dash="dash", width=1.5) | {"hoverinfo": "skip"}
    drawn = figure([identity, *traces], "predicted", "measured", height=430, xaxis=axis, yaxis=axis)
    within = sum(row.p50_error is not None and abs(row.p50_error) <= NEAR for row in rows)
    alt = (
        f"The predicted median was within {percent(NEAR)} of the measured one in {within} of "
        f"{count(len(rows), 'prediction')} (for a plan, a rate and a sink). Above the line, rows took longer."
    )
    return Chart("latency-foreseen", title, alt, drawn, [spelled(row) for row in rows], wide=False)


def violins(analysis: Analysis, rows: list[tuple[str, r.LatencyEpoch]]) -> Chart:
    """One outline per epoch and path; dots are the median, ticks the 99th percentile."""
    title = "Distribution of latency per epoch"
    drawn = [(name, row) for name, row in rows if row.histogram][:VIOLINS_MOST]
    if not drawn:
        return nothing("violins", title, "no row reached a sink while latency was sampled")
    at = list(range(len(drawn)))
    medians, slow = [row.p50_s for _, row in drawn], [row.p99_s for _, row in drawn]
    traces = [
        *(_outline(row, n) for n, (_, row) in enumerate(drawn)),
        points(at, medians, "median", "@ink", "circle", size=10),
        points(
            at, slow, "99 % are faster", "@red", "line-ew-open", size=10, line={"width": 2, "color": "@red"}
        ),
    ]
    ticks = {"tickvals": at, "ticktext": [label(name) for name, _ in drawn]}
    axis = time_axis([bin.to_s for _, row in drawn for bin in row.histogram])
    found = figure(traces, analysis.epoch_axis, LATENCY, xaxis=ticks, yaxis=axis, height=420)
    name, slowest = max(drawn, key=lambda one: one[1].p99_s or 0.0)
    known = [value for value in medians if value]
    ends = [duration(min(known)), duration(max(known))] if known else [duration(None)]
    where = f"in the slowest epoch ({name})" if len(drawn) > 1 else "in it"
    more = f" Drawn are {VIOLINS_MOST} of {len(rows)}." if len(rows) > VIOLINS_MOST else ""
    alt = (
        f"The median is {' to '.join(dict.fromkeys(ends))}; {where} one in a hundred took more than "
        f"{duration(slowest.p99_s)}.{more}"
    )
    return Chart("violins", title, alt, found, [spelled(row) for _, row in drawn])


def _outline(row: r.LatencyEpoch, at: int) -> Figure:
    """The violin as a closed line: width by tuples per bin, the bins being equally wide on the axis."""
    bins = {round(HISTOGRAM_BINS_PER_DOUBLING * math.log2(bin.to_s)) - 1: bin.tuples for bin in row.histogram}
    half = len(SMOOTHING) // 2
    numbers = range(min(bins) - half, max(bins) + half + 1)
    widths = [sum(w * bins.get(n + k - half, 0.0) for k, w in enumerate(SMOOTHING)) for n in numbers]
    most = max(widths) or 1.0
    right = [0.42 * width / most for width in widths]
    middle_s = [round(2 ** ((n + 0.5) / HISTOGRAM_BINS_PER_DOUBLING), 9) for n in numbers]
    x = [at + width for width in right] + [at - width for width in reversed(right)]
    y = middle_s + middle_s[::-1]
    drawn = line([round(value, 4) for value in x], y, f"epoch {row.epoch}", "@blue", width=1.5)
    drawn["line"]["shape"] = "spline"
    return drawn | {"fill": "toself", "fillcolor": "@blue-soft", "hoverinfo": "skip", "showlegend": False}


def time_axis(values_s: list[float]) -> dict[str, Any]:
    """A logarithmic axis for these times whose ticks say their unit."""
    above = [value for value in values_s if value > 0]
    if not above:
        return {"type": "log"}
    low, high = math.floor(math.log10(min(above))) - 1, math.ceil(math.log10(max(above))) + 1
    steps = (1, 2, 5) if high - low <= 5 else (1,)
    ticks = [step * 10.0**power for power in range(low, high) for step in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [duration(tick) for tick in ticks]}


def quantiles(analysis: Analysis, rows: list[tuple[str, r.LatencyEpoch]]) -> Chart:
    """Median, 95th and 99th percentile from epoch to epoch."""
    title = "Quantiles of latency from epoch to epoch"
    if not rows:
        return nothing("latency-quantiles", title, "no latency was recorded")
    shown = rows[: 4 * VIOLINS_MOST]
    x = [label(name) for name, _ in shown]
    y = {key: [getattr(row, key) for _, row in shown] for key, *_ in QUANTILES}
    traces = [
        line(x, y[key], what, colour, dash=dash) | {"mode": "lines+markers"}
        for key, what, colour, dash in QUANTILES
    ]
    axis = time_axis([value for its in y.values() for value in its if value])
    drawn = figure(traces, analysis.epoch_axis, LATENCY, xaxis=CATEGORIES, yaxis=axis, height=340)
    name, worst = max(shown, key=lambda one: one[1].p99_s or 0.0)
    alt = f"99 % of the rows took at most {duration(worst.p99_s)} in the slowest epoch ({name})."
    return Chart("latency-quantiles", title, alt, drawn, [spelled(row) for _, row in shown])


# ── Where it is tight: is every epoch stable, which threads are the busiest, and who disturbs whom ──────

VERDICTS = {
    True: ("stable", "@blue", "circle"),
    False: ("unstable", "@red", "x"),
    None: ("cannot be determined", "@grey", "circle-open"),
}


def strains(analysis: Analysis) -> list[Chart]:
    return [stability(analysis), busy(analysis), interference(analysis)]


def stability(analysis: Analysis) -> Chart:
    """The slope of each epoch with its interval, the verdict as colour and shape."""
    title = "Is it stable? How fast latency grows, per epoch"
    rows = [row for row in analysis.rows(r.StabilityAnswer) if row.scope == "epoch" and row.slope is not None]
    if not rows:
        return nothing("stability", title, "no epoch has enough latency samples for a slope")
    rows = rows[: 2 * EPOCHS_MOST]
    names = {id(row): analysis.epoch_name(row.run, row.epoch) for row in rows}
    traces = []
    for verdict, (words, colour, symbol) in VERDICTS.items():
        mine = [row for row in rows if row.stable is verdict]
        if not mine:
            continue
        low, at, high = ([_of(row, key) for row in mine] for key in ("slope_low", "slope", "slope_high"))
        reach = {
            "array": [max(0.0, b - a) for a, b in zip(at, high, strict=True)],
            "arrayminus": [max(0.0, a - b) for a, b in zip(at, low, strict=True)],
        }
        x, edge = [label(names[id(row)]) for row in mine], {"width": 2, "color": colour}
        drawn = points(x, at, words, colour, symbol, size=11, line=edge)
        traces.append(drawn | {"error_y": {"type": "data", "symmetric": False, "color": colour, **reach}})
    order = list(dict.fromkeys(label(name) for name in names.values()))
    axis = CATEGORIES | {"categoryorder": "array", "categoryarray": order}
    limit = [rule("y", UNSTABLE_SLOPE, "@red", "dash")]
    drawn = figure(traces, analysis.epoch_axis, "slope of latency, s/s", shapes=limit, xaxis=axis, height=340)
    alt = f"{_verdicts(analysis, rows)} Dashed: the limit of {UNSTABLE_SLOPE:g} s/s."
    return Chart("stability", title, alt, drawn, [spelled(row) for row in rows])


def _of(row: r.StabilityAnswer, key: str) -> float:
    """An end of its interval; the slope itself where there is none."""
    value: float | None = getattr(row, key)
    return row.slope or 0.0 if value is None else value


def _verdicts(analysis: Analysis, rows: list[r.StabilityAnswer]) -> str:
    """Which epochs are unstable, and by what, and of which it cannot be determined."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        if not row.stable:
            why = (
                "latency grew"
                if _of(row, "slope") > UNSTABLE_SLOPE
                else "rows waited for long in it or queues grew"
            )
            title = "Cannot be determined" if row.stable is None else f"Unstable, {why}"
            found.setdefault(title, {})[analysis.epoch_name(row.run, row.epoch)] = None
    words = [f"{title}: {analysis.epoch_axis} {listed(list(its))}." for title, its in found.items()]
    return " ".join(words) or "No epoch was unstable."


def busy(analysis: Analysis) -> Chart:
    """Task × epoch: the share of time that its threads are busy."""
    title = "How busy the threads of each task are"
    rows = [row for row in analysis.rows(r.TaskResidual) if row.busy_share is not None]
    if not rows:
        return nothing("busy", title, "no samples of tasks were recorded")
    share = {
        (row.task, analysis.epoch_name(row.run, row.epoch)): 100 * (row.busy_share or 0.0) for row in rows
    }
    tasks = list(dict.fromkeys(task for task, _ in share))
    epochs = list(dict.fromkeys(epoch for _, epoch in share))[:EPOCHS_MOST]
    scale = {"zmin": 0, "zmax": 100, "colorscale": [[0, "@paper"], [1, "@blue"]]}
    heat = heatmap(epochs, tasks, lambda *key: share.get(key), "% busy", "%{z:.0f} %", **scale)
    return drawn_map(
        "busy", title, analysis.epoch_axis, heat, _busiest(share), [spelled(row) for row in rows]
    )


def _busiest(share: dict[tuple[str, str], float]) -> str:
    task, epoch = top = max(share, key=lambda key: share[key])
    return (
        f"The threads of {task} were the busiest, in epoch {epoch}: {number(share[top])} % of the time in the mean "
        "(what they wait for in their logic counts, too)."
    )


def interference(analysis: Analysis) -> Chart:
    """What a row costs beside other tasks, against alone."""
    title = "What sharing a slot costs: CPU per row beside others ÷ alone"
    rows = [row for row in analysis.rows(r.Interference) if row.ratio is not None]
    if not rows:
        return nothing("interference", title, "no task was seen both alone in a slot and beside others")
    rows = sorted(rows, key=lambda row: -(row.ratio or 0.0))[:EPOCHS_MOST]
    runs = analysis.runs
    names = [row.task if len(runs) == 1 else f"{row.task}, run {runs.index(row.run) + 1}" for row in rows]
    ratios, texts = [row.ratio for row in rows], [f"× {number(row.ratio)}" for row in rows]
    drawn = figure(
        [bars(ratios, [label(name) for name in names], texts, orientation="h", textposition="auto")],
        "× the CPU per row alone", "", shapes=[rule("x", 1, "@ink")], height=150 + 32 * len(rows),
        yaxis={"autorange": "reversed"}, xaxis={"rangemode": "tozero"},
    )  # fmt: skip
    task, ratio = rows[0].task, rows[0].ratio or 0.0
    alt = f"A row costs most more beside others for {task}: × {number(ratio)} of what it costs alone."
    if ratio <= 1.0:
        alt = f"No task costs more beside others than alone (highest: {task}, × {number(ratio)})."
    return Chart("interference", title, alt, drawn, [spelled(row) for row in rows])


# ── What it cost, and what the rate will do ─────────────────────────────────────────────────────────────


def slots(analysis: Analysis) -> list[Chart]:
    """Slots with threads, epoch by epoch."""
    title = "Slots in use, per epoch"
    rows = [row for row in analysis.rows(r.Cost) if row.epoch is not None][:EPOCHS_MOST]
    if not rows:
        return [nothing("slots", title, "no slots were recorded")]
    names = [label(analysis.epoch_name(row.run, row.epoch or 0)) for row in rows]
    used = [row.slots_used for row in rows]
    hover = [f"{duration(row.seconds)}, {number(row.slot_hours)} slot-hours" for row in rows]
    drawn = bars(names, used, [number(value) for value in used], hovertext=hover)
    found = figure([drawn], analysis.epoch_axis, "slots in use", xaxis=CATEGORIES, height=300)
    total = number(sum(row.slot_hours for row in rows))
    alt = f"{span(used)} slots were in use in the mean of an epoch: {total} slot-hours in all."
    return [Chart("slots", title, alt, found, [spelled(row) for row in rows])]


KINDS = (
    ("actual", "actual", "@blue", "solid"),
    ("fitted", "foretold (held out)", "@purple", "dash"),
    ("forecast", "forecast", "@orange", "dot"),
)


def forecasts(analysis: Analysis) -> list[Chart]:
    runs = list(dict.fromkeys(row.run for row in analysis.rows(r.Forecast)))[:RUNS_DRAWN]
    title = "The offered rate, and its forecast"
    charts = [forecast(analysis, run, title) for run in runs]
    return charts or [nothing("forecast", title, "too little of the rate was recorded")]


def forecast(analysis: Analysis, run: str, title: str) -> Chart:
    """Actual rate, the forecast of the hold-out, and what comes after, with its interval."""
    name, title = named(analysis, "forecast", title, run)
    rows = sorted(analysis.rows(r.Forecast, run), key=lambda row: row.at_s)
    last = [row for row in rows if row.kind == "forecast"]
    ahead = [row for row in last if row.low_tps is not None and row.high_tps is not None]
    traces: list[Figure] = []
    if ahead:
        x = [row.at_s for row in ahead]
        y = [row.high_tps for row in ahead] + [row.low_tps for row in reversed(ahead)]
        band = line(x + x[::-1], y, "its interval", "@orange", width=0)
        traces.append(band | {"fill": "toself", "fillcolor": "@orange-soft", "hoverinfo": "skip"})
    for kind, what, colour, dash in KINDS:
        if its := [row for row in rows if row.kind == kind]:
            x, y = [row.at_s for row in its], [row.rate_tps for row in its]
            traces.append(line(x, y, what, colour, dash=dash))
    drawn = figure(traces, SECONDS, "rows/s", yaxis={"rangemode": "tozero"}, height=340)
    alt = "N/A: no forecast could be made."
    if last:
        seasonal = any(season.period_s is not None for season in analysis.rows(r.Season, run))
        how = "" if seasonal else ", the last value for want of a season"
        until = duration(last[-1].at_s)
        alt = f"Forecast until {until} after the start: {span([row.rate_tps for row in last])} rows/s{how}."
    return Chart(name, title, alt, drawn, [spelled(row) for row in rows])
