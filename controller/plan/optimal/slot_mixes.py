"""The fewest slots that carry a rate when threads of several tasks may share one (ours). Pure.

A *mix* is what a slot holds: of each task one of the measured numbers of threads and the rate these take there, and
whole threads of tasks of fixed size or of one thread. Mixes are columns of a linear program (Gilmore and Gomory,
1961): it wants as few as carry all rates, its prices say which mix would be worth more than a slot, and a search
finds that mix; when none is left, the linear program's optimum is what no plan can go below. The
plan takes whole mixes, by settling some and asking again, or by one integer program over those that were found. A
thread's memory is counted in full, however slowly it is fed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.controller.plan.predict.linear_program import LinearProgram
from headgate.topology_runtime.platform.planning_time import waited_s

# ── The mix that is worth most by given prices: exactly, or no more than a bound that is told. Pure ───
#
# A slot has 1 of CPU and 1 of memory. Of each task one *item* may be in it: some threads, fed at their peak
# or less, or some counted threads. Memory counts whole and CPU by how much an item is fed, so at most one
# item of the worthiest mix is fed less than it could be, and it takes the CPU that the others leave. The
# search goes through the tasks and keeps what may be in a slot so far as rows of an array (CPU, memory,
# worth); a row goes that another one dominates, and so does one that cannot come to more than is wanted, by
# what CPU and memory are worth to the linear program of the whole (two multipliers). Where rows are too many,
# those with the least prospects go, and the highest of their prospects is part of the bound.

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
            worth = np.where(fits, rows[:, 2] + fed * item.worth, -np.inf)
            doubtful.append((float(worth.max()), number, item))
            if place >= 0:
                worth[picked[:, place] >= 0] = -np.inf
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


MOST_ROUNDS, ROUNDS_OF_DIVE = 200, 20  # in which mixes are looked for
WORTH = 1e-6  # a mix has to be worth more than a slot by so much
NODES = 10_000  # of the search for whole numbers of mixes, shared out among the mixes
KEPT_ROWS = (150, 2_000, 60_000)  # in a search for mixes: at first, and where that finds none
DIVES = 4
MORE_MIXES = 800  # that a plan of fewer slots may be made of
EFFORT = 3_000_000  # rows that are looked at in all, then what is found is told with its gap


class Choice(msgspec.Struct, frozen=True):
    """So many threads of a task in a slot: at their peak `rate_tps`, `cpu` and `memory` of it."""

    threads: int
    rate_tps: float
    cpu: float
    memory: float


class Flexible(msgspec.Struct, frozen=True):
    """A task that may have any of these numbers of threads in a slot, and takes `rate_tps` in all."""

    rate_tps: float
    choices: tuple[Choice, ...]


class Fixed(msgspec.Struct, frozen=True):
    """`count` threads that each need this of whatever slot they are in."""

    count: int
    cpu: float
    memory: float


class Mix(msgspec.Struct, frozen=True):
    """What a slot holds: flexible task → (threads, rate), fixed task → threads."""

    flexible: dict[int, tuple[int, float]]
    fixed: dict[int, int]


class Mixed(msgspec.Struct, frozen=True):
    """A mix for each slot, and the number of slots that nothing goes below. late: the search was ended, since somebody
    waits."""

    slots: tuple[Mix, ...]
    least: float
    late: bool = False


def fewest(flexible: Sequence[Flexible], fixed: Sequence[Fixed], most_s: float = math.inf) -> Mixed:
    """The fewest slots that are found, each with its mix. Every choice fits a slot by itself. most_s: how long whoever
    waits may wait."""
    effort = Effort(EFFORT, most_s)
    mixes, _, least = _priced(flexible, fixed, _alone(flexible, fixed), True, effort)
    fewest_slots = math.ceil(least - WORTH)
    slots, mixes = _dived(flexible, fixed, mixes, effort)
    for _ in range(DIVES - 1):
        if len(slots) > fewest_slots and not effort.spent():  # more mixes are known each time
            again, mixes = _dived(flexible, fixed, mixes, effort)
            slots = min(slots, again, key=len)
    if len(slots) > fewest_slots and not (effort.spent() and effort.late):
        mixes = _useful(mixes, flexible, fixed, len(slots) - 1, effort)
        nodes, left_s = max(20, NODES // max(1, len(mixes))), most_s - waited_s()
        found = _master(mixes, flexible, fixed).solve_whole(max(0.1, left_s), nodes=nodes)
        if found.x:
            slots = min(slots, _taken(mixes, found.x), key=len)
    return Mixed(tuple(_trimmed(slots, flexible, fixed)), least, effort.late)


def few(
    flexible: Sequence[Flexible], fixed: Sequence[Fixed], together: int, most_s: float = math.inf
) -> tuple[list[Mix], int]:
    """Mixes for many tasks: so many after the other share slots with each other alone. Quick, and without proof. Of how
    many tasks, the fixed ones after the flexible ones: whoever waits would wait too long for the others."""
    slots: list[Mix] = []
    numbers = [(True, task) for task in range(len(flexible))] + [(False, task) for task in range(len(fixed))]
    for first in range(0, len(numbers), together):
        if waited_s() > most_s:
            return slots, first
        here = numbers[first : first + together]
        mine, counted = ([task for flows, task in here if flows == kind] for kind in (True, False))
        parts = [flexible[task] for task in mine], [fixed[task] for task in counted]
        found, _ = _dived(*parts, [], Effort(0))
        for mix in _trimmed(found, *parts):
            rated = {mine[task]: fed for task, fed in mix.flexible.items()}
            slots.append(Mix(rated, {counted[task]: count for task, count in mix.fixed.items()}))
    return slots, len(numbers)


def _useful(
    mixes: list[Mix], flexible: Sequence[Flexible], fixed: Sequence[Fixed], slots: int, effort: Effort
) -> list[Mix]:
    """With more of which a plan of so many slots may be made, and without those that no such plan of these has: they
    cost more beyond their price."""
    master = _master(mixes, flexible, fixed)
    _, price = master.solve()
    spare = slots - math.fsum(price)
    items = _items(flexible, fixed, price)
    found, _ = worthiest(items, 1 - spare, KEPT_ROWS[1], False, effort, MORE_MIXES)
    beyond = [1.0] * len(mixes)
    for row, one in zip(master.rows, price, strict=True):
        for column, value in row.items():
            beyond[column] -= one * value
    useful = [mix for mix, one in zip(mixes, beyond, strict=True) if one <= spare + WORTH]
    return useful + [_mix(chosen, flexible) for chosen in found]


def _taken(mixes: Sequence[Mix], times: Sequence[float]) -> list[Mix]:
    return [mix for mix, count in zip(mixes, times, strict=True) for _ in range(round(count))]


def _priced(
    flexible: Sequence[Flexible], fixed: Sequence[Fixed], mixes: list[Mix], proving: bool, effort: Effort
) -> tuple[list[Mix], list[float], float]:
    """(these mixes and more, how often the linear program takes each, what nothing goes below)."""
    least = 0.0
    times: list[float] = []
    for _ in range(MOST_ROUNDS if proving else ROUNDS_OF_DIVE):
        times, price = _master(mixes, flexible, fixed).solve()
        better, worth = _worthiest(flexible, fixed, price, proving, effort)
        least = max(least, math.fsum(price) / max(worth, 1.0))
        if not better or (effort.spent() and effort.late):
            break
        mixes += better
        times += [0.0] * len(better)
    return mixes, times, least


def _dived(
    flexible: Sequence[Flexible], fixed: Sequence[Fixed], mixes: list[Mix], effort: Effort
) -> tuple[list[Mix], list[Mix]]:
    """(slots, all mixes). Mixes that the linear program takes whole are settled, or else the one it takes most of; then
    it is asked again for what is left, until nothing is."""
    slots: list[Mix] = []
    flexible, fixed = list(flexible), list(fixed)
    every = list(mixes)
    while any(one.rate_tps > 0 for one in flexible) or any(one.count for one in fixed):
        known = len(mixes := [*_alone(flexible, fixed), *every])
        mixes, times, _ = _priced(flexible, fixed, mixes, False, effort)
        every += mixes[known:]
        settled = [math.floor(x + WORTH) for x in times]
        if not any(settled):
            settled[max(range(len(times)), key=times.__getitem__)] = 1
        now = _taken(mixes, settled)
        slots += now
        for task, one in enumerate(flexible):
            taken = math.fsum(mix.flexible[task][1] for mix in now if task in mix.flexible)
            left = one.rate_tps - taken
            flexible[task] = msgspec.structs.replace(one, rate_tps=left if left > WORTH * taken else 0.0)
        for task, two in enumerate(fixed):
            held = sum(mix.fixed.get(task, 0) for mix in now)
            fixed[task] = msgspec.structs.replace(two, count=max(0, two.count - held))
    return slots, every


def _alone(flexible: Sequence[Flexible], fixed: Sequence[Fixed]) -> list[Mix]:
    """A mix for each task by itself, the one that takes the most: with these every rate is carried."""
    found = []
    for task, one in enumerate(flexible):
        if one.rate_tps <= 0:
            continue
        best = max(one.choices, key=_rate_alone)
        found.append(Mix({task: (best.threads, min(one.rate_tps, _rate_alone(best)))}, {}))
    found += [Mix({}, {task: 1}) for task, one in enumerate(fixed) if one.count]
    return found


def _rate_alone(choice: Choice) -> float:
    return choice.rate_tps / max(1.0, choice.cpu)


def _master(mixes: Sequence[Mix], flexible: Sequence[Flexible], fixed: Sequence[Fixed]) -> LinearProgram:
    """As few mixes as carry every rate (each row is a task, its rate counted as 1) and hold all fixed threads."""
    most = sum(one.count for one in fixed) + sum(
        one.rate_tps / max(map(_rate_alone, one.choices)) + 1 for one in flexible
    )
    program = LinearProgram([1.0] * len(mixes), uppers=[math.ceil(most)] * len(mixes))
    for task, one in enumerate(flexible):
        if one.rate_tps <= 0:
            program.add(-math.inf, math.inf, {})
            continue
        row = {column: min(1.0, mix.flexible[task][1] / one.rate_tps)
               for column, mix in enumerate(mixes) if task in mix.flexible}  # fmt: skip
        program.add(1.0, math.inf, row)
    for task, two in enumerate(fixed):
        row = {
            column: float(min(two.count, mix.fixed[task]))
            for column, mix in enumerate(mixes)
            if task in mix.fixed
        }
        program.add(float(two.count), math.inf, row)
    return program


def _worthiest(
    flexible: Sequence[Flexible],
    fixed: Sequence[Fixed],
    price: Sequence[float],
    proving: bool,
    effort: Effort,
) -> tuple[list[Mix], float]:
    """(the mixes that are worth most by these prices, if that is more than a slot, what none is worth more than)."""
    items, bound = _items(flexible, fixed, price), math.inf
    for most_rows in KEPT_ROWS if proving else KEPT_ROWS[:1]:
        quick = most_rows == KEPT_ROWS[0]
        if not quick and effort.spent():
            break
        found, most = worthiest(items, 1 + WORTH, most_rows, not quick, effort)
        bound = min(bound, most)
        if found or bound <= 1 + WORTH:
            break
    return [_mix(chosen, flexible) for chosen in found], bound


def _items(flexible: Sequence[Flexible], fixed: Sequence[Fixed], price: Sequence[float]) -> list[Item]:
    """What may be in a slot, with what it is worth by these prices."""
    items = []
    for task, one in enumerate(flexible):
        for choice in one.choices if one.rate_tps > 0 else ():
            part = min(1.0, one.rate_tps / choice.rate_tps)
            worth = price[task] * part * choice.rate_tps / one.rate_tps
            item = Item(task, choice.cpu * part, choice.memory, worth, True, choice.threads)
            items.append(item)
    for number, two in enumerate(fixed):
        needs = max(two.cpu, two.memory, 1e-3)
        for count in range(1, min(two.count, int((1 + WORTH) / needs)) + 1):
            task = len(flexible) + number
            items.append(Item(task, count * two.cpu, count * two.memory, count * price[task], False, count))
    return items


def _mix(chosen: Chosen, flexible: Sequence[Flexible]) -> Mix:
    rated: dict[int, tuple[int, float]] = {}
    held: dict[int, int] = {}
    for item, fed in chosen.items:
        if item.divisible:
            one = flexible[item.task]
            peak_tps = next(choice.rate_tps for choice in one.choices if choice.threads == item.threads)
            rated[item.task] = item.threads, fed * min(peak_tps, one.rate_tps)
        else:
            held[item.task - len(flexible)] = item.threads
    return Mix(rated, held)


def _trimmed(slots: list[Mix], flexible: Sequence[Flexible], fixed: Sequence[Fixed]) -> list[Mix]:
    """Without groups of threads that the others carry the rate of, and without fixed threads that are too many."""
    over = [math.fsum(mix.flexible[task][1] for mix in slots if task in mix.flexible) - one.rate_tps
            for task, one in enumerate(flexible)]  # fmt: skip
    more = [sum(mix.fixed.get(task, 0) for mix in slots) - one.count for task, one in enumerate(fixed)]
    found = []
    for mix in slots:
        groups = {}
        for task, (threads, rate_tps) in mix.flexible.items():
            if rate_tps <= over[task] + WORTH * flexible[task].rate_tps * 1e-3:
                over[task] -= rate_tps
            else:
                groups[task] = (threads, rate_tps)
        held = {}
        for task, count in mix.fixed.items():
            less = min(count, more[task])
            more[task] -= less
            if count > less:
                held[task] = count - less
        if groups or held:
            found.append(Mix(groups, held))
    return found
