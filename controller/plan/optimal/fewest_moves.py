"""Mixes for as few slots that keep most of what runs (ours): of such plans the one with the fewest moves. Pure.

What the slots of the plan in force hold stays as it is where that carries the rate in as many slots. Else a program in
whole numbers says for each of these slots, or a fresh one, what it is to hold: a mix that was found for the fewest
slots, what is there, or what is there with one group of threads more, less or another; so that every rate is carried
and the fewest threads start and end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from headgate.controller.models.plans import Allocation
from headgate.controller.models.task_models import Model, cpu, memory, peak_rate
from headgate.controller.plan.optimal.fewest_slots import (
    MOST_TASKS,
    Threads,
    carried_by,
    choices_of,
    fixed_needs,
    kinds_of,
)
from headgate.controller.plan.optimal.slot_mixes import Fixed
from headgate.controller.plan.predict.linear_program import TOLERANCE, LinearProgram
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.platform.planning_time import ends_s, waited_s

MOST_CONTENTS = 400  # that are looked at, those of the fewest slots and of now first
MOST_PLACES = 4  # of each, those where most threads stay
MOST_FILLS = (
    150  # that whole numbers are looked for of: contents in places that cost least beyond their price
)
NODES = 5  # of that search
SEARCH_S = 0.4  # where somebody waits
TRIES = 3  # with more and more margin, until the prediction carries the rate

Content = tuple[tuple[str, int], ...]  # (task, threads) of one slot, by task


class _Needs(msgspec.Struct, frozen=True):
    """Tasks that may have any number of threads: `rates` and `models`; those whose threads are counted: `fixed`.
    room: of a slot's memory, what they may hold."""

    rates: dict[str, float]
    models: dict[str, Model]
    fixed: dict[str, Fixed]
    room: float


class _Fill(msgspec.Struct, frozen=True):
    """A slot with this content, which takes the place of this content of now (-1: of none)."""

    content: Content
    place: int
    moves: int


def kept_mixes(
    topology: Topology,
    models: Mapping[str, Model],
    allocation: Allocation,
    now: Sequence[Threads],
    room: float,
) -> list[Threads] | None:
    """Other mixes than the allocation's, for its rate and no more slots; None: none were found. now: what each slot of
    the plan in force holds, of those that may be used. room: of a slot's memory, what they may hold."""
    needs, slots = _needs_of(topology, models, allocation, room), len(allocation.mixes)

    def carried(mixes: Sequence[Threads]) -> float:
        return carried_by(topology, models, mixes) / allocation.rate_tps

    if len(now) == slots and _whole(now, needs) and carried(now) >= 1 - TOLERANCE / 10:
        return list(now)
    if not now or len(topology.tasks) > MOST_TASKS:
        return None
    margin, until_s = 1.0, ends_s(SEARCH_S)
    for _ in range(TRIES):
        if (left_s := until_s - waited_s()) <= 0:
            return None
        found = _chosen(allocation.mixes, now, needs, margin, slots, left_s)
        if found is None or (part := carried(found)) >= 1 - TOLERANCE / 10:
            return found
        margin *= (1 + TOLERANCE) / part if part > 0 else 2.0
    return None


def _needs_of(topology: Topology, models: Mapping[str, Model], allocation: Allocation, room: float) -> _Needs:
    flexible, fixed = kinds_of(topology, models, allocation)
    return _Needs(
        {task.task: task.rate_tps for task in flexible},
        {task.task: models[topology.by_name[task.task].model_name] for task in flexible},
        {task.task: fixed_needs(topology, models, task) for task in fixed},
        room,
    )


def _whole(mixes: Sequence[Threads], needs: _Needs) -> bool:
    """Do the mixes hold every task, as many threads as are counted, and no more than slots have memory for?"""
    held: Counter[str] = Counter()
    for mix in mixes:
        held.update(mix)
    counted = all(held[task] == one.count for task, one in needs.fixed.items())
    known = needs.rates.keys() | needs.fixed.keys()
    return counted and held.keys() == known and all(_fits(_content(mix), needs) for mix in mixes)


def _content(mix: Threads) -> Content:
    return tuple(sorted((task, threads) for task, threads in mix.items() if threads))


def _fits(content: Content, needs: _Needs) -> bool:
    return bool(content) and math.fsum(_memory(*group, needs) for group in content) <= needs.room + TOLERANCE


def _memory(task: str, threads: int, needs: _Needs) -> float:
    if task in needs.fixed:
        return needs.fixed[task].memory * threads
    return min(1.0, memory(needs.models[task], threads))


def _chosen(
    mixes: Sequence[Threads],
    now: Sequence[Threads],
    needs: _Needs,
    margin: float,
    slots: int,
    most_s: float,
) -> list[Threads] | None:
    """The contents of as many slots that carry so many times the rate, with the fewest moves."""
    there = Counter(content for mix in now if (content := _known(mix, needs)))
    contents = _contents(mixes, list(there), needs)
    every = [fill for content in contents for fill in _fills(content, list(there))]
    wide, _ = _program(every, there, needs, margin, slots)
    try:
        _, price = wide.solve()
    except HeadgateError:  # not even parts of slots do
        return None
    beyond = list(wide.costs)  # what a fill costs beyond its price: little for those of good plans
    for row, one in zip(wide.rows, price, strict=True):
        for column, value in row.items():
            beyond[column] -= one * value
    found_first = set(map(_content, mixes))
    order = sorted(range(len(every)), key=lambda n: (every[n].content not in found_first, beyond[n], n))
    fills = [every[n] for n in order[:MOST_FILLS]]
    program, whole = _program(fills, there, needs, margin, slots)
    found = program.solve_whole(most_s, whole, NODES)
    if found.x is None:
        return None
    return [
        dict(fill.content) for fill, times in zip(fills, found.x, strict=False) for _ in range(round(times))
    ]


