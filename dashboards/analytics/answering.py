"""Every question asked, a few at once: the rows of all result tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from headgate.dashboards.analytics.analyses import (
    bottlenecks,
    cost,
    episodes,
    figures,
    interference,
    latency,
    leaks,
    load_steps,
    pairs,
    refit,
    replans,
    residuals,
    seasons,
    skew,
    speeds,
    stability,
    tasks,
    told,
)
from headgate.dashboards.analytics.asked import AnalysisInput
from headgate.dashboards.analytics.data_places import DataPlace
from headgate.dashboards.analytics.earlier import ComparedWith
from headgate.dashboards.analytics.results import LeftOut
from headgate.dashboards.analytics.run_figures import changes
from headgate.dashboards.analytics.spark import side_by_side

Tell = Callable[[str], None]
Rows = dict[str, Sequence[msgspec.Struct]]


@dataclass
class AnswersSoFar:
    """Each question adds its tables. more: what the summary has besides; wholes: figures of whole runs; torn, no_steps:
    what could not be read."""

    rows: Rows = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    wholes: list[figures.Whole] = field(default_factory=list)
    torn: list[LeftOut] = field(default_factory=list)
    no_steps: list[LeftOut] = field(default_factory=list)


def answers(
    asked: AnalysisInput,
    to: DataPlace,
    left: Iterable[LeftOut],
    tell: Tell,
    before: ComparedWith,
) -> tuple[Rows, dict[str, Any]]:
    """The rows of every result table, and what the summary has besides; refitted models go into `to`/models, what a
    controller can foresee by into `to`/seasons. `before`: what the runs are compared with."""
    found = AnswersSoFar()
    tell("stability")
    windows, found.more["growing"] = stability.windows(asked)
    hurt = episodes.episodes(asked)
    found.rows |= {"episodes": hurt, "stability": [*stability.epochs(asked, hurt), *windows]}
    questions: dict[str, Callable[[], None]] = {
        "predicted against actual": partial(_predicted, asked, found, hurt),
        "bottlenecks and interference": partial(_limits, asked, found),
        "cost and re-plans": partial(_plans, asked, found),
        "seasons and models": partial(_models, asked, found, to),
        "latency and traffic": partial(_traffic, asked, found),
    }

    def ask(name: str) -> None:
        tell(name)
        questions[name]()

    side_by_side(asked.spark, [partial(ask, name) for name in questions])
    found.rows["run_figures"] = own = figures.figures(asked, found.rows, *found.wholes)
    found.rows["run_changes"] = list(changes(own, before.figures, before.named))
    found.rows["policies_tried"] = list(before.policies)
    found.rows["left_out"] = [*left, *found.torn, *found.no_steps]
    return found.rows, found.more


def _predicted(asked: AnalysisInput, found: AnswersSoFar, hurt: Any) -> None:
    rows, hard = found.rows, residuals.tried(asked, hurt)
    rows["residuals"] = residuals.residuals(asked, hard)
    rows["rate_windows"], rows["slots_predicted"] = residuals.series(asked, hard), residuals.scatter(asked)
    found.more["r2_epochs"] = residuals.r2_epochs(asked, hard)


def _limits(asked: AnalysisInput, found: AnswersSoFar) -> None:
    rows = found.rows
    rows["bottlenecks"] = bottlenecks.bottlenecks(asked)
    rows["interference"] = interference.interference(asked)
    rows["slot_speeds"], rows["pair_costs"] = speeds.speeds(asked)
    rows["leaks"], rows["skewed_threads"] = leaks.leaks(asked), skew.skewed(asked)


def _plans(asked: AnalysisInput, found: AnswersSoFar) -> None:
    found.rows["cost"] = cost.cost(asked)
    found.rows["replans"], found.torn = replans.replans(asked)
    found.rows["tuples_told"], found.rows["run_notes"] = told.told(asked)


def _models(asked: AnalysisInput, found: AnswersSoFar, to: DataPlace) -> None:
    found.rows["seasons"], found.rows["forecast"] = seasons.seasons(asked, to / "seasons")
    found.rows["refitted"] = refit.refit(asked, to / "models")


def _traffic(asked: AnalysisInput, found: AnswersSoFar) -> None:
    rows = found.rows
    rows["latency_epochs"], rows["pairs"] = latency.epochs(asked), pairs.pairs(asked)
    found.more["latency_ms"] = latency.overall_ms(asked)
    found.wholes += [figures.latencies(asked), figures.rates(asked)]
    rows["tasks_residuals"], rows["residual_map"] = tasks.tasks(asked), tasks.residual_map(asked)
    rows["steps"], rows["step_slots"], found.no_steps = load_steps.steps(asked)
