"""Predicted against actual: rates, CPU and memory (paper 0, Fig. 9 to 12), and where the residuals are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.dashboards.analytics.results import (
    RateWindow,
    ResidualCell,
    Residuals,
    SlotPredicted,
    TaskResidual,
)
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.charts import (
    Chart,
    Figure,
    Section,
    Table,
    figure,
    label,
    nothing,
    points,
    spelled,
)
from headgate.dashboards.report.trust import fit_of, most_offered
from headgate.dashboards.report.trust import points as points_of
from headgate.dashboards.report.wording import number, percent

GROUPS_MOST = 9  # epochs or runs told apart in a scatter plot; the others are one group
CELLS_MOST = 60  # columns of a residual map

Pairs = dict[str, list[tuple[float, float]]]  # group → (predicted, actual)
OF = {
    "tasks": ("Rate of a task in an epoch", "rows/s", 1.0),
    "rate": ("Rate", "tuples/s", 1.0),
    "cpu": ("CPU of a slot", "% of the slot", 100.0),
    "memory": ("Memory of a slot", "% of the slot", 100.0),
}


def section(analysis: Analysis) -> Section:
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