def _program(
    fills: Sequence[_Fill], there: Mapping[Content, int], needs: _Needs, margin: float, slots: int
) -> tuple[LinearProgram, list[bool]]:
    """(as few moves as carry every rate, hold what is counted and take the place of what is there once each; which of
    its columns are in whole numbers: a column for each fill). Where a content wants more CPU than there is, each of its
    tasks has a column more: in how many slots it is fed, in sum."""
    costs, whole = [float(fill.moves) for fill in fills], [True] * len(fills)
    by_content: dict[Content, list[int]] = {}
    for n, fill in enumerate(fills):
        by_content.setdefault(fill.content, []).append(n)
    carried: dict[str, dict[int, float]] = {task: {} for task in needs.rates}
    shared: list[dict[int, float]] = []  # of what is at most 0
    for content, columns in by_content.items():
        peaks, used, free = _peaks(content, needs, margin)
        if math.fsum(used.values()) <= free + TOLERANCE / 10:
            for task, part in peaks.items():
                carried[task] |= dict.fromkeys(columns, part)
            continue
        fed = dict(zip(peaks, range(len(costs), len(costs) + len(peaks)), strict=True))
        costs += [0.0] * len(fed)
        whole += [False] * len(fed)
        for task, column in fed.items():
            carried[task][column] = peaks[task]
            shared.append({column: 1.0, **dict.fromkeys(columns, -1.0)})
        shared.append({fed[task]: used[task] for task in fed} | dict.fromkeys(columns, -max(0.0, free)))
    program = LinearProgram(costs, uppers=[float(slots)] * len(costs))
    for row in carried.values():
        program.add(1.0, math.inf, row)
    for row in shared:
        program.add(-math.inf, 0.0, row)
    for task, fixed in needs.fixed.items():
        held = {n: float(count) for n, one in enumerate(fills) for at, count in one.content if at == task}
        program.add(float(fixed.count), float(fixed.count), held)
    for place, count in enumerate(there.values()):
        program.add(0.0, float(count), {n: 1.0 for n, one in enumerate(fills) if one.place == place})
    program.add(0.0, float(slots), dict.fromkeys(range(len(fills)), 1.0))
    return program, whole


def _peaks(
    content: Content, needs: _Needs, margin: float
) -> tuple[dict[str, float], dict[str, float], float]:
    """(which part of its rate each task's threads take at their peak, what CPU that takes, what there is for it)."""
    free = 1.0 - math.fsum(needs.fixed[task].cpu * n for task, n in content if task in needs.fixed)
    parts: dict[str, float] = {}
    used: dict[str, float] = {}
    for task, threads in content:
        if task in needs.rates:
            peak_tps, rate_tps = peak_rate(needs.models[task], threads), needs.rates[task] * margin
            parts[task] = min(1.0, peak_tps / rate_tps)
            used[task] = cpu(needs.models[task], threads) * min(1.0, rate_tps / peak_tps)
    return parts, used, free


def _known(mix: Threads, needs: _Needs) -> Content:
    """Without tasks that the topology has no more."""
    return _content({t: n for t, n in mix.items() if t in needs.rates or t in needs.fixed})


def _contents(mixes: Sequence[Threads], kinds: Sequence[Content], needs: _Needs) -> list[Content]:
    found: dict[Content, None] = {}
    for content in (*map(_content, mixes), *kinds, *_edited(kinds, needs)):
        if _fits(content, needs):
            found[content] = None
        if len(found) >= MOST_CONTENTS:
            break
    return list(found)


def _edited(kinds: Sequence[Content], needs: _Needs) -> Iterator[Content]:
    """With a group of threads less; then with one of another size, or one more; then all of that once again."""
    sizes = {task: [0, *(one.threads for one in choices_of(model))] for task, model in needs.models.items()}
    sizes |= {task: list(range(min(one.count, 4) + 1)) for task, one in needs.fixed.items()}

    def edited(contents: Iterable[Content]) -> Iterator[Content]:
        for content in contents:
            for task, counts in sizes.items():
                for threads in counts:
                    yield _content({**dict(content), task: threads})

    for content in kinds:
        for place in range(len(content)):
            yield content[:place] + content[place + 1 :]
    yield from edited(kinds)
    yield from edited(edited(kinds))


def _fills(content: Content, kinds: Sequence[Content]) -> Iterator[_Fill]:
    """In the place of contents of now that it shares most threads with, and of none."""
    threads, own = sum(count for _, count in content), dict(content)
    yield _Fill(content, -1, threads)
    kept = [sum(min(count, own.get(task, 0)) for task, count in other) for other in kinds]
    for place in sorted(range(len(kinds)), key=lambda place: -kept[place])[:MOST_PLACES]:
        if kept[place]:
            yield _Fill(content, place, threads - 2 * kept[place])
