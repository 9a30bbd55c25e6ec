"""Slots that hold the same as one row of arrays: what greedy matching looks at for every thread. Pure.

A link is a slot's own, or that of its VM: then what one slot says shows in all slots of the VM.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headgate.controller.models.task_models import EPSILON
from headgate.controller.plan.mappers.free_slots import GreedyBounds, SlotRoom

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

# of a row: CPU in use and words said, as parts of what its slots have and may; memory left; what they have and may;
# slots of their link, slots of the row, the first of them; what one thread of the task says within the link
USED, WORDS, MEMORY, CPU, CAPACITY, ON_LINK, COUNT, FIRST, KEPT = range(9)
BY_CPU, BY_WORDS = range(2)  # which of the task's needs of CPU, and of its words, is a row's
LIGHT, HEAVY = 0.4, 0.8  # below the one light, from the other on heavy


@dataclass(slots=True)
class LinkUse:
    """`words`: what the threads of its slots say to others and hear from them; `capacity`: what may be; `held`: threads
    of each task in its slots."""

    slots: tuple[int, ...]
    capacity: float
    words: float = 0.0
    held: Counter[int] = field(default_factory=Counter)


def links_of(board: SlotRoom, said: list[float]) -> list[LinkUse]:
    """Of the VMs, both ways, where sizes of rows and a link are known; one that nobody knows counts as the widest. Else
    each slot's own, which may say its equal part of all that is said."""
    known = {vm.vm: vm.bandwidth_bytes_per_s for vm in board.room.vms}
    widest = max((link for link in known.values() if link is not None), default=None)
    if widest is None or not any(flow.row_bytes for flow in board.room.flows):
        total = sum(one * task.threads for one, task in zip(said, board.tasks, strict=True)) or 1.0
        return [LinkUse((slot,), total / len(board.slots)) for slot in range(len(board.slots))]
    of_vm: dict[str, list[int]] = {}
    for number, slot in enumerate(board.slots):
        of_vm.setdefault(slot.vm, []).append(number)
    return [LinkUse(tuple(slots), 2 * (known[vm] or widest)) for vm, slots in of_vm.items()]


