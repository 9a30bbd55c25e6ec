"""Model curves as in paper 0, Fig. 3: peak rate, CPU and memory against the threads in one slot."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.controller.models.task_models import Model, half_widths, peak
from headgate.controller.pictures import drawing
from headgate.controller.pictures.drawing import AMBER, BLUE, DARK_RED, GREY, INK, SMALL_PT, number
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headgate.controller.models.prediction_ledger import LedgerEntry

MOST_COLUMNS = 3
MOST_MODELS = 60
RATE_IN, USE_IN, TITLE_IN, BETWEEN_IN, FOOT_IN = 1.25, 0.95, 0.38, 0.14, 0.66
LEFT_IN, GAP_IN = 0.62, 0.55
BLOCK_IN = TITLE_IN + RATE_IN + BETWEEN_IN + USE_IN + FOOT_IN

Named = tuple[str, Model]  # what this model is called in its panel, "" when it is the only one
# per curve of one panel: colour of the rate, dashes, and what the marker's face is
_TURNS = ((BLUE, "-", None), (DARK_RED, "--", "white"))


def model_picture(models: Sequence[Model], path: str | os.PathLike[str]) -> None:
    """Write one pair of panels per model: rows/s above, CPU and memory in % of the slot below, a band
    for the spread where the model knows it, and a mark at (τ̂, ω̂). Raises as `plan_picture` does."""
    sentence = " and ".join(
        f"{model.task} peaks at {number(peak(model)[0])} rows/s with {counted(peak(model)[1], 'thread')}"
        for model in models[:1]
    )
    if len(models) > 1:
        sentence = f"Peak rate, CPU and memory of {counted(len(models), 'task')} against threads in one slot"
    _write([(model.task, [("", model)]) for model in models], sentence, path)


def model_pairs_picture(
    pairs: Sequence[tuple[Model, Model]], names: tuple[str, str], path: str | os.PathLike[str]
) -> None:
    """Two models of each task in the same panels: the first solid, the second dashed with hollow marks."""
    panels = [(one.task, [(names[0], one), (names[1], other)]) for one, other in pairs]
    _write(panels, f"{names[0]} (solid) against {names[1]} (dashed, hollow)", path)


def _write(
    panels: Sequence[tuple[str, Sequence[Named]]], sentence: str, path: str | os.PathLike[str]
) -> None:
    shown = panels[:MOST_MODELS]
    beneath = "Star: the peak ω̂ of a slot, at the fewest threads τ̂ that reach it."
    if any(point.spread for _, curves in shown for _, m in curves for point in m.points):
        beneath += " Bands: spread of repeated trials."
    if len(shown) < len(panels):
        beneath += f" {len(panels) - len(shown)} tasks more are not shown."
    columns = 2 if len(shown) == 4 else min(len(shown), MOST_COLUMNS)
    rows = -(-len(shown) // columns)
    width_in = (drawing.WIDTH_IN - LEFT_IN - 0.2 - GAP_IN * (columns - 1)) / columns
    with drawing.drawn(path, drawing.headline_in(sentence, beneath) + rows * BLOCK_IN) as figure:
        top_in = drawing.headline(figure, sentence, beneath)
        for place, (task, curves) in enumerate(shown):
            row, column = divmod(place, columns)
            left_in = LEFT_IN + column * (width_in + GAP_IN)
            _panel(figure, task, curves, (left_in, top_in + row * BLOCK_IN + TITLE_IN, width_in))


def _panel(figure: Figure, task: str, curves: Sequence[Named], at: tuple[float, float, float]) -> None:
    """The two axes of one task; `at`: left, top and width in inches."""
    left_in, top_in, width_in = at
    rate = drawing.axes_at(figure, left_in, top_in, width_in, RATE_IN)
    use = drawing.axes_at(figure, left_in, top_in + RATE_IN + BETWEEN_IN, width_in, USE_IN)
    for number_, (_, model) in enumerate(curves):
        _curves(rate, use, model, number_)
    models = [model for _, model in curves]
    _peaks(rate, models)
    rate.set_title(drawing.shortened(task, 14), loc="left", pad=4)
    most = max(model.points[-1].threads for model in models)
    for axes in (rate, use):
        axes.set_xlim(0, most * 1.08 + 0.2)
        axes.locator_params(axis="x", nbins=6, integer=True)
    rate.tick_params(labelbottom=False)
    rate.set_ylim(0, 1.12 * max(point.rate_tps for model in models for point in model.points))
    rate.locator_params(axis="y", nbins=5)
    rate.yaxis.set_major_formatter(lambda rate_tps, _: number(rate_tps))
    highest = max(max(point.cpu, point.memory) for model in models for point in model.points)
    use.set_ylim(0, max(105.0, 110 * highest))
    use.set_yticks([0, 50, 100])
    use.set_xlabel("threads", labelpad=1)
    if left_in == LEFT_IN:
        rate.set_ylabel("rows/s")
        use.set_ylabel("% of slot")
    use.legend(
        loc="upper left", bbox_to_anchor=(-0.02, -0.34), ncols=2, handlelength=2.2,
        columnspacing=1.2, borderaxespad=0.0,
    )  # fmt: skip


def _curves(rate: Axes, use: Axes, model: Model, turn: int) -> None:
    colour, dashes, face = _TURNS[turn % len(_TURNS)]
    threads = [point.threads for point in model.points]
    for place, (axes, key, times, tone, marker, name) in enumerate(
        (
            (rate, "rate_tps", 1, colour, "o", ""),
            (use, "cpu", 100, BLUE, "s", "CPU"),
            (use, "memory", 100, AMBER, "^", "memory"),
        )
    ):
        values = [times * getattr(point, key) for point in model.points]
        label = name if turn == 0 and name else None
        axes.plot(threads, values, color=tone, linestyle=dashes, marker=marker, mfc=face or tone, label=label)
        half = [times * half_widths(point)[place] for point in model.points]
        if any(half):
            axes.errorbar(threads, values, half, fmt="none", ecolor=tone, elinewidth=1.0, capsize=2.5)
            low = [v - h for v, h in zip(values, half, strict=True)]
            high = [v + h for v, h in zip(values, half, strict=True)]
            axes.fill_between(threads, low, high, color=tone, alpha=0.22, linewidth=0)


def _peaks(axes: Axes, models: Sequence[Model]) -> None:
    """A star at (τ̂, ω̂) of each model, with the numbers over the panel, the first model's on top."""
    for turn, model in enumerate(models):
        rate_tps, threads = peak(model)
        colour = _TURNS[turn % len(_TURNS)][0]
        axes.plot(
            [threads], [rate_tps], marker="*", markersize=11, color=colour, mec="white", mew=0.6, zorder=5
        )
        words = f"ω̂ {number(rate_tps)} at τ̂ {number(threads)}"
        axes.text(
            1.0, 1.03 + 0.12 * (len(models) - 1 - turn), words, transform=axes.transAxes, ha="right",
            va="bottom", fontsize=SMALL_PT, color=colour if len(models) > 1 else INK,
        )  # fmt: skip
        axes.axvline(threads, color=GREY, linewidth=0.6, linestyle=":")


