"""Charts of predicted against actual: rates, CPU and memory (paper 0, Fig. 9 to 12), and the residuals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headgate.dashboards.analytics.storage import result_tables as r
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.report_charts import (
    Chart,
    drawn_map,
    figure,
    heatmap,
    line,
    nothing,
    points,
    style,
)
from headgate.dashboards.report.report_facts import fit_of, most_offered
from headgate.dashboards.report.report_wording import number, percent
from headgate.dashboards.report.report_wording import points as points_of

GROUPS_MOST = 9  # epochs or runs told apart in a scatter plot; the others are one group
CELLS_MOST = 60  # columns of a residual map

Pairs = dict[str, list[tuple[float, float]]]  # group → (predicted, actual)
SCATTERS: dict[str, tuple[str, str, float, type[Any], str, str]] = {
    # what, unit, factor, table, predicted, actual
    "rate": ("Rate", "rows/s", 1.0, r.RateWindow, "predicted_tps", "acked_tps"),
    "cpu": ("CPU of a slot", "% of the slot", 100.0, r.SlotPredicted, "predicted_cpu", "cpu"),
    "memory": ("Memory of a slot", "% of the slot", 100.0, r.SlotPredicted, "predicted_memory", "memory"),
    "tasks": ("Rate of a task in an epoch", "rows/s", 1.0, r.TaskResidual, "predicted_tps", "rate_tps"),
}


def fidelity(analysis: Analysis) -> list[Chart]:
    return [*(scatter(analysis, of) for of in SCATTERS), residual_map(analysis)]


def _pairs(analysis: Analysis, of: str) -> Pairs:
    _, _, factor, table, predicted, actual = SCATTERS[of]
    pairs: Pairs = {}
    for row in analysis.rows(table):
        p, a = getattr(row, predicted), getattr(row, actual)
        if p is None or a is None or (of == "rate" and not row.tried):
            continue
        run = f"epoch {row.epoch}" if len(analysis.runs) == 1 else f"run {analysis.runs.index(row.run) + 1}"
        pairs.setdefault(row.task if of == "tasks" else run, []).append((p * factor, a * factor))
    return pairs


def scatter(analysis: Analysis, of: str) -> Chart:
    """Predicted (x) against actual (y) with the identity line."""
    what, unit, *_ = SCATTERS[of]
    title, pairs = f"{what}: predicted against actual", _pairs(analysis, of)
    if not pairs:
        why = "nothing was predicted for what was measured"
        windows = [window for window in analysis.rows(r.RateWindow) if window.predicted_tps]
        if of == "rate" and windows:
            why = f"the predicted rate was never tried: {most_offered(windows)}"
        return nothing(f"scatter-{of}", title, why)
    axis = {"range": bounds(value for group in pairs.values() for pair in group for value in pair)}
    identity = line(axis["range"], axis["range"], "as predicted", "@grey", dash="dash", width=1.5)
    traces = [identity | {"hoverinfo": "skip"}]
    for index, (name, group) in enumerate(_few(pairs).items()):
        x, y = ([round(value, 6) for value in side] for side in zip(*group, strict=True))
        traces.append(points(x, y, name, *style(index), size=7, opacity=0.75))
    drawn = figure(traces, f"predicted, {unit}", f"actual, {unit}", height=430, xaxis=axis, yaxis=axis)
    rows = [
        {"group": name, "predicted": p, "actual": a, "residual": a - p}
        for name, group in pairs.items()
        for p, a in group
    ]
    return Chart(f"scatter-{of}", title, reading(analysis, of, pairs), drawn, rows, wide=False)


def reading(analysis: Analysis, of: str, pairs: Pairs) -> str:
    """How far off the points are, in a line; of a slot over all samples, of which the points are means."""
    flat = [pair for group in pairs.values() for pair in group]
    fit = fit_of(analysis, of)
    r2 = f"; R² {number(fit['r2'])}" if fit.get("r2") is not None else ""
    above = sum(actual > predicted for predicted, actual in flat)
    side = f"{above:,} of {len(flat):,} {'point' if len(flat) == 1 else 'points'} lie above the line"
    if of in ("cpu", "memory"):
        if fit.get("mae") is None:
            return f"{side[0].upper()}{side[1:]}."
        samples = f" over {fit['n']:,} samples, of which the points are means" if fit.get("n") else ""
        return f"Off by {points_of(fit['mae'])} of the slot in the mean{samples}{r2}; {side}."
    scale = sum(abs(actual) for _, actual in flat)
    error = sum(abs(actual - predicted) for predicted, actual in flat)
    share = f"Off by {percent(error / scale, 2)} of what came, in the mean" if scale else "Nothing came"
    return f"{share}{r2}; {side}."


def bounds(values: Iterable[float]) -> list[float]:
    """What both axes show: from 0, unless all values are far from it."""
    every = list(values)
    low, high = min(every), max(every)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return [0.0 if 0 <= low <= high / 2 else low - room, high + room]


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
    sums: dict[tuple[str, str], list[float]] = {}
    for cell in analysis.rows(r.ResidualCell):
        if cell.residual is not None:
            entry = sums.setdefault((cell.task, f"{cell.vm}/{cell.slot}"), [0.0, 0.0])
            entry[0] += 100 * cell.residual * cell.windows
            entry[1] += cell.windows
    means = {key: total / weight for key, (total, weight) in sums.items() if weight}
    if not means:
        return nothing("residual-map", title, "no slot has both a measured and a predicted CPU")
    tasks, slots = _order(task for task, _ in means), _order(slot for _, slot in means)[:CELLS_MOST]
    limit = max(abs(value) for value in means.values()) or 1.0
    scale = [[0, "@blue"], [0.5, "@paper"], [1, "@orange"]]
    heat = heatmap(slots, tasks, lambda *key: means.get(key), "points of CPU", "%{z:+.1f}", zmin=-limit, zmax=limit,
                   colorscale=scale)  # fmt: skip
    task, slot = worst = max(means, key=lambda key: abs(means[key]))
    way = "more" if means[worst] > 0 else "less"
    alt = (
        f"Furthest off in the mean: {task} in {slot}, {abs(means[worst]):.1f} points of the slot's CPU {way} "
        "than predicted. Errors in both directions cancel here; their sizes are in the table of errors."
    )
    rows = [{"task": t, "slot": s, "residual in points": value} for (t, s), value in means.items()]
    return drawn_map("residual-map", title, "slot", heat, alt, rows)


def _order(names: Iterable[str]) -> list[str]:
    """Each once, vm2/1 before vm10/0."""
    return sorted(set(names), key=lambda name: [(len(part), part) for part in name.split("/")])
