"""What plans did over what they were predicted to do: CPU of slots, and the rates that were tested."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.controller.offline.pictures import drawing
from headgate.controller.offline.pictures.drawing import BLUE, DARK_RED, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from headgate.controller.knowledge.prediction_ledger import LedgerEntry

PANEL_IN, LEFT_IN, GAP_IN, RIGHT_IN = 3.2, 0.75, 0.85, 0.2

Points = Sequence[tuple[float, float]]  # predicted, measured


def ledger_picture(entries: Sequence[LedgerEntry], path: str | os.PathLike[str]) -> None:
    """Write the picture of these plans. Raises as `plan_picture` does."""
    runs = len({entry.run for entry in entries})
    sentence = f"{len(entries)} plans of {runs} runs: what they did over what was predicted"
    beneath = (
        "On the line they agree. Rates: of plans that were offered about what they carry, or fell short."
    )
    cpu = [(slot.predicted_cpu, slot.cpu) for entry in entries for slot in entry.slots]
    rates = {
        tested: [(e.rate.predicted_tps, e.rate.carried_tps) for e in entries if e.rate.tested == tested]
        for tested in ("carried", "short")
    }
    wide_in = (drawing.WIDTH_IN - LEFT_IN - GAP_IN - RIGHT_IN) / 2
    with drawing.drawn(path, drawing.headline_in(sentence, beneath) + PANEL_IN + 0.75) as figure:
        top_in = drawing.headline(figure, sentence, beneath) + 0.2
        left = drawing.axes_at(figure, LEFT_IN, top_in, wide_in, PANEL_IN)
        right = drawing.axes_at(figure, LEFT_IN + wide_in + GAP_IN, top_in, wide_in, PANEL_IN)
        _panel(left, {"slots": cpu}, "CPU of a slot")
        _panel(right, {"carried": rates["carried"], "fell short": rates["short"]}, "tuples/s")


def _panel(axes: Axes, series: dict[str, Points], unit: str) -> None:
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
