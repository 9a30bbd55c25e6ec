"""The run over time: rates offered, finished, planned and predicted, with every re-plan as a marker."""

from __future__ import annotations

import math
from typing import Any

from headgate.dashboards.analytics.storage.result_tables import (
    HISTOGRAM_BINS_PER_DOUBLING,
    BottleneckAnswer,
    Episode,
    Interference,
    LatencyEpoch,
    Leak,
    Pair,
    PairCost,
    RateWindow,
    Replan,
    RunNote,
    SkewedThread,
    SlotSpeed,
    StabilityAnswer,
    TaskResidual,
)
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.findings import episodes_of, findings
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
    spelled,
)
from headgate.dashboards.report.report_story import lasted_s, span, whole_windows
from headgate.dashboards.report.report_wording import count, duration, listed, number, percent
from headgate.topology_runtime.stability.trial_evidence import UNSTABLE_SLOPE

LINES = (
    ("offered_tps", "offered", "@grey", "solid", 2),
    ("acked_tps", "acked (finished)", "@blue", "solid", 3),
    ("planned_tps", "planned for", "@orange", "dash", 2),
    ("predicted_tps", "predicted to carry", "@red", "dot", 2),
)
SHADED: Figure = {
    "type": "scatter", "mode": "markers", "x": [None], "y": [None], "name": "rows waited for long",
    "marker": {"symbol": "square", "size": 12, "color": "@orange-soft"}, "hoverinfo": "skip",
}  # fmt: skip


def timeline_section(analysis: Analysis) -> Section:
    runs = analysis.runs
    replans = [_replan_row(replan) for replan in analysis.rows(Replan)]
    charts = [chart(analysis, run, runs) for run in runs[:RUNS_DRAWN]]
    if not charts:
        charts = [nothing("timeline", "Rates over time", "no rates were recorded")]
    more = [f"Drawn are the first {RUNS_DRAWN} of {len(runs)} runs."] if len(runs) > RUNS_DRAWN else []
    return Section(
        "timeline",
        "Timeline",
        more,
        charts,
        [
            Table("Plans, and what each cost", replans, "no decisions were recorded"),
            Table(
                "What else happened, in the controller's words",
                [spelled(note) for note in analysis.rows(RunNote)],
                "nothing, or not recorded",
            ),
        ],
    )


def chart(analysis: Analysis, run: str, runs: list[str]) -> Chart:
    """The rates of one run."""
    title = f"Rates over time{name_in(run, runs)}"
    name = "timeline" if len(runs) == 1 else f"timeline-{runs.index(run) + 1}"
    windows = sorted(analysis.rows(RateWindow, run), key=lambda window: (window.at_s, window.epoch))
    if not windows:
        return nothing(name, title, "no rates were recorded")
    replans = sorted(analysis.rows(Replan, run), key=lambda replan: replan.at_s)
    begun = {replan.epoch: replan.at_s for replan in replans}
    episodes = episodes_of(analysis, run)
    traces = [_line(windows, begun, *look) for look in LINES]
    highest = max((getattr(w, key) or 0.0 for w in windows for key, *_ in LINES), default=0.0) or 1.0
    shapes = [*(_shade(one) for one in episodes), *(_rule(replan.at_s) for replan in replans)]
    if episodes:
        traces.append(SHADED)
    if replans:
        traces.append(markers(replans, highest * 1.08))
    drawn = figure(
        traces,
        "seconds after the start",
        "rows/s",
        shapes=shapes,
        yaxis={"rangemode": "tozero"},
        height=420,
    )
    return Chart(name, title, _alt(analysis, run, replans, episodes), drawn, [_window(w) for w in windows])


