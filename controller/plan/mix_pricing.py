"""The mix that is worth most by given prices: exactly, or no more than a bound that is told. Pure.

A slot has 1 of CPU and 1 of memory. Of each task one *item* may be in it: some threads, fed at their peak or less, or
some counted threads. Memory counts whole and CPU by how much an item is fed, so at most one item of the worthiest mix
is fed less than it could be, and it takes the CPU that the others leave. The search goes through the tasks and keeps
what may be in a slot so far as rows of an array (CPU, memory, worth); a row goes that another one dominates, and so
does one that cannot come to more than is wanted, by what CPU and memory are worth to the linear program of the whole
(two multipliers). Where rows are too many, those with the least prospects go, and the highest of their prospects is
part of the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.controller.plan.linear_program import LinearProgram
from headgate.topology_runtime.patience import waited_s

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

FEW_ROWS = 100  # that are kept when all effort is spent
SLACK = 1e-9  # what sums of CPU and memory may be over


class Item(msgspec.Struct, frozen=True):
    """What of a task may be in a slot: so many threads. divisible: it may be fed less, and then is worth less and takes
    less CPU."""

    task: int
    cpu: float
    memory: float
    worth: float
    divisible: bool
    threads: int


@dataclass(slots=True)
class Effort:
    """What may still be spent on searches: rows that are looked at. So the same problem takes the same searches on any
    machine; when it is spent, few rows are kept. most_s: after so long, where somebody waits, all of it is spent."""

    rows: int
    most_s: float = math.inf
    late: bool = False

    def spent(self) -> bool:
        """Is nothing left?"""
        if not self.late and waited_s() > self.most_s:
            self.rows, self.late = 0, True
        return self.rows <= 0


class Chosen(msgspec.Struct, frozen=True):
    """worth: of these items, each fed by so large a part."""

    worth: float
    items: tuple[tuple[Item, float], ...]


def worthiest(
    items: Sequence[Item], least: float, most_rows: int, proving: bool, effort: Effort, count: int = 4
) -> tuple[list[Chosen], float]:
    """(the worthiest mixes that were found, so many, and are worth more than `least`, the best first; what none is
    worth more than). most_rows: that are kept from one task to the next. proving: with as low a bound as it gets."""
    by_task: dict[int, list[Item]] = {}
    for item in items:
        if item.worth > 0:
            by_task.setdefault(item.task, []).append(item)
    if not by_task:
        return [], least
    tasks = [_undominated(of) for of in by_task.values()]
    tasks.sort(key=lambda of: -max(item.worth for item in of))
    worths = _multipliers(tasks)
    search = _Search(tasks, worths, least, most_rows, effort)
    found, bound = search.run(count)
    if found or not proving:
        return found, bound
    bound = max(least, search.dropped)
    for most, last in search.doubtful:
        if effort.spent():
            return [], max(bound, most)  # of those that are left none may be worth more
        others = [of for of in tasks if of[0].task != last.task]
        search = _Search(others, worths, least, most_rows, effort, last)
        found, _ = search.run(count)
        bound = max(bound, search.dropped)
        if found:
            return found, max(bound, found[0].worth)
    return [], bound


def _undominated(items: Sequence[Item]) -> list[Item]:
    """Without items of a task that need no less than another one and are worth no more."""
    kept: list[Item] = []
    for item in sorted(items, key=lambda one: (-one.worth, one.cpu, one.memory)):
        dense = [one for one in kept if not item.divisible or one.cpu * item.worth <= item.cpu * one.worth]
        if not any(one.cpu <= item.cpu and one.memory <= item.memory for one in dense):
            kept.append(item)
    return kept


def _multipliers(tasks: Sequence[Sequence[Item]]) -> tuple[float, float]:
    """What all of a slot's CPU and all of its memory are worth at least, so that no mix is worth more than both and
    what each task has beyond: the dual of the mixes' linear program."""
    program = LinearProgram([1.0, 1.0, *[1.0] * len(tasks)], uppers=[math.inf] * (2 + len(tasks)))
    for place, items in enumerate(tasks):
        for item in items:
            program.add(item.worth, math.inf, {0: item.cpu, 1: item.memory, 2 + place: 1.0})
    x, _ = program.solve()
    return max(0.0, x[0]), max(0.0, x[1])


