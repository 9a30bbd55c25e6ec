"""The fewest slots that carry a rate when threads of several tasks may share one (ours). Pure.

A *mix* is what a slot holds: of each task one of the measured numbers of threads and the rate these take there, and
whole threads of tasks of fixed size or of one thread. Mixes are columns of a linear program (Gilmore and Gomory,
1961): it wants as few as carry all rates, its prices say which mix would be worth more than a slot, and a search
finds that mix; when none is left, the linear program's optimum is what no plan can go below. The
plan takes whole mixes, by settling some and asking again, or by one integer program over those that were found. A
thread's memory is counted in full, however slowly it is fed. Slots of VMs of several speeds are kinds of which there
are so many: a mix is for one kind, and a row of the program each says how many there may be.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
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
MISSING = 1_000.0  # slots: what one costs that there is not
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


class SlotKind(msgspec.Struct, frozen=True):
    """Slots of one speed, `count` of them: what each task may be in one. All kinds have the same rates and counts of
    threads. Of a task without choices, or with needs above 1, nothing fits."""

    flexible: tuple[Flexible, ...]
    fixed: tuple[Fixed, ...]
    count: float = math.inf


class Mix(msgspec.Struct, frozen=True):
    """What a slot of that kind holds: flexible task → (threads, rate), fixed task → threads."""

    flexible: dict[int, tuple[int, float]]
    fixed: dict[int, int]
    kind: int = 0


class Mixed(msgspec.Struct, frozen=True):
    """A mix for each slot, and the number of slots that nothing goes below. late: the search was ended, since somebody
    waits."""

    slots: tuple[Mix, ...]
    least: float
    late: bool = False


class _Prices(msgspec.Struct, frozen=True):
    """Of the linear program: what each task is worth, what a slot of each kind costs, and what is demanded is worth in
    all. slots: of the program."""

    tasks: list[float]
    slots: list[float]
    demand: float
    total: float


Kinds = Sequence[SlotKind]


def fewest(kinds: Kinds, most_s: float = math.inf, below: float = math.inf) -> Mixed:
    """The fewest slots that are found, each with its mix; none where there must be `below` of them or more. Of the last
    kind there are as many as it takes. Every choice fits a slot by itself. most_s: how long whoever waits may wait."""
    effort = Effort(EFFORT, most_s)
    mixes, _, least = _priced(kinds, _alone(kinds), True, effort)
    fewest_slots = math.ceil(least - WORTH)
    if fewest_slots >= below:
        return Mixed((), least, effort.late)
    slots, mixes = _dived(kinds, mixes, effort)

    def cost(found: Sequence[Mix]) -> float:
        return len(found) + MISSING * _missing(found, kinds)

    for _ in range(DIVES - 1):
        if cost(slots) > fewest_slots and not effort.spent():  # more mixes are known each time
            again, mixes = _dived(kinds, mixes, effort)
            slots = min(slots, again, key=cost)
    if cost(slots) > fewest_slots and not (effort.spent() and effort.late):
        mixes = _useful(mixes, kinds, cost(slots) - 1, effort)
        nodes, left_s = max(20, NODES // max(1, len(mixes))), most_s - waited_s()
        found = _master(mixes, kinds).solve_whole(max(0.1, left_s), nodes=nodes)
        if found.x:
            slots = min(slots, _taken(mixes, found.x), key=cost)
    return Mixed(tuple(_trimmed(slots, kinds)), least, effort.late)


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
        kinds = [SlotKind(tuple(flexible[task] for task in mine), tuple(fixed[task] for task in counted))]
        found, _ = _dived(kinds, [], Effort(0))
        for mix in _trimmed(found, kinds):
            rated = {mine[task]: fed for task, fed in mix.flexible.items()}
            slots.append(Mix(rated, {counted[task]: count for task, count in mix.fixed.items()}))
    return slots, len(numbers)


def _missing(slots: Sequence[Mix], kinds: Kinds) -> float:
    """Slots that there are not."""
    used = Counter(mix.kind for mix in slots)
    return sum(max(0.0, used[kind] - one.count) for kind, one in enumerate(kinds))


def _useful(mixes: list[Mix], kinds: Kinds, slots: float, effort: Effort) -> list[Mix]:
    """With more of which a plan of so many slots may be made, and without those that no such plan of these has: they
    cost more beyond their price."""
    _, prices = _solved(mixes, kinds)
    spare = slots - prices.total
    useful = []
    for mix in mixes:
        worth = math.fsum(prices.tasks[task] * part for task, part in _column(mix, kinds))
        if prices.slots[mix.kind] - worth <= spare + WORTH:
            useful.append(mix)
    for number, kind in enumerate(kinds):
        least = max(0.0, prices.slots[number] - spare)
        found, _ = worthiest(_items(kind, prices.tasks), least, KEPT_ROWS[1], False, effort, MORE_MIXES)
        useful += [_mix(chosen, kind, number) for chosen in found]
    return useful


def _taken(mixes: Sequence[Mix], times: Sequence[float]) -> list[Mix]:
    return [mix for mix, count in zip(mixes, times, strict=False) for _ in range(round(count))]


def _priced(
    kinds: Kinds, mixes: list[Mix], proving: bool, effort: Effort
) -> tuple[list[Mix], list[float], float]:
    """(these mixes and more, how often the linear program takes each, what nothing goes below)."""
    least = 0.0
    times: list[float] = []
    for _ in range(MOST_ROUNDS if proving else ROUNDS_OF_DIVE):
        times, prices = _solved(mixes, kinds)
        better: list[Mix] = []
        worths = []
        for number, kind in enumerate(kinds):
            cost = prices.slots[number]
            found, worth = _worthiest(kind, number, prices.tasks, cost, proving, effort)
            better += found
            worths.append(max(worth, cost))
        least = max(least, _slots_for(prices.demand, worths, kinds))
        if not better or (effort.spent() and effort.late):
            break
        mixes += better
        times += [0.0] * len(better)
    return mixes, times, least


def _slots_for(demand: float, worths: Sequence[float], kinds: Kinds) -> float:
    """The fewest that may come to `demand`, where a slot of each kind is worth no more than that."""
    slots = 0.0
    for worth, kind in sorted(zip(worths, kinds, strict=True), key=lambda one: -one[0]):
        more = min(kind.count, demand / worth)
        slots, demand = slots + more, demand - more * worth
    return slots


def _dived(kinds: Kinds, mixes: list[Mix], effort: Effort) -> tuple[list[Mix], list[Mix]]:
    """(slots, all mixes). Mixes that the linear program takes whole are settled, or else the one it takes most of; then
    it is asked again for what is left, until nothing is."""
    slots: list[Mix] = []
    every = list(mixes)
    while any(one.rate_tps > 0 for one in kinds[0].flexible) or any(one.count for one in kinds[0].fixed):
        known = len(mixes := [*_alone(kinds), *every])
        mixes, times, _ = _priced(kinds, mixes, False, effort)
        every += mixes[known:]
        settled = [math.floor(x + WORTH) for x in times]
        if not any(settled):
            settled[max(range(len(times)), key=times.__getitem__)] = 1
        now = _taken(mixes, settled)
        slots += now
        kinds = [_left(kind, number, now) for number, kind in enumerate(kinds)]
    return slots, every


def _left(kind: SlotKind, number: int, now: Sequence[Mix]) -> SlotKind:
    """Of the slots and of what is to be carried, when these slots are settled."""
    flexible, fixed = list(kind.flexible), list(kind.fixed)
    for task, one in enumerate(flexible):
        taken = math.fsum(mix.flexible[task][1] for mix in now if task in mix.flexible)
        left = one.rate_tps - taken
        flexible[task] = msgspec.structs.replace(one, rate_tps=left if left > WORTH * taken else 0.0)
    for task, two in enumerate(fixed):
        held = sum(mix.fixed.get(task, 0) for mix in now)
        fixed[task] = msgspec.structs.replace(two, count=max(0, two.count - held))
    count = max(0.0, kind.count - sum(mix.kind == number for mix in now))
    return SlotKind(tuple(flexible), tuple(fixed), count)


def _alone(kinds: Kinds) -> list[Mix]:
    """A mix for each task by itself, the one that takes the most: with these every rate is carried."""
    found = []
    for number, kind in enumerate(kinds):
        for task, one in enumerate(kind.flexible):
            if one.rate_tps <= 0 or not one.choices:
                continue
            best = max(one.choices, key=_rate_alone)
            found.append(Mix({task: (best.threads, min(one.rate_tps, _rate_alone(best)))}, {}, number))
        found += [
            Mix({}, {task: 1}, number) for task, one in enumerate(kind.fixed) if one.count and one.cpu <= 1
        ]
    return found


def _rate_alone(choice: Choice) -> float:
    return choice.rate_tps / max(1.0, choice.cpu)


def _solved(mixes: Sequence[Mix], kinds: Kinds) -> tuple[list[float], _Prices]:
    """(how often each mix is taken, prices)."""
    program = _master(mixes, kinds)
    x, duals = program.solve()
    tasks = len(kinds[0].flexible) + len(kinds[0].fixed)
    limits = iter(duals[tasks:])
    slots = [1.0 - next(limits) if kind.count < math.inf else 1.0 for kind in kinds]
    total = math.fsum(cost * many for cost, many in zip(program.costs, x, strict=True))
    demand = math.fsum(
        price * low for price, low in zip(duals[:tasks], program.lows, strict=False) if low > -math.inf
    )
    return x[: len(mixes)], _Prices(duals[:tasks], slots, demand, total)


def _column(mix: Mix, kinds: Kinds) -> Iterator[tuple[int, float]]:
    """(task, what a mix carries of it: as a part of its rate, or threads)."""
    flexible, fixed = kinds[0].flexible, kinds[0].fixed
    for task, (_, rate_tps) in mix.flexible.items():
        if flexible[task].rate_tps > 0:
            yield task, min(1.0, rate_tps / flexible[task].rate_tps)
    for task, count in mix.fixed.items():
        yield len(flexible) + task, float(min(fixed[task].count, count))


def _master(mixes: Sequence[Mix], kinds: Kinds) -> LinearProgram:
    """As few mixes as carry every rate (each row is a task, its rate counted as 1) and hold all fixed threads. Slots
    that there are not cost as much as many."""
    flexible, fixed = kinds[0].flexible, kinds[0].fixed
    limited = [number for number, kind in enumerate(kinds) if kind.count < math.inf]
    most = sum(one.count for one in fixed) + len(flexible)
    for task, one in enumerate(flexible):
        alone = (max(map(_rate_alone, kind.flexible[task].choices), default=0.0) for kind in kinds)
        most += math.ceil(one.rate_tps / min(tps for tps in alone if tps > 0))
    costs = [1.0] * len(mixes) + [MISSING] * len(limited)
    program = LinearProgram(costs, uppers=[most] * len(costs))
    rows: list[dict[int, float]] = [{} for _ in range(len(flexible) + len(fixed))]
    slots: list[dict[int, float]] = [{} for _ in kinds]
    for column, mix in enumerate(mixes):
        slots[mix.kind][column] = 1.0
        for task, part in _column(mix, kinds):
            rows[task][column] = part
    lows = [1.0 if one.rate_tps > 0 else -math.inf for one in flexible] + [float(two.count) for two in fixed]
    for low, row in zip(lows, rows, strict=True):
        program.add(low, math.inf, row)
    for place, number in enumerate(limited):
        program.add(-math.inf, kinds[number].count, slots[number] | {len(mixes) + place: -1.0})
    return program


def _worthiest(
    kind: SlotKind, number: int, price: Sequence[float], cost: float, proving: bool, effort: Effort
) -> tuple[list[Mix], float]:
    """(the mixes that are worth most by these prices, if that is more than a slot of the kind costs, what none is worth
    more than)."""
    items, bound = _items(kind, price), math.inf
    for most_rows in KEPT_ROWS if proving else KEPT_ROWS[:1]:
        quick = most_rows == KEPT_ROWS[0]
        if not quick and effort.spent():
            break
        found, most = worthiest(items, cost + WORTH, most_rows, not quick, effort)
        bound = min(bound, most)
        if found or bound <= cost + WORTH:
            break
    return [_mix(chosen, kind, number) for chosen in found], bound


def _items(kind: SlotKind, price: Sequence[float]) -> list[Item]:
    """What may be in a slot, with what it is worth by these prices."""
    items = []
    for task, one in enumerate(kind.flexible):
        for choice in one.choices if one.rate_tps > 0 else ():
            part = min(1.0, one.rate_tps / choice.rate_tps)
            worth = price[task] * part * choice.rate_tps / one.rate_tps
            item = Item(task, choice.cpu * part, choice.memory, worth, True, choice.threads)
            items.append(item)
    for number, two in enumerate(kind.fixed):
        needs = max(two.cpu, two.memory, 1e-3)
        for count in range(1, min(two.count, int((1 + WORTH) / needs)) + 1):
            task = len(kind.flexible) + number
            items.append(Item(task, count * two.cpu, count * two.memory, count * price[task], False, count))
    return items


def _mix(chosen: Chosen, kind: SlotKind, number: int) -> Mix:
    flexible = kind.flexible
    rated: dict[int, tuple[int, float]] = {}
    held: dict[int, int] = {}
    for item, fed in chosen.items:
        if item.divisible:
            one = flexible[item.task]
            peak_tps = next(choice.rate_tps for choice in one.choices if choice.threads == item.threads)
            rated[item.task] = item.threads, fed * min(peak_tps, one.rate_tps)
        else:
            held[item.task - len(flexible)] = item.threads
    return Mix(rated, held, number)


def _trimmed(slots: list[Mix], kinds: Kinds) -> list[Mix]:
    """Without groups of threads that the others carry the rate of, and without fixed threads that are too many."""
    flexible, fixed = kinds[0].flexible, kinds[0].fixed
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
            found.append(Mix(groups, held, mix.kind))
    return found
