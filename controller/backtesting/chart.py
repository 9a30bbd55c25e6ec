"""What a policy planned for rates that came: the plan in force against the offer, and what waited."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headgate.controller.offline.pictures import drawing
from headgate.controller.offline.pictures.drawing import AMBER, BLUE, DARK_RED, INK, tint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from headgate.controller.backtesting.policy_score import ScoreSeries

PANEL_IN, BETWEEN_IN, LEFT_IN, RIGHT_IN = 2.2, 0.32, 0.75, 0.2


def backtest_picture(sentence: str, time: ScoreSeries, path: str | os.PathLike[str]) -> None:
    """Write the picture of one trial. Raises as `plan_picture` does."""
    beneath = "Red: what came above the plan in force."
    height_in = drawing.headline_in(sentence, beneath) + 2 * (PANEL_IN + BETWEEN_IN) + 0.4
    with drawing.drawn(path, height_in) as figure:
        top_in = drawing.headline(figure, sentence, beneath) + 0.1
        wide_in = drawing.WIDTH_IN - LEFT_IN - RIGHT_IN
        upper = drawing.axes_at(figure, LEFT_IN, top_in, wide_in, PANEL_IN)
        lower = drawing.axes_at(figure, LEFT_IN, top_in + PANEL_IN + BETWEEN_IN, wide_in, PANEL_IN)
        _rates(upper, time)
        lower.plot(time.at_s, time.backlog, color=AMBER)
        lower.set_ylabel("rows that wait")
        lower.set_xlabel("seconds")
        for axes in (upper, lower):
            axes.set_xlim(0, time.at_s[-1])
            axes.set_ylim(bottom=0)
        upper.tick_params(labelbottom=False)


def _rates(axes: Axes, time: ScoreSeries) -> None:
    axes.plot(time.at_s, time.offered_tps, color=INK, linewidth=0.9, label="offered")
    axes.plot(time.at_s, time.planned_tps, color=BLUE, drawstyle="steps-pre", label="planned")
    above = [offered > carried for offered, carried in zip(time.offered_tps, time.carried_tps, strict=True)]
    axes.fill_between(
        time.at_s,
        time.carried_tps,
        time.offered_tps,
        where=above,
        color=tint(DARK_RED),
        step="pre",
        linewidth=0,
    )
    axes.set_ylabel("tuples/s")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
