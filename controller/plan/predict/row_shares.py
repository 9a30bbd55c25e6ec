"""Which part of a task's rows each group gets, and the highest input rate that allows. Pure.

shuffle   every thread gets the same: q / τ (paper 0, section 8.5, "shuffle" variant)
weighted  in proportion to I(q) ("sum" variant); where groups that share a slot's CPU forbid that,
          a linear program finds the highest input rate, a second one shares that let 99 % of it
          through and keep groups away from their peaks where that is cheap, and every task is then
          moved as near to I(q) as the others leave room for (decision 16)

Where a row's CPU depends on how many come (decision 20), all this is done again at the rate that was found, until that
does not change: the first time rows are dearest, so the rate only rises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from headgate.controller.plan.predict.linear_program import LinearProgram
from headgate.controller.plan.predict.placement_load import PlacementLoad, RateLimit, tightest

GIVEN_UP = 0.01  # at most so much of the highest input rate, to keep groups away from their peaks
NEAR_PEAK = 0.006  # of the input rate: what a task with a group at its peak costs, at half of it half
SETTLED, ROUNDS = 1e-9, 60  # the rate rises by no more, or it was done so often
SOLVED_TO = 1e-7  # what the solver leaves open: below, a marginal price is no price


@dataclass(frozen=True, slots=True)
class Split:
    """`limit`: what stops the input rate from rising (None: nothing); `shares` of each group."""

    limit: RateLimit | None
    shares: list[float]


def shuffled(load: PlacementLoad) -> Split:
    """Every thread of a task gets as much as any other."""
    return carried(load, load.even_shares())


def carried(load: PlacementLoad, shares: list[float]) -> Split:
    """What these shares let through."""
    return _settled(load, lambda at: Split(_tightest(at, shares), shares))


def weighted(load: PlacementLoad) -> Split:
    """The shares that let the highest input rate through."""
    return _settled(load, _weighted)


def _settled(load: PlacementLoad, split_of: Callable[[PlacementLoad], Split]) -> Split:
    split = split_of(load)
    if not load.wakes or load.cpu_left is None:
        return split
    for _ in range(ROUNDS):
        before = split
        if before.limit is None:
            break
        split = split_of(load.at(before.shares, before.limit.rate_tps))
        if split.limit is None or split.limit.rate_tps < before.limit.rate_tps:
            return before  # other shares, by which rows meet less
        if split.limit.rate_tps <= before.limit.rate_tps * (1 + SETTLED):
            break
    return split


def _tightest(load: PlacementLoad, shares: Sequence[float]) -> RateLimit | None:
    return tightest(chain(load.limits_at(shares), load.cpu_limits_at(shares)))


def _weighted(load: PlacementLoad) -> Split:
    shares = load.peak_shares()
    most = tightest(load.limits_at(shares))
    cpu = tightest(load.cpu_limits_at(shares))
    if most is None or cpu is None or cpu.rate_tps >= most.rate_tps * (1 - SOLVED_TO):
        return Split(most, shares)
    split = _Program(load, shares, most).solve()
    if split.limit is not None and cpu.rate_tps >= split.limit.rate_tps * (1 - SOLVED_TO):
        return Split(split.limit, shares)
    return split


@dataclass(slots=True)
class _Variable:
    """Groups of one task that need no telling apart: those in shared slots that hold the same, or all those alone in
    theirs. `most_tps`: what they carry together; `weight`: their part of the task's rows by I(q);
    `slot`: the first of the shared slots or None; `cpu`: of such a slot per row/s."""

    task: int
    members: list[int]
    most_tps: float
    weight: float
    slot: int | None = None
    cpu: float = 0.0


class _Program:
    """max Ω with Σ x = w Ω per task, x ≤ I(q), Σ C(q) x / I(q) + c Ω ≤ CPU left per shared slot, c for the
    tasks of fixed size.

    Scaled: y = Ω / (Ω without the slots' limit) and u = x / most, all in [0, 1].

    Slots that hold the same count as one, by their sums: what shares reach they also reach with their means over these
    slots, as rows and limits are linear. So the program grows with how many contents there are, not with slots."""

    def __init__(self, load: PlacementLoad, by_peak: list[float], most: RateLimit) -> None:
        assert load.cpu_left is not None
        self.load, self.by_peak, self.most = load, by_peak, most
        self.cpu_of_slot = load.cpu_left
        fixed = self._fixed()
        self.alike = self._alike(fixed)
        self.cpu_left = {first: len(slots) * load.cpu_left[first] for first, slots in self.alike.items()}
        self.fixed = {s: len(self.alike[s]) * used for s, used in fixed.items() if s in self.alike}
        self.variables = list(self._variables(fixed))
        self.slots = sorted(self.fixed.keys() | {v.slot for v in self.variables if v.slot is not None})

    def solve(self) -> Split:
        highest, prices = self._highest()
        part, rates = self._evened(highest)
        self._towards_peaks(part * self.most.rate_tps, rates)
        limit = self.most if highest >= 1 - SOLVED_TO else self._limit(highest * self.most.rate_tps, prices)
        return Split(limit, self._shares(rates))

    def _fixed(self) -> dict[int, float]:
        """Slot → CPU that its tasks of fixed size use for each row/s of input, where they do."""
        even, used = self.load.even_shares(), dict[int, float]()
        for g, group in enumerate(self.load.groups):
            if group.cpu_each:
                used[group.slot] = used.get(group.slot, 0.0) + self.load.cpu_of(g, even[g], 1.0)
        return used

    def _alike(self, fixed: dict[int, float]) -> dict[int, list[int]]:
        """First slot → all slots that hold the same."""
        groups, by_peak = self.load.groups, self.by_peak
        firsts: dict[object, int] = {}
        alike: dict[int, list[int]] = {}
        for slot, members in enumerate(self.load.by_slot):
            held = tuple(
                sorted(
                    (groups[g].task, by_peak[g], self.load.cpu_per_unit(g))
                    for g in members
                    if groups[g].peak_tps is not None
                )
            )
            first = firsts.setdefault((held, fixed.get(slot, 0.0), self.cpu_of_slot[slot]), slot)
            alike.setdefault(first, []).append(slot)
        return alike

    def _variables(self, fixed: dict[int, float]) -> Iterator[_Variable]:
        groups = self.load.groups
        sharers = [
            sum(groups[g].peak_tps is not None for g in members) + (slot in fixed)
            for slot, members in enumerate(self.load.by_slot)
        ]
        first_of = {slot: first for first, slots in self.alike.items() for slot in slots}
        for task, members in enumerate(self.load.by_task):
            modelled = [g for g in members if groups[g].peak_tps is not None]
            alone = [g for g in modelled if sharers[groups[g].slot] == 1 and not self.load.copied[task]]
            if alone:
                most_tps = sum(self._most(g) for g in alone)
                yield _Variable(task, alone, most_tps, sum(self.by_peak[g] for g in alone))
            shared: dict[int, list[int]] = {}
            for g in modelled:
                if sharers[groups[g].slot] > 1 or self.load.copied[task]:
                    shared.setdefault(first_of[groups[g].slot], []).append(g)
            for slot, same in shared.items():
                most_tps = sum(groups[g].peak_tps or 0.0 for g in same)
                weight, cpu = sum(self.by_peak[g] for g in same), self.load.cpu_per_unit(same[0])
                yield _Variable(task, same, most_tps, weight, slot, cpu)

    def _most(self, g: int) -> float:
        """What a group alone in its slot carries, next to tasks of fixed size."""
        group, cpu = self.load.groups[g], self.load.cpu_per_unit(g)
        peak_tps = group.peak_tps or 0.0
        return min(peak_tps, self.cpu_of_slot[group.slot] / cpu) if cpu > 0 else peak_tps

    def _highest(self) -> tuple[float, dict[int, float]]:
        """(y, task → price of its rows)."""
        program, row_tasks = self._program([])
        found, dual = program.solve()
        prices: dict[int, float] = {}
        for task, price in zip(row_tasks, dual, strict=False):
            prices[task] = max(prices.get(task, 0.0), abs(price))
        return max(0.0, found[len(self.variables)]), prices

    def _program(self, costs: list[float]) -> tuple[LinearProgram, list[int]]:
        """(max y, less the costs of as many more columns; the task of each of the first rows)."""
        program = LinearProgram([0.0] * len(self.variables) + [-1.0] + costs)
        flows, row_tasks = self._flow_rows()
        for flow in flows:
            program.add(0.0, 0.0, flow)
        for slot, used in self._slot_rows().items():
            program.add(-math.inf, self.cpu_left[slot], used)
        return program, row_tasks

    def _evened(self, highest: float) -> tuple[float, list[float]]:
        """(y, rate of each variable): y at most GIVEN_UP below `highest`, and no higher than is worth the sum over
        the tasks of their highest u, at NEAR_PEAK each.

        For the highest input rate alone, some groups are at their peaks and others without a row, for the
        sake of parts of a percent that no model is sure of."""
        size, tasks = len(self.variables), sorted({v.task for v in self.variables})
        column_of = {task: size + 1 + place for place, task in enumerate(tasks)}
        program, _ = self._program([NEAR_PEAK] * len(tasks))
        program.add(highest * (1 - GIVEN_UP), highest, {size: 1.0})
        for column, v in enumerate(self.variables):
            program.add(-math.inf, 0.0, {column: 1.0, column_of[v.task]: -1.0})
        found, _ = program.solve()
        return found[size], [u * v.most_tps for u, v in zip(found, self.variables, strict=False)]

    def _flow_rows(self) -> tuple[list[dict[int, float]], list[int]]:
        """Σ most u / (w Ω₁) − y = 0 for each task; for each group where the shares are not free."""
        rows: list[dict[int, float]] = []
        row_tasks: list[int] = []
        row_of: dict[tuple[int, int], int] = {}
        for column, v in enumerate(self.variables):
            copied = self.load.copied[v.task]
            row = row_of.setdefault((v.task, v.members[0] if copied else -1), len(rows))
            if row == len(rows):
                row_tasks.append(v.task)
                rows.append({len(self.variables): -1.0})
            rows_tps = self.load.unit[v.task] * self.most.rate_tps * (v.weight if copied else 1.0)
            rows[row][column] = v.most_tps / rows_tps
        return rows, row_tasks

    def _slot_rows(self) -> dict[int, dict[int, float]]:
        rows: dict[int, dict[int, float]] = {slot: {} for slot in self.slots}
        for column, v in enumerate(self.variables):
            if v.slot is not None:
                rows[v.slot][column] = v.cpu * v.most_tps
        for slot, used in self.fixed.items():
            rows[slot][len(self.variables)] = used * self.most.rate_tps
        return rows

    def _towards_peaks(self, rate: float, rates: list[float]) -> None:
        """Move the rates of each task towards I(q) as far as the slots and the other tasks allow."""
        free = {slot: self.cpu_left[slot] - self.fixed.get(slot, 0.0) * rate for slot in self.slots}
        of_task: dict[int, list[int]] = {}
        for column, v in enumerate(self.variables):
            of_task.setdefault(v.task, []).append(column)
            if v.slot is not None:
                free[v.slot] -= v.cpu * rates[column]
        for task, columns in of_task.items():
            desired = self.load.unit[task] * rate
            moves = [(c, self.variables[c], self.variables[c].weight * desired - rates[c]) for c in columns]
            part = min((_part(v, rates[c], move, free) for c, v, move in moves if move > 0), default=0.0)
            for column, v, move in moves:
                rates[column] += part * move
                if v.slot is not None:
                    free[v.slot] -= v.cpu * part * move

    def _limit(self, rate: float, prices: dict[int, float]) -> RateLimit:
        """The first task whose rows have a price: every group of it is at its peak or in a full slot; without
        one, a task of fixed size that fills its slot."""
        priced = [task for task, price in prices.items() if price > SOLVED_TO]
        full = [s for s, used in self.fixed.items() if used * rate >= self.cpu_left[s] * (1 - SOLVED_TO)]
        if full and not priced:
            fixed = (self.load.groups[g] for g in self.load.by_slot[full[0]])
            return RateLimit(rate, min(group.task for group in fixed if group.cpu_each), full[0])
        task = min(priced, default=min(prices, default=self.most.task))
        return RateLimit(rate, task, min(self.load.groups[g].slot for g in self.load.by_task[task]))

    def _shares(self, rates: list[float]) -> list[float]:
        """Rates of variables as shares of their groups; as by I(q) where nothing flows."""
        shares = list(self.by_peak)
        totals: dict[int, float] = {}
        for column, v in enumerate(self.variables):
            totals[v.task] = totals.get(v.task, 0.0) + rates[column]
        for column, v in enumerate(self.variables):
            if totals[v.task] <= 0:
                continue
            part = rates[column] / totals[v.task]
            most = [self._most(g) if v.slot is None else 1.0 for g in v.members]
            total = sum(most)
            for g, most_tps in zip(v.members, most, strict=True):
                shares[g] = part * most_tps / total if total > 0 else 0.0
        return shares


def _part(v: _Variable, rate: float, move: float, free: dict[int, float]) -> float:
    """Which part of a rise by `move` this variable and its slot can take."""
    part = max(0.0, v.most_tps - rate) / move
    if v.slot is not None:
        needed, left = v.cpu * move, max(0.0, free[v.slot])
        part = min(part, left / needed) if needed > left else part
    return min(1.0, part)
