"""Ours: the better of task-level and top-down, then tasks moved and exchanged as long as that saves traffic. Pure.

Every step saves more than a rounding and keeps each node within its capacity, so it ends; `MOST_STEPS` and `MOST_LOOKS`
bound it anyhow.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.controller.plan.placing.optimal import worth_of
from headgate.controller.plan.placing.problem import SLACK, Counts, Problem
from headgate.controller.plan.placing.task_level import task_level
from headgate.controller.plan.placing.top_down import top_down

MOST_PAIRS = 20_000  # of tasks, up to which task-level allocation is tried as well
MOST_STEPS = 2_000  # that are taken
MOST_LOOKS = 2_000_000  # places looked at for them


def refined(problem: Problem) -> Counts:
    """How many tasks of each group go where; tasks that fit nowhere are left out."""
    starts = [top_down(problem)]
    if sum(problem.groups[f.a].tasks * problem.groups[f.b].tasks for f in problem.flows) <= MOST_PAIRS:
        starts.append(task_level(problem))
    return max((_Refining(problem, start).counts() for start in starts), key=lambda c: worth_of(problem, c))


class _Refining:
    def __init__(self, problem: Problem, start: Counts) -> None:
        self._at = [dict(at) for at in start]
        self._each = [group.each for group in problem.groups]
        self._links: list[dict[int, float]] = [{} for _ in problem.groups]
        for flow in problem.flows:
            link = flow.traffic / (problem.groups[flow.a].tasks * problem.groups[flow.b].tasks)
            self._links[flow.a][flow.b] = self._links[flow.b][flow.a] = link
        self._free = [node.capacity for node in problem.nodes]
        for group, at in enumerate(self._at):
            for node, count in at.items():
                self._free[node] -= count * self._each[group]
        self._slack = SLACK * max(self._free, default=0.0)
        self._least = 1e-9 * problem.total_traffic
        self._looks = 0

    def counts(self) -> Counts:
        for _ in range(MOST_STEPS):
            gain, steps = max(self._steps(), default=(0.0, ()), key=lambda found: found[0])
            if gain <= self._least:
                break
            for group, source, target in steps:
                self._move(group, source, target)
        return tuple(self._at)

    def _steps(self) -> Iterator[tuple[float, tuple[tuple[int, int, int], ...]]]:
        """(what it saves, the moves of one task each) of every move and exchange that nodes have room for."""
        nodes = range(len(self._free))
        for group, at in enumerate(self._at):
            for source in list(at):
                here = self._pull(group, source)
                for target in nodes:
                    if target == source or self._looks > MOST_LOOKS:
                        continue
                    self._looks += 1
                    there = self._pull(group, target)
                    if self._free[target] + self._slack >= self._each[group]:
                        yield there - here, ((group, source, target),)
                    yield from self._exchanges(group, source, target, there - here)

    def _exchanges(
        self, group: int, source: int, target: int, gain: float
    ) -> Iterator[tuple[float, tuple[tuple[int, int, int], ...]]]:
        for other, at in enumerate(self._at):
            if other == group or target not in at:
                continue
            self._looks += 1
            more = self._each[group] - self._each[other]
            if more > self._free[target] + self._slack or -more > self._free[source] + self._slack:
                continue
            back = self._pull(other, source) - self._pull(other, target)
            link = self._links[group].get(other, 0.0)
            yield gain + back - 2 * link, ((group, source, target), (other, target, source))

    def _pull(self, group: int, node: int) -> float:
        """What one task of a group says to all that is on a node."""
        return sum(link * self._at[other].get(node, 0) for other, link in self._links[group].items())

    def _move(self, group: int, source: int, target: int) -> None:
        at, each = self._at[group], self._each[group]
        at[source] -= 1
        if not at[source]:
            del at[source]
        at[target] = at.get(target, 0) + 1
        self._free[source] += each
        self._free[target] -= each