def _line(
    windows: list[RateWindow],
    begun: dict[int, float],
    key: str,
    words: str,
    colour: str,
    dash: str,
    width: int,
) -> Figure:
    """Rates at the middle of their windows; what a plan says, in steps from when it was decided (`begun`, by epoch)."""
    measured = dash == "solid"
    middle = [window.at_s + window.window_s / 2 for window in windows]
    said = [max(window.at_s, begun.get(window.epoch, 0.0)) for window in windows]
    x = [round(at_s, 3) for at_s in (middle if measured else said)]
    y = [getattr(window, key) for window in windows]
    if measured:
        x, y = _with_gaps(windows, x, y)
    drawn = line(x, y, words, colour, dash=dash, width=width)
    if not measured:
        drawn["line"]["shape"] = "hv"
    return drawn


def _with_gaps(
    windows: list[RateWindow], x: list[float], y: list[float | None]
) -> tuple[list[float], list[float | None]]:
    """Where nothing was recorded for a window or more there is no line."""
    gap_x: list[float] = []
    gap_y: list[float | None] = []
    for index, (at_s, value) in enumerate(zip(x, y, strict=True)):
        if index and at_s - x[index - 1] > 1.9 * windows[index].window_s:
            gap_x.append(at_s)
            gap_y.append(None)
        gap_x.append(at_s)
        gap_y.append(value)
    return gap_x, gap_y


def markers(replans: list[Replan], height: float) -> Figure:
    """A numbered marker per plan; more about it when pointed at."""
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [replan.at_s for replan in replans],
        "y": [height] * len(replans),
        "text": [str(replan.epoch) for replan in replans],
        "textposition": "top center",
        "hovertext": [label(f"plan {r.epoch}: {r.reason}, {number(r.rate_tps)} rows/s") for r in replans],
        "hoverinfo": "text",
        "marker": {"symbol": "triangle-down", "size": 11, "color": "@ink"},
        "name": "plan (number of its epoch)",
        "cliponaxis": False,
    }


def _shade(one: Episode) -> dict[str, Any]:
    """From when to when rows waited for long."""
    ends = {"x0": one.from_s, "x1": one.to_s, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "rect", **ends, "fillcolor": "@orange-soft", "line": {"width": 0}, "layer": "below"}


