"""Where it is tight: is every epoch stable, which threads are the busiest, and who disturbs whom."""

from __future__ import annotations

from typing import Any

from headgate.dashboards.analytics.results import (
    BottleneckAnswer,
    Episode,
    Interference,
    Leak,
    Pair,
    PairCost,
    SkewedThread,
    SlotSpeed,
    StabilityAnswer,
    TaskResidual,
)
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.charts import (
    RUNS_DRAWN,
    Chart,
    Section,
    Table,
    figure,
    label,
    nothing,
    spelled,
)
from headgate.dashboards.report.findings import findings
from headgate.dashboards.report.wording import duration, listed, number, percent
from headgate.topology_runtime.stability.evidence import UNSTABLE_SLOPE

EPOCHS_MOST = 40
NONE, UNKNOWN = "none was found", "cannot be told from this run"
VERDICTS = {
    True: ("stable", "@blue", "circle"),
    False: ("unstable", "@red", "x"),
    None: ("cannot be told", "@grey", "circle-open"),
}


def section(analysis: Analysis) -> Section:
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
    """Which epochs are unstable, and by what, and of which it cannot be told."""
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
        ("Cannot be told", [r for r in rows if r.stable is None]),
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
