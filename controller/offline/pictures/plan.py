"""A plan in one picture: what it carries and what limits it, task by task, and what every slot holds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.controller.knowledge.models import Model, peak
from headgate.controller.knowledge.plans import Plan, usd_per_hour
from headgate.controller.offline.pictures import drawing, slot_map
from headgate.controller.offline.pictures.drawing import (
    DARK_RED,
    GREY,
    INK,
    SMALL_PT,
    number,
    shortened,
    tint,
)
from headgate.controller.offline.pictures.slot_map import TaskColours
from headgate.controller.plan.load import load_of
from headgate.topology_runtime.faults.words import counted
from headgate.topology_runtime.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TASKS = 24  # rows of the chart of tasks; more tasks than that: those that carry least
ROW_IN = 0.19
AXIS_IN = 0.46  # under the rows: ticks and what the axis means
MARKS_IN = 0.14  # above them: the names of the marked rates
LONGEST_NAME = 22  # letters of a task's name beside its row


@dataclass(frozen=True)
class Carried:
    """The input rate that the threads of `task` carry, each group as if alone in its slot."""

    task: str
    rate_tps: float
    limits: bool


def plan_picture(
    plan: Plan, topology: Topology, models: Mapping[str, Model], path: str | os.PathLike[str]
) -> None:
    """Write the picture of `plan` to `path` (.svg, .png, .pdf), whole or not at all.

    Raises UsageError for another suffix and without matplotlib, InvalidInput for a file that cannot be
    written."""
    slots = slot_map.slot_map(plan)
    look = _look(plan, topology, models)
    rows = carried(plan, topology, models)
    sentence, beneath = headline(plan), _beneath(plan, look, look.numbered(slots))
    chart_in = MARKS_IN + ROW_IN * len(rows) + AXIS_IN if rows else 0.0
    height_in = drawing.headline_in(sentence, beneath) + chart_in + slots.height_in + 0.15
    with drawing.drawn(path, height_in) as figure:
        sheet = drawing.paper(figure)
        top_in = drawing.headline(figure, sentence, beneath)
        if rows:
            _draw_carried(figure, plan, rows, look, top_in + MARKS_IN)
        slot_map.draw_map(sheet, slots, look, top_in + chart_in + 0.06)


def headline(plan: Plan) -> str:
    """The plan in a sentence: what it takes, what it carries, what gives way first."""
    found = plan.prediction
    words = (
        f"{plan.topology} at {number(plan.rate_tps)} tuples/s: {counted(plan.slots.total, 'slot')} on "
        f"{counted(len(plan.vms), 'VM')}, predicted {number(found.rate_tps)} tuples/s"
    )
    if found.limited_by is None:
        return words
    return f"{words}, limited by {found.limited_by} in {found.limited_by_slot}"


def carried(plan: Plan, topology: Topology, models: Mapping[str, Model]) -> list[Carried]:
    """Per modelled task, breadth first, with the plan's own routing shares; of more than `MOST_TASKS`
    tasks those that carry least, least first."""
    load = load_of(topology, models, plan.placement, plan.vms, shared_cpu=False)
    shares = load.in_order(plan.prediction.shares, load.peak_shares())
    rows = [
        Carried(load.tasks[task], rate_tps, load.tasks[task] == plan.prediction.limited_by)
        for task, rate_tps in load.ceilings(shares).items()
    ]
    if len(rows) <= MOST_TASKS:
        return rows
    return sorted(rows, key=lambda row: (not row.limits, row.rate_tps))[:MOST_TASKS]


def _look(plan: Plan, topology: Topology, models: Mapping[str, Model]) -> TaskColours:
    held = {bundle.task for bundle in plan.placement.bundles}
    tasks = [task for task in topology.breadth_first if task.name in held]
    modelled = [task for task in tasks if task.static is None and task.model_name in models]
    ordered = [*modelled, *(task for task in tasks if task not in modelled)]  # colours go to models first
    numbers = {task.name: place for place, task in enumerate(ordered)}
    return TaskColours(numbers, {task.name: peak(models[task.model_name])[1] for task in modelled})


def _beneath(plan: Plan, look: TaskColours, numbered: Sequence[str]) -> str:
    usd = usd_per_hour(plan.vms)
    words = [
        f"{plan.allocator} + {plan.mapper}, {plan.routing} routing"
        + (f", ${usd:,.3g} per hour" if usd else "")
        + f"; CPU and memory in % of each slot at {number(plan.prediction.at_rate_tps)} tuples/s.",
        slot_map.words_of_bars(look),
    ]
    words.append(slot_map.task_list(look, numbered))
    return " ".join(words)


# ── the chart of tasks ──────────────────────────────────────────────────────────────────────────


def _draw_carried(figure: Figure, plan: Plan, rows: list[Carried], look: TaskColours, top_in: float) -> None:
    names_in = min(
        2.2, 0.25 + max(drawing.text_in(shortened(row.task, LONGEST_NAME), SMALL_PT) for row in rows)
    )
    axes = drawing.axes_at(figure, names_in, top_in, 7.55 - names_in, ROW_IN * len(rows))
    places = range(len(rows))
    colours = [look.colour(row.task) for row in rows]
    asked_tps, found_tps = plan.rate_tps, plan.prediction.rate_tps
    end_tps = 1.12 * max(asked_tps, found_tps, min(max(row.rate_tps for row in rows), 2 * found_tps))
    axes.barh(places, [min(row.rate_tps, end_tps) for row in rows], 0.72, color=[tint(c) for c in colours])
    for place, row in zip(places, rows, strict=True):
        words = f"{number(row.rate_tps)}{_limit_words(plan, row)}"
        axes.text(
            0.006 * end_tps, place, words, fontsize=SMALL_PT, va="center_baseline",
            color=DARK_RED if row.limits else INK, fontweight="bold" if row.limits else "normal",
        )  # fmt: skip
        if row.rate_tps > end_tps:
            axes.text(end_tps, place, "▶ ", fontsize=SMALL_PT, ha="right", va="center_baseline", color=GREY)
    axes.set(xlim=(0, end_tps), ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(list(places), [shortened(row.task, LONGEST_NAME) for row in rows])
    axes.xaxis.set_major_formatter(lambda rate_tps, _: number(rate_tps))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(_axis_words(plan, len(rows)), labelpad=2)
    _mark_rates(axes, asked_tps, found_tps)


def _limit_words(plan: Plan, row: Carried) -> str:
    if not row.limits:
        return ""
    shared = row.rate_tps > 1.005 * plan.prediction.rate_tps
    return f"  limits: shares the CPU of {plan.prediction.limited_by_slot}" if shared else "  limits"


def _mark_rates(axes: Axes, asked_tps: float, found_tps: float) -> None:
    """The rate asked for, dashed, and the rate predicted, solid; words at the foot of the chart."""
    axes.axvline(asked_tps, color=INK, linestyle="--", linewidth=1.1)
    axes.axvline(found_tps, color=DARK_RED, linewidth=1.6)
    asked_right = asked_tps > found_tps
    for at_tps, words, colour, right in (
        (asked_tps, f"asked {number(asked_tps)}", INK, asked_right),
        (found_tps, f"predicted {number(found_tps)}", DARK_RED, not asked_right),
    ):
        axes.annotate(
            f" {words} ", (at_tps, 1.0), xycoords=("data", "axes fraction"), fontsize=SMALL_PT, color=colour,
            ha="left" if right else "right", va="bottom", annotation_clip=False,
        )  # fmt: skip


def _axis_words(plan: Plan, shown: int) -> str:
    words = "input rate in tuples/s that the threads of each task carry, alone in their slots"
    tasks = sum(not task.static for task in plan.allocation.tasks)
    return words if shown >= tasks else f"{words} (the {shown} of {tasks} tasks that carry least)"
