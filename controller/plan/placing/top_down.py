"""Top-down allocation (paper 2, Alg. 4 and 5): whole pairs of groups, split only where they do not fit. Pure.

Readings: a balanced split takes one task of the smaller group and ⌊|vⱼ|/|vᵢ|⌋ of the larger, and σ is what these cost;
where not even that fits, one task of each goes together if it fits. With a group that is placed a split goes on over
its nodes, the one with most of its tasks first. Linear in groups, flows and splits.

Ours: what is left of one group when the other is used up goes beside that one's tasks, where there is room; as printed
it is left to later pairs and Alg. 3.
"""

from __future__ import annotations

from headgate.controller.plan.placing.placement_problem import Bins, Counts, Order, Problem, significance


def top_down(problem: Problem, as_printed: bool = False, order: Order = significance) -> Counts:
    """How many tasks of each group go where; tasks that fit nowhere are left out: as printed without another try."""
    board = Bins(problem)
    if not problem.nodes:
        return board.counts
    left, at = board.left, board.at
    for flow in order(problem):
        a, b = flow.a, flow.b
        if left[a] and left[b]:
            _both(board, a, b)
            if as_printed:
                continue
            if left[a]:
                _beside(board, b, a)
            elif left[b]:
                _beside(board, a, b)
        elif left[a]:
            _beside(board, b, a)
        elif left[b]:
            _beside(board, a, b)
        elif len(at[a]) == len(at[b]) == 1 and at[a].keys() != at[b].keys():
            board.fuse(*at[a], *at[b])
    board.put_rest(repair=not as_printed)
    return board.counts


def _both(board: Bins, a: int, b: int) -> None:
    """Alg. 5, mode both: neither group is all placed, and what is left of them goes together, node after node."""
    left, each, slack = board.left, board.each, board.slack
    while left[a] and left[b]:
        node = board.emptiest()
        free = board.free[node] + slack
        small, large = (b, a) if left[a] > left[b] else (a, b)
        if left[a] * each[a] + left[b] * each[b] <= free:
            count, others = left[small], left[large]
        else:
            ratio = left[large] // left[small]
            split = each[small] + each[large] * ratio
            count = min(left[small], int(free / split)) if split > 0 else left[small]
            others = count * ratio
            if not count:
                if each[small] + each[large] > free:
                    return  # nor on any other node: this is the emptiest
                count = others = 1
        board.put(small, node, count)
        board.put(large, node, others)


def _beside(board: Bins, placed: int, group: int) -> None:
    """Alg. 5, mode second: to the nodes of a group that is placed, where most is saved first."""
    at = board.at[placed]
    for node in sorted(at, key=at.__getitem__, reverse=True):
        board.put(group, node, min(board.left[group], board.fits(group, node)))
        if not board.left[group]:
            return
