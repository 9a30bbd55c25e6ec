"""The fewest slots that carry a rate when threads of several tasks may share one (ours). Pure.

A *mix* is what a slot holds: of each task one of the measured numbers of threads and the rate these take there, and
whole threads of tasks of fixed size or of one thread. Mixes are columns of a linear program (Gilmore and Gomory,
1961): it wants as few as carry all rates, its prices say which mix would be worth more than a slot, and a small integer
program finds that mix; when none is left, the linear program's optimum is what no plan can go below. The plan takes
whole mixes, by one integer program over those that were found, or by settling some and asking again. A thread's memory
is counted in full, however slowly it is fed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from controller.plan.linear_program import LinearProgram

MOST_MIXES = 400  # that are looked for
WORTH = 1e-6  # a mix has to be worth more than a slot by so much
NODES = 500  # of the search for whole numbers of mixes
NODES_OF_MIX = 2000  # of the search for one mix


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
    """A mix for each slot, and the number of slots that nothing goes below."""

    slots: tuple[Mix, ...]
    least: float


def fewest(flexible: Sequence[Flexible], fixed: Sequence[Fixed]) -> Mixed:
    """The fewest slots that are found, each with its mix. Every choice fits a slot by itself."""
    mixes, times, least = _priced(flexible, fixed)
    found = _master(mixes, flexible, fixed).solve_whole(nodes=NODES)
    slots = _taken(mixes, found.x or [math.ceil(x) for x in times])
    if len(slots) > math.ceil(least - WORTH):
        dived = _dived(flexible, fixed)
        slots = min(slots, dived, key=len)
    return Mixed(tuple(_trimmed(slots, flexible, fixed)), least)


def _taken(mixes: Sequence[Mix], times: Sequence[float]) -> list[Mix]:
    return [mix for mix, count in zip(mixes, times, strict=True) for _ in range(round(count))]


def _priced(flexible: Sequence[Flexible], fixed: Sequence[Fixed]) -> tuple[list[Mix], list[float], float]:
    """(mixes, how often the linear program takes each, what nothing goes below)."""
    mixes, least = _alone(flexible, fixed), 0.0
    times: list[float] = []
    for _ in range(MOST_MIXES):
        times, price = _master(mixes, flexible, fixed).solve()
        mix, worth = _worthiest(flexible, fixed, price)
        least = max(least, math.fsum(price) / max(worth, 1.0))
        if worth <= 1 + WORTH:
            break
        mixes.append(mix)
        times.append(0.0)
    return mixes, times, least


def _dived(flexible: Sequence[Flexible], fixed: Sequence[Fixed]) -> list[Mix]:
    """Mixes that the linear program takes whole are settled, or else the one it takes most of; then it is asked again
    for what is left, until nothing is."""
    slots: list[Mix] = []
    flexible, fixed = list(flexible), list(fixed)
    while any(one.rate_tps > 0 for one in flexible) or any(one.count for one in fixed):
        mixes, times, _ = _priced(flexible, fixed)
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
    return slots


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
        row = {column: mix.flexible[task][1] / one.rate_tps
               for column, mix in enumerate(mixes) if task in mix.flexible}  # fmt: skip
        program.add(1.0, math.inf, row)
    for task, two in enumerate(fixed):
        row = {column: float(mix.fixed[task]) for column, mix in enumerate(mixes) if task in mix.fixed}
        program.add(float(two.count), math.inf, row)
    return program


def _worthiest(
    flexible: Sequence[Flexible], fixed: Sequence[Fixed], price: Sequence[float]
) -> tuple[Mix, float]:
    """The mix that is worth most by these prices, and no less than what any is worth."""
    options = [
        (task, choice) for task, one in enumerate(flexible) for choice in one.choices if one.rate_tps > 0
    ]
    size = len(options)
    worth = [-price[task] * choice.rate_tps / flexible[task].rate_tps for task, choice in options]
    worth += [0.0] * size + [-price[len(flexible) + task] for task in range(len(fixed))]
    parts = [min(1.0, flexible[task].rate_tps / choice.rate_tps) for task, choice in options]
    program = LinearProgram(worth, uppers=[*parts, *[1.0] * size, *(float(one.count) for one in fixed)])
    for number in range(size):  # fed at most at the peak, if there
        program.add(-math.inf, 0.0, {number: 1.0, size + number: -1.0})
    for task in range(len(flexible)):
        program.add(0.0, 1.0, {size + n: 1.0 for n, (of, _) in enumerate(options) if of == task})
    cpu = {number: choice.cpu for number, (_, choice) in enumerate(options)}
    memory = {size + number: choice.memory for number, (_, choice) in enumerate(options)}
    for task, one in enumerate(fixed):
        cpu[2 * size + task] = one.cpu
        memory[2 * size + task] = one.memory
    program.add(0.0, 1.0, cpu)
    program.add(0.0, 1.0, memory)
    whole = [False] * size + [True] * (size + len(fixed))
    found = program.solve_whole(whole=whole, nodes=NODES_OF_MIX)
    x = found.x or [0.0] * len(worth)
    taken = {
        task: (choice.threads, choice.rate_tps * x[number])
        for number, (task, choice) in enumerate(options)
        if x[number] > WORTH and x[size + number] > 0.5
    }
    held = {task: round(x[2 * size + task]) for task in range(len(fixed)) if x[2 * size + task] > 0.5}
    return Mix(taken, held), -found.bound


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
