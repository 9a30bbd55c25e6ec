"""Every algorithm that places groups of tasks, by name, and an answer with its gap. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headgate.controller.plan.placing.optimal import SECONDS, optimal, relaxed, worth_of
from headgate.controller.plan.placing.problem import Counts, Problem, missing, saved
from headgate.controller.plan.placing.refined import refined
from headgate.controller.plan.placing.task_level import task_level
from headgate.controller.plan.placing.top_down import top_down


class Placer(msgspec.Struct, frozen=True):
    """`place`: None: by integer programming."""

    place: Callable[[Problem], Counts] | None
    source: str


PLACERS = {
    "task-level": Placer(task_level, "paper 2, Alg. 1 to 3"),
    "top-down": Placer(top_down, "paper 2, Alg. 4 and 5"),
    "refined": Placer(refined, "ours: the better of both, improved step by step"),
    "optimal": Placer(
        None, "integer programming; the refined one where there are too many contents of nodes"
    ),
}


class JudgedPlacement(msgspec.Struct, frozen=True):
    """counts: per group, node → tasks. bound: no placement of all tasks saves more (None: tasks are nowhere).
    timed_out: the solver ran out of time before the bound was met."""

    counts: Counts
    saved: float
    missing: dict[str, int]
    bound: float | None
    timed_out: bool = False

    @property
    def gap(self) -> float | None:
        """By what part of the bound it may be below the best."""
        if self.bound is None:
            return None
        return max(0.0, 1 - self.saved / self.bound) if self.bound > 0 else 0.0


def placed(problem: Problem, algorithm: str) -> Counts:
    """The counts of an algorithm that needs no solver."""
    place = PLACERS[algorithm].place
    return (place or refined)(problem)


def judged(problem: Problem, counts: Counts) -> JudgedPlacement:
    """An answer with its gap."""
    left, value = missing(problem, counts), saved(problem, counts)
    return JudgedPlacement(counts, value, left, None if left else max(value, relaxed(problem)))


def best(problem: Problem, seconds: float = SECONDS) -> JudgedPlacement:
    """The best placement; the best found when the time runs out, or where it is not looked for."""
    near = refined(problem)
    found = optimal(problem, seconds)
    if found is None:
        return judged(problem, near)
    counts = near
    if found.counts is not None:
        counts = max(near, found.counts, key=lambda one: worth_of(problem, one))
    left = missing(problem, counts)
    value = saved(problem, counts)
    return JudgedPlacement(counts, value, left, None if left else max(value, found.bound), not found.proved)