# ── What plans did over what they were predicted to do: CPU of slots, and the rates that were tested ────

PANEL_IN, MEASURED_LEFT_IN, MEASURED_GAP_IN, RIGHT_IN = 3.2, 0.75, 0.85, 0.2

Points = Sequence[tuple[float, float]]  # predicted, measured


def ledger_picture(entries: Sequence[LedgerEntry], path: str | os.PathLike[str]) -> None:
    runs = len({entry.run for entry in entries})
    sentence = f"{len(entries)} plans of {runs} runs: what they did over what was predicted"
    beneath = (
        "On the line they agree. Rates: of plans that were offered about what they carry, or fell short."
    )
    cpu = [(slot.predicted_cpu, slot.cpu) for entry in entries for slot in entry.slots]
    rates = {
        tested: [
            (e.rate.told_tps, e.rate.carried_tps)
            for e in entries
            if e.rate.tested == tested and e.rate.told_tps is not None
        ]
        for tested in ("carried", "short")
    }
    wide_in = (drawing.WIDTH_IN - MEASURED_LEFT_IN - MEASURED_GAP_IN - RIGHT_IN) / 2
    with drawing.drawn(path, drawing.headline_in(sentence, beneath) + PANEL_IN + 0.75) as figure:
        top_in = drawing.headline(figure, sentence, beneath) + 0.2
        left = drawing.axes_at(figure, MEASURED_LEFT_IN, top_in, wide_in, PANEL_IN)
        right = drawing.axes_at(
            figure, MEASURED_LEFT_IN + wide_in + MEASURED_GAP_IN, top_in, wide_in, PANEL_IN
        )
        _measured_panel(left, {"slots": cpu}, "CPU of a slot")
        _measured_panel(right, {"carried": rates["carried"], "fell short": rates["short"]}, "rows/s")


def _measured_panel(axes: Axes, series: dict[str, Points], unit: str) -> None:
    most = max((max(point) for points in series.values() for point in points), default=1.0) * 1.05
    axes.plot([0, most], [0, most], color=GREY, linewidth=0.8)
    for (name, points), colour in zip(series.items(), (BLUE, DARK_RED), strict=False):
        xs, ys = [x for x, _ in points], [y for _, y in points]
        axes.plot(xs, ys, linestyle="none", marker="o", markersize=3.2, color=colour, alpha=0.6, label=name)
    axes.set_xlim(0, most)
    axes.set_ylim(0, most)
    axes.set_xlabel(f"{unit}, predicted")
    axes.set_ylabel(f"{unit}, measured")
    if len(series) > 1:
        axes.legend(loc="upper left")