def _rule(at_s: float) -> dict[str, Any]:
    ends = {"x0": at_s, "x1": at_s, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", **ends, "line": {"color": "@rule", "width": 1, "dash": "dot"}, "layer": "below"}


def _alt(analysis: Analysis, run: str, replans: list[Replan], episodes: list[Episode]) -> str:
    """What the chart shows in a line."""
    windows = whole_windows(analysis, run)
    offered = [w.offered_tps for w in windows if w.offered_tps is not None]
    acked = [w.acked_tps for w in windows if w.acked_tps is not None]
    rates = f"{span(offered)} rows/s were offered" if offered else "what was offered was not recorded"
    mean = f", {number(sum(acked) / len(acked))} finished in the mean" if acked else ""
    plans = "; no decisions were recorded" if not replans else f"; {count(len(replans), 'plan')}"
    hurt = [f"{duration(one.from_s)} to {duration(one.to_s)}" for one in episodes]
    waited = f" Shaded: rows waited for long, from {listed(hurt, 4)}." if hurt else ""
    return f"In {duration(lasted_s(analysis, run))}, {rates}{mean}{plans}.{waited}"


def _window(window: RateWindow) -> dict[str, Any]:
    return {
        "at s": window.at_s,
        "epoch": window.epoch,
        **{key.replace("_", " "): getattr(window, key) for key, *_ in LINES},
    }


def _replan_row(replan: Replan) -> dict[str, Any]:
    return {
        "run": replan.run,
        "epoch": replan.epoch,
        "at s": replan.at_s,
        "why": replan.reason,
        "planned for rows/s": replan.rate_tps,
        "predicted rows/s": replan.predicted_tps,
        "slots": replan.slots,
        "threads moved": replan.moves,
        "in force after": duration(replan.enacted_s),
        "paused for at most, ms": replan.pause_ms,
        "longest silence": duration(replan.silent_s),
        "dip": replan.dip,
        "in the controller's words": replan.text,
    }


# ── Latency from a source's intended emit time to a sink: violins per epoch (paper 0, Fig. 13) and
# quantiles

VIOLINS_MOST = 24
LATENCY = "latency (logarithmic)"
SMOOTHING = (1, 2, 3, 2, 1)  # over bins of 19 %
QUANTILES = (("p50_s", "median", "@blue", "solid"), ("p95_s", "95 %", "@orange", "dash"),
             ("p99_s", "99 %", "@red", "dot"))  # fmt: skip


def latency_section(analysis: Analysis) -> Section:
    rows = [row for row in analysis.rows(LatencyEpoch) if row.tuples > 0]
    words = [
        "Latency counts from when a row was due, not from when it was sent: a source that falls behind shows. "
        "The wider a violin, the more rows took so long."
    ]
    table = Table("Latency per epoch and path", [_path_row(row) for row in rows])
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
        return nothing("violins", title, "no row reached a sink while latency was sampled")
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
    return Chart("violins", title, alt, found, [_path_row(row) for row in drawn])


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
    alt = f"99 % of the rows took at most {duration(worst.p99_s)} in the slowest epoch ({name_of(analysis, worst)})."
    return Chart("latency-quantiles", title, alt, drawn, [_path_row(row) for row in shown])


def _path_row(row: LatencyEpoch) -> dict[str, Any]:
    times = {
        key.replace("_s", ""): duration(getattr(row, key))
        for key in ("mean_s", "p50_s", "p95_s", "p99_s", "max_s")
    }
    path = {"run": row.run, "epoch": row.epoch, "from": row.source, "to": row.sink}
    return path | {"tuples": number(row.tuples)} | times


# ── Where it is tight: is every epoch stable, which threads are the busiest, and who disturbs whom ──────

EPOCHS_MOST = 40
NONE, UNKNOWN = "none was found", "cannot be determined from this run"
VERDICTS = {
    True: ("stable", "@blue", "circle"),
    False: ("unstable", "@red", "x"),
    None: ("cannot be determined", "@grey", "circle-open"),
}


def strain_section(analysis: Analysis) -> Section:
    runs = analysis.runs
    found = [
        (f"Run {n}: " if len(runs) > 1 else "")
        + " ".join(sentence for _, sentence in findings(analysis, run))
        for n, run in enumerate(runs[:RUNS_DRAWN], 1)
    ]
    words = [
        f"A plan is stable when latency and queues do not grow: a slope of {UNSTABLE_SLOPE:g} s/s means that "
        f"{percent(UNSTABLE_SLOPE)} more is "
        "offered than can be done.",
        *found,
    ]
    charts = [stability(analysis), busy(analysis), interference(analysis)]
    tables = [
        Table("When rows waited for long, and before whom", [_episode(one) for one in analysis.rows(Episode)], NONE),
        Table(
            "The busiest groups of threads (a task in a slot)",
            [_bottleneck(b) for b in analysis.rows(BottleneckAnswer)],
        ),
        Table("How fast each slot is, against the others", [spelled(row) for row in analysis.rows(SlotSpeed)], UNKNOWN),
        Table("What tasks cost each other in a slot", [spelled(row) for row in analysis.rows(PairCost)], UNKNOWN),
        Table("Memory that only grew", [_leak(row) for row in analysis.rows(Leak)], NONE),
        Table(
            "Threads that took in twice what others of their task did, or more",
            [spelled(row) for row in analysis.rows(SkewedThread)],
            NONE,
        ),
        Table("Stability", [spelled(row) for row in analysis.rows(StabilityAnswer) if row.scope == "epoch"]),
        Table("Traffic between tasks", [spelled(row) for row in analysis.rows(Pair)]),
    ]  # fmt: skip
    return Section("strain", "Bottlenecks and stability", words, charts, tables)


def _episode(one: Episode) -> dict[str, Any]:
    return {
        "run": one.run, "path": f"{one.source} → {one.sink}", "from": duration(one.from_s), "to": duration(one.to_s),
        "longest wait": duration(one.peak_s), "usual": duration(one.usual_s), "rows": round(one.tuples),
        "held up by": f"{one.task} in {one.vm}/{one.slot}" if one.task else "nobody alone",
        "there for": duration(one.held_s), "busy": percent(one.busy_share),
    }  # fmt: skip


def _leak(leak: Leak) -> dict[str, Any]:
    return {
        "run": leak.run, "slot": f"{leak.vm}/{leak.slot}", "tasks": ", ".join(leak.tasks),
        "from": duration(leak.from_s), "to": duration(leak.to_s),
        "KiB/s": None if leak.bytes_per_s is None else leak.bytes_per_s / 1024,
        "held at the end": percent(leak.held), "full after": duration(leak.full_in_s),
    }  # fmt: skip


def stability(analysis: Analysis) -> Chart:
    """The slope of each epoch with its interval, the verdict as colour and shape."""
    title = "Is it stable? How fast latency grows, per epoch"
    rows = [row for row in analysis.rows(StabilityAnswer) if row.scope == "epoch" and row.slope is not None]
    if not rows:
        return nothing("stability", title, "no epoch has enough latency samples for a slope")
    rows = rows[: 2 * EPOCHS_MOST]
    traces = []
    for verdict, (words, colour, symbol) in VERDICTS.items():
        mine = [row for row in rows if row.stable is verdict]
        if not mine:
            continue
        slopes = [row.slope or 0.0 for row in mine]
        ups = [
            max(0.0, (s if r.slope_high is None else r.slope_high) - s)
            for r, s in zip(mine, slopes, strict=True)
        ]
        downs = [
            max(0.0, s - (s if r.slope_low is None else r.slope_low))
            for r, s in zip(mine, slopes, strict=True)
        ]
        bars = {"type": "data", "symmetric": False, "array": ups, "arrayminus": downs, "color": colour}
        traces.append({
            "type": "scatter", "mode": "markers", "name": words, "y": slopes, "error_y": bars,
            "x": [label(analysis.epoch_name(row.run, row.epoch)) for row in mine],
            "marker": {"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
        })  # fmt: skip
    limit = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": UNSTABLE_SLOPE, "y1": UNSTABLE_SLOPE,
             "line": {"color": "@red", "width": 1.5, "dash": "dash"}}  # fmt: skip
    order = list(dict.fromkeys(label(analysis.epoch_name(row.run, row.epoch)) for row in rows))
    axis = {"type": "category", "categoryorder": "array", "categoryarray": order}
    drawn = figure(
        traces, analysis.epoch_axis, "slope of latency, s/s", shapes=[limit], xaxis=axis, height=340
    )
    alt = _verdicts(analysis, rows)
    return Chart(
        "stability",
        title,
        f"{alt} Dashed: the limit of {UNSTABLE_SLOPE:g} s/s.",
        drawn,
        [spelled(row) for row in rows],
    )


def _verdicts(analysis: Analysis, rows: list[StabilityAnswer]) -> str:
    """Which epochs are unstable, and by what, and of which it cannot be determined."""
    words = []
    for title, its in (
        (
            "Unstable, latency grew",
            [r for r in rows if r.stable is False and (r.slope or 0.0) > UNSTABLE_SLOPE],
        ),
        (
            "Unstable, rows waited for long in it or queues grew",
            [r for r in rows if r.stable is False and (r.slope or 0.0) <= UNSTABLE_SLOPE],
        ),
        ("Cannot be determined", [r for r in rows if r.stable is None]),
    ):
        if its:
            names = dict.fromkeys(analysis.epoch_name(row.run, row.epoch) for row in its)
            words.append(f"{title}: {analysis.epoch_axis} {listed(list(names))}.")
    if all(row.stable for row in rows):
        words.append("No epoch was unstable.")
    return " ".join(words)


def busy(analysis: Analysis) -> Chart:
    """Task × epoch: the share of time that its threads are busy."""
    title = "How busy the threads of each task are"
    rows = [row for row in analysis.rows(TaskResidual) if row.busy_share is not None]
    if not rows:
        return nothing("busy", title, "no samples of tasks were recorded")
    share = {(row.task, analysis.epoch_name(row.run, row.epoch)): row.busy_share or 0.0 for row in rows}
    tasks = list(dict.fromkeys(task for task, _ in share))
    epochs = list(dict.fromkeys(epoch for _, epoch in share))[:EPOCHS_MOST]
    grid = [[_percent(share.get((task, epoch))) for epoch in epochs] for task in tasks]
    heat = {
        "type": "heatmap", "x": [label(e) for e in epochs], "y": [label(t) for t in tasks], "z": grid,
        "zmin": 0, "zmax": 100, "colorscale": [[0, "@paper"], [1, "@blue"]], "xgap": 2, "ygap": 2,
        "textfont": {"size": 13},
        "texttemplate": "%{z:.0f} %" if len(epochs) <= 16 else "", "hoverongaps": False,
        "colorbar": {"title": {"text": "% busy"}},
    }  # fmt: skip
    axes = {"yaxis": {"autorange": "reversed"}, "xaxis": {"type": "category"}}
    drawn = figure([heat], analysis.epoch_axis, "", height=170 + 34 * len(tasks), **axes)
    top = max(share, key=lambda key: share[key])
    alt = (
        f"The threads of {top[0]} were the busiest, in epoch {top[1]}: {percent(share[top])} of the time in the mean "
        "(what they wait for in their logic counts, too)."
    )
    return Chart("busy", title, alt, drawn, [spelled(row) for row in rows])


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


def interference(analysis: Analysis) -> Chart:
    """What a row costs beside other tasks, against alone."""
    title = "What sharing a slot costs: CPU per row beside others ÷ alone"
    rows = [row for row in analysis.rows(Interference) if row.ratio is not None]
    if not rows:
        why = "no task was seen both alone in a slot and beside others"
        return nothing("interference", title, why)
    rows = sorted(rows, key=lambda row: -(row.ratio or 0.0))[:EPOCHS_MOST]
    bars = {
        "type": "bar", "orientation": "h", "y": [label(_whose(analysis, row)) for row in rows],
        "x": [row.ratio for row in rows], "marker": {"color": "@blue"},
        "text": [f"× {number(row.ratio)}" for row in rows], "textposition": "auto", "showlegend": False,
    }  # fmt: skip
    one = {
        "type": "line",
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "x0": 1,
        "x1": 1,
        "line": {"color": "@ink", "width": 1.5},
    }
    axes = {"yaxis": {"autorange": "reversed"}, "xaxis": {"rangemode": "tozero"}}
    drawn = figure([bars], "× the CPU per row alone", "", shapes=[one], height=150 + 32 * len(rows), **axes)
    ratio = rows[0].ratio or 0.0
    if ratio > 1.0:
        alt = f"A row costs most more beside others for {rows[0].task}: × {number(ratio)} of what it costs alone."
    else:
        alt = f"No task costs more beside others than alone (highest: {rows[0].task}, × {number(ratio)})."
    return Chart("interference", title, alt, drawn, [spelled(row) for row in rows])


def _whose(analysis: Analysis, row: Interference) -> str:
    return row.task if len(analysis.runs) == 1 else f"{row.task}, run {analysis.runs.index(row.run) + 1}"


def _bottleneck(row: BottleneckAnswer) -> dict[str, Any]:
    return {
        "run": row.run, "epoch": row.epoch, "rank": row.rank, "task": row.task, "slot": f"{row.vm}/{row.slot}",
        "threads": row.threads, "busy": percent(row.busy_share), "CPU of the slot": percent(row.cpu_share),
        "queue": row.queue_mean, "queue grows, rows/s": row.queue_growth_tps,
    }  # fmt: skip
