"""What is placed so far, and how much of each node is free. Pure."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headgate.controller.plan.placing.problem import SLACK, Counts, Problem


class Board:
    """`free`: of each node; `at`: per group, node → tasks; `left`: per group, tasks that are nowhere yet."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.each = [group.each for group in problem.groups]
        self.slack = SLACK * max([node.capacity for node in problem.nodes], default=0.0)
        self.free = [node.capacity for node in problem.nodes]
        self.at: list[dict[int, int]] = [{} for _ in problem.groups]
        self.left = [group.tasks for group in problem.groups]
        self._heap = [(-free, node) for node, free in enumerate(self.free)]
        heapify(self._heap)

    def emptiest(self) -> int:
        """The node with the most free; the first of several."""
        heap, free = self._heap, self.free
        while -heap[0][0] != free[heap[0][1]]:  # was noted before something was put there
            heappop(heap)
        return heap[0][1]

    def fits(self, group: int, node: int) -> int:
        """How many tasks of a group a node holds."""
        each = self.each[group]
        if each <= 0:
            return self.left[group]
        return int((self.free[node] + self.slack) / each)

    def put(self, group: int, node: int, tasks: int) -> None:
        if tasks <= 0:
            return
        at = self.at[group]
        at[node] = at.get(node, 0) + tasks
        self.left[group] -= tasks
        self._set_free(node, self.free[node] - tasks * self.each[group])

    @property
    def counts(self) -> Counts:
        return tuple(self.at)

    def fuse(self, one: int, other: int) -> tuple[int, int] | None:
        """Put all that is on the smaller of two nodes onto the other, if that holds it (Alg. 1, lines 18 to 23):
        (the node that is empty now, the other)."""
        nodes = self.problem.nodes
        emptied, kept = (one, other) if nodes[one].capacity < nodes[other].capacity else (other, one)
        load = nodes[emptied].capacity - self.free[emptied]
        if load > self.free[kept] + self.slack:
            return None
        for at in self.at:
            moved = at.pop(emptied, 0)
            if moved:
                at[kept] = at.get(kept, 0) + moved
        self._set_free(kept, self.free[kept] - load)
        self._set_free(emptied, nodes[emptied].capacity)
        return emptied, kept

    def put_rest(self) -> None:
        """Alg. 3: what is left, the dearest first, one by one to the emptiest node; a task that fits nowhere has one
        other task moved out of its way. If tasks are out then, all is put anew so that they fit, whatever it saves."""
        if not any(self.left):
            return
        order = sorted(
            (g for g, left in enumerate(self.left) if left), key=lambda g: self.each[g], reverse=True
        )
        for group in order:
            while self.left[group]:
                found: int | None = self.emptiest()
                if not self.fits(group, self.emptiest()):
                    found = self._room_made(self.each[group])
                if found is None:
                    break
                self.put(group, found, 1)
        if any(self.left):
            self._put_anew()

    def _room_made(self, need: float) -> int | None:
        """The emptiest node that holds `need` once one task of it is moved to another, which is done."""
        order = sorted(range(len(self.free)), key=self.free.__getitem__, reverse=True)
        for node in order:
            for group, at in enumerate(self.at):
                each = self.each[group]
                if not (at.get(node) and each < need <= self.free[node] + each + self.slack):
                    continue
                other = next((n for n in order if n != node), None)
                if other is not None and each <= self.free[other] + self.slack:
                    self.take(group, node)
                    self.put(group, other, 1)
                    return node
        return None

    def _put_anew(self) -> None:
        """All tasks, the dearest first, each to the fullest node that holds it; kept if all of them fit."""
        fresh = Board(self.problem)
        for group in sorted(range(len(self.each)), key=self.each.__getitem__, reverse=True):
            while fresh.left[group]:
                nodes = [node for node in range(len(fresh.free)) if fresh.fits(group, node)]
                if not nodes:
                    return
                node = min(nodes, key=fresh.free.__getitem__)
                fresh.put(group, node, min(fresh.left[group], fresh.fits(group, node)))
        self.free, self.at, self.left, self._heap = fresh.free, fresh.at, fresh.left, fresh._heap

    def take(self, group: int, node: int) -> None:
        """One task off a node."""
        at = self.at[group]
        at[node] -= 1
        if not at[node]:
            del at[node]
        self.left[group] += 1
        self._set_free(node, self.free[node] + self.each[group])

    def _set_free(self, node: int, free: float) -> None:
        self.free[node] = free
        heappush(self._heap, (-free, node))
