"""Every question asked, a few at once: the rows of all result tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from headgate.dashboards.analytics.analyses import (
    latency_analyses,
    load_analyses,
    prediction_analyses,
    rate_seasons,
    replan_analyses,
    run_analyses,
    slot_analyses,
)
from headgate.dashboards.analytics.analyses.analysis_input import AnalysisInput
from headgate.dashboards.analytics.analyses.earlier_run import ComparedWith
from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.result_tables import LeftOut, StabilityAnswer, changes

Tell = Callable[[str], None]
Rows = dict[str, Sequence[msgspec.Struct]]


@dataclass
class AnswersSoFar:
    """Each question adds its tables. more: what the summary has besides; wholes: figures of whole runs; torn, no_steps:
    what could not be read."""

    rows: Rows = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    wholes: list[run_analyses.Whole] = field(default_factory=list)
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
    windows, found.more["growing"] = load_analyses.windows(asked)
    hurt = latency_analyses.episodes(asked)
    epochs = load_analyses.epochs(asked, hurt)
    found.rows |= {"episodes": hurt, "stability": [*epochs, *windows]}
    questions: dict[str, Callable[[], None]] = {
        "predicted against actual": partial(_predicted, asked, found, hurt),
        "bottlenecks and interference": partial(_limits, asked, found, epochs),
        "cost and re-plans": partial(_plans, asked, found),
        "seasons and models": partial(_models, asked, found, to),
        "latency and traffic": partial(_traffic, asked, found),
    }

    for name, ask in questions.items():
        tell(name)
        ask()
    found.rows["run_figures"] = own = run_analyses.figures(asked, found.rows, *found.wholes)
    found.rows["run_changes"] = list(changes(own, before.figures, before.named))
    found.rows["policies_tried"] = list(before.policies)
    found.rows["left_out"] = [*left, *found.torn, *found.no_steps]
    return found.rows, found.more


def _predicted(asked: AnalysisInput, found: AnswersSoFar, hurt: Any) -> None:
    rows, hard = found.rows, prediction_analyses.tried(asked, hurt)
    rows["residuals"] = prediction_analyses.residuals(asked, hard)
    rows["rate_windows"], rows["slots_predicted"] = (
        prediction_analyses.series(asked, hard),
        prediction_analyses.scatter(asked),
    )
    rows["latency_foreseen"] = latency_analyses.foreseen(asked)
    found.more["r2_epochs"] = prediction_analyses.r2_epochs(asked, hard)


def _limits(asked: AnalysisInput, found: AnswersSoFar, epochs: Sequence[StabilityAnswer]) -> None:
    rows = found.rows
    rows["bottlenecks"] = load_analyses.bottlenecks(asked)
    rows["interference"] = slot_analyses.interference(asked)
    rows["slot_speeds"], rows["pair_costs"] = slot_analyses.speeds(asked)
    rows["leaks"] = slot_analyses.leaks(asked, epochs)
    rows["skewed_threads"] = load_analyses.skewed(asked)


def _plans(asked: AnalysisInput, found: AnswersSoFar) -> None:
    found.rows["cost"] = run_analyses.cost(asked)
    found.rows["replans"], found.torn = replan_analyses.replans(asked)
    found.rows["tuples_told"], found.rows["run_notes"] = replan_analyses.told(asked)


def _models(asked: AnalysisInput, found: AnswersSoFar, to: DataPlace) -> None:
    found.rows["seasons"], found.rows["forecast"] = rate_seasons.seasons(asked, to / "seasons")
    found.rows["refitted"] = prediction_analyses.refit(asked, to / "models")


def _traffic(asked: AnalysisInput, found: AnswersSoFar) -> None:
    rows = found.rows
    rows["latency_epochs"], rows["pairs"] = latency_analyses.epochs(asked), latency_analyses.pairs(asked)
    found.more["latency_ms"] = latency_analyses.overall_ms(asked)
    found.wholes += [run_analyses.latencies(asked), run_analyses.rates(asked)]
    rows["tasks_residuals"], rows["residual_map"] = (
        prediction_analyses.tasks(asked),
        prediction_analyses.residual_map(asked),
    )
    rows["steps"], rows["step_slots"], found.no_steps = load_analyses.steps(asked)
