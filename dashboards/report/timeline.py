"""The run over time: rates offered, finished, planned and predicted, with every re-plan as a marker."""

from __future__ import annotations

from typing import Any

from headgate.dashboards.analytics.results import Episode, RateWindow, Replan, RunNote
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.answers import lasted_s, span, whole_windows
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
from headgate.dashboards.report.episode_words import episodes_of
from headgate.dashboards.report.wording import count, duration, listed, number

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


def section(analysis: Analysis) -> Section:
    runs = analysis.runs
    replans = [_row(replan) for replan in analysis.rows(Replan)]
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
        "tuples/s",
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
        "hovertext": [label(f"plan {r.epoch}: {r.reason}, {number(r.rate_tps)} tuples/s") for r in replans],
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
    rates = f"{span(offered)} tuples/s were offered" if offered else "what was offered was not recorded"
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


def _row(replan: Replan) -> dict[str, Any]:
    return {
        "run": replan.run,
        "epoch": replan.epoch,
        "at s": replan.at_s,
        "why": replan.reason,
        "planned for tuples/s": replan.rate_tps,
        "predicted tuples/s": replan.predicted_tps,
        "slots": replan.slots,
        "threads moved": replan.moves,
        "in force after": duration(replan.enacted_s),
        "paused for at most, ms": replan.pause_ms,
        "longest silence": duration(replan.silent_s),
        "dip": replan.dip,
        "in the controller's words": replan.text,
    }