class _Search:
    """Of these items, task by task; `least`: mixes that are worth no more are not looked for. last: the item that takes
    the CPU which the others leave, of none of their tasks; None: any may be it."""

    def __init__(
        self,
        tasks: Sequence[Sequence[Item]],
        worths: tuple[float, float],
        least: float,
        most_rows: int,
        effort: Effort,
        last: Item | None = None,
    ) -> None:
        import numpy as np

        self._np = np
        self._tasks, self._worths, self._least, self._most = tasks, worths, least, most_rows
        self._effort = effort
        beyond = [max(0.0, *(self._beyond(item) for item in items)) for items in tasks]
        self._rest = [math.fsum(beyond[place:]) for place in range(len(tasks) + 1)]
        self._last = last
        if last is None:  # one of those gone through may still be the last
            self._lastly = list(accumulate(beyond, max))
        else:
            alone = worths[1] * last.memory
            self._lastly = [alone + max(-alone, self._beyond(last))] * len(tasks)
        self.dropped = 0.0  # the most that what was dropped may be worth
        self.doubtful: list[
            tuple[float, Item]
        ] = []  # (how worthy at most, item) of which one as `last` might be

    def _beyond(self, item: Item) -> float:
        return item.worth - self._worths[0] * item.cpu - self._worths[1] * item.memory

    def run(self, count: int) -> tuple[list[Chosen], float]:
        np = self._np
        rows = np.zeros((1, 3))
        rows[0, 1] = self._last.memory if self._last is not None else 0.0
        picked = np.full((1, len(self._tasks)), -1, dtype=np.int16)
        for place, items in enumerate(self._tasks):
            parts, marks = [rows], [picked]
            for number, item in enumerate(items):
                fits = (rows[:, 0] + item.cpu <= 1 + SLACK) & (rows[:, 1] + item.memory <= 1 + SLACK)
                if fits.any():
                    parts.append(rows[fits] + (item.cpu, item.memory, item.worth))
                    with_it = picked[fits]
                    with_it[:, place] = number
                    marks.append(with_it)
            rows, picked = self._pruned(np.concatenate(parts), np.concatenate(marks), place)
        return self._finished(rows, picked, count)

    def _pruned(self, rows: Array, picked: Any, place: int) -> tuple[Array, Any]:
        np = self._np
        prospects = self._prospects(rows) + self._rest[place + 1] + self._lastly[place]
        order = np.argsort(-prospects, kind="stable")
        order = order[: np.searchsorted(-prospects[order], -self._least)]
        if len(order) > 1:
            order = order[self._undominated(rows[order])]
        self._effort.rows -= len(rows)
        most = min(FEW_ROWS, self._most) if self._effort.spent() else self._most
        if len(order) > most:
            self.dropped = max(self.dropped, float(prospects[order[most]]))
            order = order[:most]
        return rows[order], picked[order]

    def _prospects(self, rows: Array) -> Array:
        cpu_worth, memory_worth = self._worths
        return rows[:, 2] + cpu_worth * (1 - rows[:, 0]) + memory_worth * (1 - rows[:, 1])

    def _undominated(self, rows: Array) -> Any:
        """Marks of rows that none of the first ones dominates."""
        np = self._np
        kept = np.ones(len(rows), dtype=bool)
        for number in range(min(48, len(rows))):
            if kept[number]:
                one = rows[number]
                worse = (rows[:, 0] >= one[0]) & (rows[:, 1] >= one[1]) & (rows[:, 2] <= one[2])
                worse[: number + 1] = False
                kept &= ~worse
        return kept

    def _finished(self, rows: Array, picked: Any, count: int) -> tuple[list[Chosen], float]:
        """With the one item that takes the CPU which is left. Of a task that is in the row already it is no mix; but a
        row without that task may have been dominated, so then it is doubtful."""
        np = self._np
        bound = max(self._least, self.dropped)
        if not len(rows):
            return [], bound
        whole = int(np.argmax(rows[:, 2]))
        ends: list[tuple[float, int, int, Item | None, float]] = []
        if self._last is None:
            ends.append((float(rows[whole, 2]), whole, 0, None, 0.0))
        doubtful = []
        for number, (place, item) in enumerate(self._lasts()):
            fed = np.clip((1 - rows[:, 0]) / max(item.cpu, SLACK), 0.0, 1.0)
            fits = rows[:, 1] + (item.memory if self._last is None else 0.0) <= 1 + SLACK
            worth = np.where(fits, rows[:, 2] + fed * item.worth, 0.0)
            doubtful.append((float(worth.max()), number, item))
            if place >= 0:
                worth[picked[:, place] >= 0] = 0.0
            for row in map(int, np.argsort(-worth, kind="stable")[: max(1, count // 4)]):
                ends.append((float(worth[row]), row, number, item, float(fed[row])))
        ends.sort(key=lambda end: (-end[0], end[1:3]))
        bound = max(bound, ends[0][0], *(most for most, _, _ in doubtful))
        reached = max(self._least, ends[0][0])
        self.doubtful = [
            (most, item) for most, _, item in sorted(doubtful, key=lambda d: -d[0]) if most > reached
        ]
        good = [end for end in ends if end[0] > self._least][:count]
        return [self._chosen(picked[row], worth, item, fed) for worth, row, _, item, fed in good], bound

    def _lasts(self) -> list[tuple[int, Item]]:
        """Items that may take the CPU which is left, each with the place of its task (-1: not among them)."""
        if self._last is not None:
            return [(-1, self._last)]
        return [(place, item) for place, of in enumerate(self._tasks) for item in of if item.divisible]

    def _chosen(self, picked: Any, worth: float, last: Item | None, fed: float) -> Chosen:
        items = [(self._tasks[place][one], 1.0) for place, one in enumerate(picked) if one >= 0]
        if last is not None and fed > 0:
            items.append((last, fed))
        return Chosen(worth, tuple(items))
