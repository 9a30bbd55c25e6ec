"""Task-level allocation (paper 2, Alg. 1 to 3): pairs of tasks, the most significant groups' first. Pure.

Readings: a pair's cost is taken off once (line 13 takes one task's twice); a pair that is on one node already is passed
over; pairs of one pair of groups, among which the paper has no order, come by turns of both groups. Quadratic in tasks.
"""

from __future__ import annotations

from headgate.controller.plan.placing.placement_problem import (
    Bins,
    Counts,
    Order,
    Problem,
    in_turns,
    significance,
)

NOWHERE = -1


def task_level(problem: Problem, as_printed: bool = False, order: Order = significance) -> Counts:
    """How many tasks of each group go where; tasks that fit nowhere are left out: as printed without another try."""
    if not problem.nodes:
        return Bins(problem).counts
    board = Bins(problem)
    where = [[NOWHERE] * group.tasks for group in problem.groups]
    last = NOWHERE
    for flow in order(problem):
        a, b = flow.a, flow.b
        fresh = True  # a new pair of groups begins at the emptiest node (Alg. 2, line 3)
        for m, n in in_turns(problem.groups[a].tasks, problem.groups[b].tasks):
            at_m, at_n = where[a][m], where[b][n]
            if at_m == NOWHERE or at_n == NOWHERE:
                need = board.each[a] * (at_m == NOWHERE) + board.each[b] * (at_n == NOWHERE)
                if at_m != at_n:
                    node = at_n if at_m == NOWHERE else at_m
                elif fresh or need > board.free[last] + board.slack:
                    node = board.emptiest()
                else:
                    node = last
                fresh, last = False, node
                if need <= board.free[node] + board.slack:
                    if at_m == NOWHERE:
                        where[a][m] = node
                        board.put(a, node, 1)
                    if at_n == NOWHERE:
                        where[b][n] = node
                        board.put(b, node, 1)
            elif at_m != at_n and (fused := board.fuse(at_m, at_n)) is not None:
                for places in where:
                    places[:] = [fused[1] if place == fused[0] else place for place in places]
    board.put_rest(repair=not as_printed)
    return board.counts
