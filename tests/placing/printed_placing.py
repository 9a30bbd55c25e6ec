"""Paper 2's algorithms as they are printed, task by task, with no more state than the paper has.

Written from Alg. 1 to 5 and their text alone, as a reference for `task_level` and `top_down` as printed. What cannot
run as it is printed is read so: σ and k are of costs of tasks; the second slice is k ⌊|vⱼ|/|vᵢ|⌋ tasks; where k is 0,
one task of each goes if both fit, else both groups are left; a split of one group goes on over the other's nodes; line
13 of Alg. 1 takes both costs; line 23 moves all of a node. Ties: the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from headgate.controller.plan.placing.placement_problem import Flow, Problem

NULL = None
Task = tuple[int, int]  # group, number


class Nodes:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.initial = [node.capacity for node in problem.nodes]
        self.mu = list(self.initial)
        self.node: dict[Task, int | None] = {
            (g, n): NULL for g, group in enumerate(problem.groups) for n in range(group.tasks)
        }

    def cost(self, task: Task) -> float:
        group = self.problem.groups[task[0]]
        return group.cost / group.tasks

    def top(self) -> int:
        return max(range(len(self.mu)), key=lambda n: (self.mu[n], -n))

    def put(self, task: Task, node: int) -> None:
        self.mu[node] -= self.cost(task)
        self.node[task] = node

    def fuse(self, n_m: int, n_n: int) -> None:
        """Alg. 1, lines 18 to 23."""
        if self.initial[n_m] >= self.initial[n_n]:
            n_m, n_n = n_n, n_m
        used = self.initial[n_m] - self.mu[n_m]
        if used <= self.mu[n_n]:
            self.mu[n_m] = self.initial[n_m]
            self.mu[n_n] -= used
            for task, at in self.node.items():
                if at == n_m:
                    self.node[task] = n_n

    def allocate_single_tasks(self) -> bool:
        """Alg. 3, over whatever has no node."""
        rest = [task for task, at in self.node.items() if at is NULL]
        for task in sorted(rest, key=lambda t: (-self.cost(t), t)):
            if self.cost(task) <= self.mu[self.top()]:
                self.put(task, self.top())
        return NULL not in self.node.values()

    def repair(self) -> None:
        """Ours for what fits nowhere: a node gets room by one task that goes to the emptiest other node; tasks that
        are out even so are put anew with all others, the dearest first, each to the fullest node that holds it."""
        rest = [task for task, at in self.node.items() if at is NULL]
        for task in sorted(rest, key=lambda t: (-self.cost(t), t)):
            if self.cost(task) <= self.mu[self.top()]:
                self.put(task, self.top())
            elif (node := self._room_made(self.cost(task))) is not NULL:
                self.put(task, node)
        if NULL in self.node.values():
            self._put_anew()

    def _room_made(self, need: float) -> int | None:
        order = sorted(range(len(self.mu)), key=lambda n: (-self.mu[n], n))
        for node in order:
            others = [n for n in order if n != node]
            for task in sorted(t for t, at in self.node.items() if at == node):
                cost = self.cost(task)
                if cost < need <= self.mu[node] + cost and others and cost <= self.mu[others[0]]:
                    self.mu[node] += cost
                    self.put(task, others[0])
                    return node
        return NULL

    def _put_anew(self) -> None:
        mu, node = list(self.initial), dict.fromkeys(self.node, NULL)
        for task in sorted(node, key=lambda t: (-self.cost(t), t)):
            holding = [n for n in range(len(mu)) if mu[n] >= self.cost(task)]
            if not holding:
                return
            node[task] = min(holding, key=lambda n: (mu[n], n))
            mu[node[task]] -= self.cost(task)
        self.mu, self.node = mu, node

    def counts(self) -> list[dict[int, int]]:
        found: list[dict[int, int]] = [{} for _ in self.problem.groups]
        for (group, _), at in self.node.items():
            if at is not NULL:
                found[group][at] = found[group].get(at, 0) + 1
        return found

    def tasks(self, group: int) -> list[Task]:
        return [task for task in self.node if task[0] == group]


def _significance(problem: Problem) -> Callable[[Flow], float]:
    """Eq. 2."""

    def of(flow: Flow) -> float:
        cost = problem.groups[flow.a].cost + problem.groups[flow.b].cost
        return flow.traffic / cost if cost else math.inf

    return of


def printed_task_level(problem: Problem, repair: bool = False) -> list[dict[int, int]]:
    """Alg. 1 and 2. Pairs of one pair of groups by turns: the next task of one group, then of the other; then the
    pairs that are left over. repair: as ours does it, in place of Alg. 3."""
    nodes = Nodes(problem)
    significance = _significance(problem)
    pairs: list[tuple[Task, Task]] = []
    for flow in sorted(problem.flows, key=lambda f: -significance(f)):
        a, b = nodes.tasks(flow.a), nodes.tasks(flow.b)
        turns, m, n = [(0, 0)], 0, 0
        while (m, n) != (len(a) - 1, len(b) - 1):
            if n == len(b) - 1 or (m == n and m < len(a) - 1):
                m += 1
            else:
                n += 1
            turns.append((m, n))
        turns += [(m, n) for m in range(len(a)) for n in range(len(b)) if (m, n) not in turns]
        pairs += [(a[m], b[n]) for m, n in turns]
    last_groups, n_i = NULL, NULL
    for t_m, t_n in pairs:
        at_m, at_n = nodes.node[t_m], nodes.node[t_n]
        if at_m is NULL or at_n is NULL:
            c_m = nodes.cost(t_m) if at_m is NULL else 0.0
            c_n = nodes.cost(t_n) if at_n is NULL else 0.0
            if at_m is not NULL:
                n_i = at_m
            elif at_n is not NULL:
                n_i = at_n
            elif last_groups != (t_m[0], t_n[0]) or c_m + c_n > nodes.mu[n_i]:
                n_i = nodes.top()
            last_groups = (t_m[0], t_n[0])
            if c_m + c_n <= nodes.mu[n_i]:
                for task in (t_m, t_n):
                    if nodes.node[task] is NULL:
                        nodes.put(task, n_i)
        elif at_m != at_n:
            nodes.fuse(at_m, at_n)
    nodes.repair() if repair else nodes.allocate_single_tasks()
    return nodes.counts()


def printed_top_down(problem: Problem) -> list[dict[int, int]]:
    """Alg. 4."""
    nodes = Nodes(problem)
    significance = _significance(problem)
    for flow in sorted(problem.flows, key=lambda f: -significance(f)):
        groups = nodes.tasks(flow.a), nodes.tasks(flow.b)
        rest_i, rest_j = ([t for t in group if nodes.node[t] is NULL] for group in groups)  # resolveSplits
        if rest_i and rest_j:
            _allocate_both(nodes, rest_i, rest_j)
        elif rest_i or rest_j:
            allocated, rest = (groups[1], rest_i) if rest_i else (groups[0], rest_j)
            hosts = [nodes.node[t] for t in allocated]
            once = list(dict.fromkeys(hosts))
            _allocate_second(
                nodes, rest, sorted(once, key=lambda n: (-hosts.count(n), first_put(nodes, once, n)))
            )
        else:
            n_i, n_j = ({nodes.node[t] for t in group} for group in groups)
            if len(n_i) == len(n_j) == 1 and n_i != n_j:
                nodes.fuse(n_i.pop(), n_j.pop())
    nodes.allocate_single_tasks()
    return nodes.counts()


def first_put(nodes: Nodes, once: list[int | None], node: int | None) -> int:
    """Ties of line 14: in the order in which the group came to its nodes, which is that of its tasks."""
    return once.index(node)


def _allocate_both(nodes: Nodes, v_i: list[Task], v_j: list[Task]) -> None:
    """Alg. 5, mode both: recursion over what is left of both."""
    n_l = nodes.top()
    if sum(map(nodes.cost, v_i)) + sum(map(nodes.cost, v_j)) <= nodes.mu[n_l]:
        for task in (*v_i, *v_j):
            nodes.put(task, n_l)
        return
    if len(v_i) > len(v_j):
        v_i, v_j = v_j, v_i
    ratio = len(v_j) // len(v_i)
    sigma = nodes.cost(v_i[0]) + ratio * nodes.cost(v_j[0])
    k = min(len(v_i), math.floor(nodes.mu[n_l] / sigma))
    others = k * ratio
    if k == 0:
        if nodes.cost(v_i[0]) + nodes.cost(v_j[0]) > nodes.mu[n_l]:
            return
        k = others = 1
    for task in (*v_i[:k], *v_j[:others]):
        nodes.put(task, n_l)
    if v_i[k:] and v_j[others:]:
        _allocate_both(nodes, v_i[k:], v_j[others:])


def _allocate_second(nodes: Nodes, v_j: list[Task], hosts: list[int | None]) -> None:
    """Alg. 5, mode second."""
    for n_l in hosts:
        k = math.floor(nodes.mu[n_l] / nodes.cost(v_j[0])) if nodes.cost(v_j[0]) else len(v_j)
        for task in v_j[:k]:
            nodes.put(task, n_l)
        v_j = v_j[k:]
        if not v_j:
            return
