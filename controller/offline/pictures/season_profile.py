"""What comes back within a period: the middle, and the most in 95 of 100 periods."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headgate.controller.offline.pictures import drawing
from headgate.controller.offline.pictures.drawing import AMBER, BLUE, tint

if TYPE_CHECKING:
    from headgate.controller.knowledge.season_data import LearnedSeason

PANEL_IN, LEFT_IN, RIGHT_IN = 2.6, 0.75, 0.2


def season_picture(season: LearnedSeason, path: str | os.PathLike[str]) -> None:
    """Write the picture of a season. Raises as `plan_picture` does."""
    learned = season.learned
    whose = f" of {season.topology}" if season.topology else ""
    sentence = f"A season{whose} of {season.period_s:g} s, learned from {learned.periods} periods"
    beneath = (
        f"Off by {learned.held_out.error:.0%} of the mean on what was held out; what came 15 s before is off by "
        f"{learned.held_out.error_of_level:.0%}."
    )
    height_in = drawing.headline_in(sentence, beneath) + PANEL_IN + 0.75
    with drawing.drawn(path, height_in) as figure:
        top_in = drawing.headline(figure, sentence, beneath) + 0.2
        axes = drawing.axes_at(figure, LEFT_IN, top_in, drawing.WIDTH_IN - LEFT_IN - RIGHT_IN, PANEL_IN)
        parts = len(season.middle)
        at_s = [season.period_s * part / parts for part in range(parts)]
        axes.fill_between(at_s, season.middle, season.high, color=tint(AMBER), linewidth=0)
        axes.plot(at_s, season.high, color=AMBER, linewidth=0.9, label="at most, in 95 of 100 periods")
        axes.plot(at_s, season.middle, color=BLUE, label="in the middle of all periods")
        axes.set_xlim(0, season.period_s)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("seconds of a period")
        axes.set_ylabel("tuples/s")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