class SlotKinds:
    """One task after the other is begun; its threads are put one by one, where `best` or `lightest` says."""

    def __init__(self, board: SlotRoom) -> None:
        self.board = board
        self._said = [
            sum(link * board.tasks[other].threads for other, link in of.items()) for of in board.links
        ]
        links = links_of(board, self._said)
        self._most = sum(link.capacity for link in links) / len(board.slots)
        self._link_of = {slot: link for link in links for slot in link.slots}
        self._holding: list[dict[int, LinkUse]] = [{} for _ in board.tasks]  # links by their first slot
        for link in links:
            for slot in link.slots:
                link.held.update(board.held[slot])
            for task, threads in link.held.items():
                self._holding[task][link.slots[0]] = link
                link.words += threads * (self._said[task] - self._kept(task, link))
        self._numbers: dict[Hashable, int] = {}  # what a slot holds → its row
        self._keys: list[Hashable] = []
        self._members: list[list[int]] = []  # slots of each row
        self._unused: list[int] = []  # rows
        self._row_of: dict[int, int] = {}
        self._rows: Floats = np.zeros((9, 8))
        self._by: Places = np.zeros((2, 8), np.int64)
        self._task = 0
        for slot in range(len(board.slots)):
            self._enter(slot, 0)

    # ── one task ────────────────────────────────────────────────────────────────────────────────

    def begin(self, task: int) -> None:
        """Its threads come next."""
        self._task = task
        rows = self._rows[:, : len(self._keys)]
        rows[KEPT] = 0.0
        near = {
            first: link for other in self.board.links[task] for first, link in self._holding[other].items()
        }
        for link in near.values():
            rows[KEPT, [self._row_of[slot] for slot in link.slots]] = self._kept(task, link)
        cpu, self._memory = self.board.needs[task]
        self._cpu, self._by[BY_CPU, : len(self._keys)] = np.unique(cpu / rows[CPU], return_inverse=True)
        words = self._words(rows) * rows[ON_LINK]
        self._link, self._by[BY_WORDS, : len(self._keys)] = np.unique(words, return_inverse=True)

    def best(self, bounds: GreedyBounds) -> int | None:
        """The slot that is best for one more thread by the objective, of those within the bounds; of equals the
        first."""
        rows, by = self._rows[:, : len(self._keys)], self._by[:, : len(self._keys)]
        cpu, words = self._cpu[by[BY_CPU]], self._words(rows)
        fit = self._fit(rows, rows[USED] + cpu, bounds.cpu) & (
            rows[WORDS] + words <= bounds.bandwidth + EPSILON
        )
        if not fit.any():
            return None
        if bounds.objective == "utilization":  # CPU is as much wherever it goes
            worse = -words * rows[CAPACITY] / self._most
        else:
            worse = self._deviation(rows, USED, cpu, 1.0, self._cpu, by[BY_CPU])
            worse += self._deviation(rows, WORDS, words, rows[ON_LINK], self._link, by[BY_WORDS])
        return self._first(rows, fit, worse)

    def lightest(self) -> int | None:
        """The slot of the lightest level that has room for one more thread, and there that with the least CPU in
        use."""
        rows = self._rows[:, : len(self._keys)]
        fit = self._fit(rows, rows[USED] + self._cpu[self._by[BY_CPU, : len(self._keys)]], 1.0)
        most = np.maximum(rows[USED], rows[WORDS])
        levels = (most >= LIGHT).astype(np.int64) + (most >= HEAVY)
        return self._first(rows, fit & (levels == levels[fit].min()), rows[USED]) if fit.any() else None

    def put(self, slot: int) -> None:
        """One thread of the task."""
        link = self._link_of[slot]
        link.words += self._said[self._task] - 2 * self._rows[KEPT, self._row_of[slot]]
        link.held[self._task] += 1
        self._holding[self._task][link.slots[0]] = link
        self.board.put(self._task, slot)
        for other in link.slots:
            row = self._row_of[other]
            members = self._members[row]
            del members[bisect_left(members, other)]
            self._counted(row)
            self._enter(other, row)

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def _words(self, rows: Floats) -> Floats:
        """What one more thread adds to those of a link: what is said to it there, and by it, is none any more."""
        more: Floats = (self._said[self._task] - 2 * rows[KEPT]) / rows[CAPACITY]
        return more

    def _fit(self, rows: Floats, used: Floats, most: float) -> NDArray[np.bool_]:
        fit: NDArray[np.bool_] = (
            (rows[COUNT] > 0) & (used <= most + EPSILON) & (rows[MEMORY] >= self._memory - EPSILON)
        )
        return fit

    def _deviation(
        self, rows: Floats, what: int, more: Floats, slots: Floats | float, kinds: Floats, which: Places
    ) -> Floats:
        """Σ |R − mean of R| over all slots with one thread more in a slot of each row, by which `slots` slots have
        `more` of it, but for what is the same wherever it goes. kinds: how much all slots together have more."""
        values, counts = rows[what], rows[COUNT]
        means = (values @ counts + kinds) / len(self.board.slots)
        mean = means[which]
        own: Floats = slots * (np.abs(values + more - mean) - np.abs(values - mean))
        if len(kinds) == 1:  # then the other slots deviate as much wherever it goes
            return own
        order = np.argsort(values)
        below = np.concatenate(([0.0], np.cumsum(counts[order])))
        sums = np.concatenate(([0.0], np.cumsum(counts[order] * values[order])))
        at = np.searchsorted(values[order], means)
        others: Floats = means * (2 * below[at] - below[-1]) + sums[-1] - 2 * sums[at]
        own += others[which]
        return own

    def _first(self, rows: Floats, fit: NDArray[np.bool_], worse: Floats) -> int:
        least = worse[fit].min()
        return int(rows[FIRST, fit & (worse <= least + EPSILON)].min())

    def _kept(self, task: int, link: LinkUse) -> float:
        """What one thread of a task says to those in the slots of a link, and hears from them."""
        return sum(
            each * link.held[other] for other, each in self.board.links[task].items() if other in link.held
        )

    def _enter(self, slot: int, like: int) -> None:
        """Into the row of what it holds. A new one is to the task what `like` is."""
        link = self._link_of[slot]
        held = frozenset(self.board.held[slot].items())
        beside = frozenset(link.held.items()) if len(link.slots) > 1 else None
        key = self.board.cpus[slot], link.capacity, len(link.slots), held, beside
        row = self._numbers.get(key)
        if row is None:
            row = self._new_row(key)
            self._rows[:, row] = (
                self.board.used(slot), link.words / link.capacity, self.board.memory[slot], self.board.cpus[slot],
                link.capacity, len(link.slots), 0, 0, self._rows[KEPT, like],
            )  # fmt: skip
            self._by[:, row] = self._by[:, like]
        insort(self._members[row], slot)
        self._row_of[slot] = row
        self._counted(row)

    def _new_row(self, key: Hashable) -> int:
        if self._unused:
            row = self._unused.pop()
            self._keys[row] = key
        else:
            row = len(self._keys)
            self._keys.append(key)
            self._members.append([])
            if row == self._rows.shape[1]:
                self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)), axis=1)
                self._by = np.concatenate((self._by, np.zeros_like(self._by)), axis=1)
        self._numbers[key] = row
        return row

    def _counted(self, row: int) -> None:
        members = self._members[row]
        self._rows[COUNT, row] = len(members)
        if members:
            self._rows[FIRST, row] = members[0]
        else:
            del self._numbers[self._keys[row]]
            self._unused.append(row)
