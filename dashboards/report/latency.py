"""Latency from a source's intended emit time to a sink: violins per epoch (paper 0, Fig. 13) and quantiles."""

from __future__ import annotations

import math
from typing import Any

from headgate.dashboards.analytics.results import HISTOGRAM_BINS_PER_DOUBLING, LatencyEpoch
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.charts import Chart, Figure, Section, Table, figure, label, line, nothing
from headgate.dashboards.report.wording import duration, number

VIOLINS_MOST = 24
LATENCY = "latency (logarithmic)"
SMOOTHING = (1, 2, 3, 2, 1)  # over bins of 19 %
QUANTILES = (("p50_s", "median", "@blue", "solid"), ("p95_s", "95 %", "@orange", "dash"),
             ("p99_s", "99 %", "@red", "dot"))  # fmt: skip


def section(analysis: Analysis) -> Section:
    rows = [row for row in analysis.rows(LatencyEpoch) if row.tuples > 0]
    words = [
        "Latency counts from when a tuple was due, not from when it was sent: a source that falls behind shows. "
        "The wider a violin, the more tuples took so long."
    ]
    table = Table("Latency per epoch and path", [_row(row) for row in rows])
    return Section("latency", "Latency", words, [violins(analysis, rows), quantiles(analysis, rows)], [table])


def name_of(analysis: Analysis, row: LatencyEpoch) -> str:
    """Epoch, with path and run where there are several."""
    paths = {(other.source, other.sink) for other in analysis.rows(LatencyEpoch)}
    path = f" {row.source} → {row.sink}" if len(paths) > 1 else ""
    return analysis.epoch_name(row.run, row.epoch) + path


def violins(analysis: Analysis, rows: list[LatencyEpoch]) -> Chart:
    """One outline per epoch and path; dots are the median, ticks the 99th percentile."""
    title = "Distribution of latency per epoch"
    drawn = [row for row in rows if row.histogram][:VIOLINS_MOST]
    if not drawn:
        return nothing("violins", title, "no tuple reached a sink while latency was sampled")
    names = [name_of(analysis, row) for row in drawn]
    traces = [_outline(row, at) for at, row in enumerate(drawn)]
    for key, what, colour, symbol in (
        ("p50_s", "median", "@ink", "circle"),
        ("p99_s", "99 % are faster", "@red", "line-ew-open"),
    ):
        y = [getattr(row, key) for row in drawn]
        marker = {"color": colour, "symbol": symbol, "size": 10, "line": {"width": 2, "color": colour}}
        trace = {"type": "scatter", "mode": "markers", "x": list(range(len(drawn))), "y": y, "name": what}
        traces.append(trace | {"marker": marker})
    ticks = {"tickvals": list(range(len(drawn))), "ticktext": [label(name) for name in names]}
    slow_s = [bin.to_s for row in drawn for bin in row.histogram]
    found = figure(traces, analysis.epoch_axis, LATENCY, xaxis=ticks, yaxis=time_axis(slow_s), height=420)
    slowest = max(drawn, key=lambda row: row.p99_s or 0.0)
    known = [row.p50_s for row in drawn if row.p50_s]
    ends = [duration(min(known)), duration(max(known))] if known else [duration(None)]
    medians = " to ".join(dict.fromkeys(ends))
    slow = f"in the slowest epoch ({name_of(analysis, slowest)})" if len(drawn) > 1 else "in it"
    more = f" Drawn are {VIOLINS_MOST} of {len(rows)}." if len(rows) > VIOLINS_MOST else ""
    alt = f"The median is {medians}; {slow} one in a hundred took more than {duration(slowest.p99_s)}.{more}"
    return Chart("violins", title, alt, found, [_row(row) for row in drawn])


def _outline(row: LatencyEpoch, at: int) -> Figure:
    """The violin as a closed line: width by tuples per bin, the bins being equally wide on the axis."""
    bins = {
        round(HISTOGRAM_BINS_PER_DOUBLING * math.log2(bin.from_s)): bin.tuples
        for bin in row.histogram
        if bin.from_s > 0
    }
    if not bins:
        bins = {round(HISTOGRAM_BINS_PER_DOUBLING * math.log2(row.histogram[0].to_s)): 1.0}
    half = len(SMOOTHING) // 2
    numbers = range(min(bins) - half, max(bins) + half + 1)
    widths = [sum(w * bins.get(n + k - half, 0.0) for k, w in enumerate(SMOOTHING)) for n in numbers]
    most = max(widths) or 1.0
    right = [0.42 * width / most for width in widths]
    middle_s = [round(2 ** ((n + 0.5) / HISTOGRAM_BINS_PER_DOUBLING), 9) for n in numbers]
    x = [at + width for width in right] + [at - width for width in reversed(right)]
    return {
        "type": "scatter", "mode": "lines", "fill": "toself", "fillcolor": "@blue-soft", "hoverinfo": "skip",
        "line": {"color": "@blue", "width": 1.5, "shape": "spline"}, "showlegend": False,
        "x": [round(value, 4) for value in x], "y": middle_s + middle_s[::-1], "name": f"epoch {row.epoch}",
    }  # fmt: skip


def time_axis(values_s: list[float]) -> dict[str, Any]:
    """A logarithmic axis for these times whose ticks say their unit."""
    above = [value for value in values_s if value > 0]
    if not above:
        return {"type": "log"}
    low, high = math.floor(math.log10(min(above))) - 1, math.ceil(math.log10(max(above))) + 1
    steps = (1, 2, 5) if high - low <= 5 else (1,)
    ticks = [step * 10.0**power for power in range(low, high) for step in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [duration(tick) for tick in ticks]}


def quantiles(analysis: Analysis, rows: list[LatencyEpoch]) -> Chart:
    """Median, 95th and 99th percentile from epoch to epoch."""
    title = "Quantiles of latency from epoch to epoch"
    if not rows:
        return nothing("latency-quantiles", title, "no latency was recorded")
    shown = rows[: 4 * VIOLINS_MOST]
    x = [label(name_of(analysis, row)) for row in shown]
    traces = []
    for key, what, colour, dash in QUANTILES:
        trace = line(x, [getattr(row, key) for row in shown], what, colour, dash=dash)
        traces.append(trace | {"mode": "lines+markers"})
    slow_s = [value for row in shown for key, *_ in QUANTILES if (value := getattr(row, key))]
    drawn = figure(
        traces, analysis.epoch_axis, LATENCY, xaxis={"type": "category"}, yaxis=time_axis(slow_s), height=340
    )
    worst = max(shown, key=lambda row: row.p99_s or 0.0)
    alt = f"99 % of the tuples took at most {duration(worst.p99_s)} in the slowest epoch ({name_of(analysis, worst)})."
    return Chart("latency-quantiles", title, alt, drawn, [_row(row) for row in shown])


def _row(row: LatencyEpoch) -> dict[str, Any]:
    times = {
        key.replace("_s", ""): duration(getattr(row, key))
        for key in ("mean_s", "p50_s", "p95_s", "p99_s", "max_s")
    }
    path = {"run": row.run, "epoch": row.epoch, "from": row.source, "to": row.sink}
    return path | {"tuples": number(row.tuples)} | times
