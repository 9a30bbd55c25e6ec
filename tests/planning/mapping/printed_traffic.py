"""Paper 1's schedulers as they are printed, executor by executor: everything is added up anew at every step.

Written from section 3 alone, as a reference for `topology_based` and `traffic_based`. Where the text leaves open what
comes first among equals, the readings are those of these modules' docstrings.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

Executor = tuple[int, int]  # component, number
NONE = None


@dataclass
class PrintedWorld:
    """`loads`, `sizes`: per component, CPU and memory of an executor. `rates`: (component, component) → R of a pair of
    executors. nodes: (slots, bound B in slots) of each."""

    executors: list[int]
    loads: list[float]
    sizes: list[float]
    rates: dict[tuple[int, int], float]
    nodes: list[tuple[int, float]]
    alpha: float = 0.0
    printed: bool = True
    a1: dict[Executor, int | None] = field(default_factory=dict)
    a2: dict[int, int | None] = field(default_factory=dict)

    @property
    def workers(self) -> range:
        return range(sum(slots for slots, _ in self.nodes))

    def rate(self, one: Executor, other: Executor) -> float:
        return self.rates.get((one[0], other[0]), self.rates.get((other[0], one[0]), 0.0))

    def limit(self) -> float:
        """M(α) = ⌈E/W⌉ + α (E − W + 1 − ⌈E/W⌉)."""
        e, w = len(self.a1), len(self.workers)
        least = -(-e // w)
        return least + self.alpha * max(0, e - w + 1 - least) if self.printed else e

    def worker_load(self, worker: int) -> float:
        return sum(self.loads[x[0]] for x, at in self.a1.items() if at == worker)

    def between_workers(self, a1: dict[Executor, int | None]) -> float:
        pairs = itertools.combinations([x for x in a1 if a1[x] is not NONE], 2)
        return sum(self.rate(x, y) for x, y in pairs if a1[x] != a1[y])

    def sound(self, a1: dict[Executor, int | None], changed: set[int | None]) -> bool:
        """Are workers within a core, a slot's memory and M(α), and can min(E, W) workers still be in use?"""
        for worker in changed - {NONE}:
            here = [x[0] for x, at in a1.items() if at == worker]
            if len(here) > self.limit():
                return False
            if sum(self.loads[c] for c in here) > 1 or sum(self.sizes[c] for c in here) > 1:
                return False
        used = len({at for at in a1.values() if at is not NONE})
        left = sum(at is NONE for at in a1.values())
        return not self.printed or left >= min(len(a1), len(self.workers)) - used

    def between_nodes(self, a2: dict[int, int | None]) -> float:
        """Eq. 3, of workers that have a node."""
        found = 0.0
        for x, y in itertools.combinations(self.a1, 2):
            p, q = a2[self.a1[x]], a2[self.a1[y]]
            if NONE not in (p, q) and p != q:
                found += self.rate(x, y)
        return found

    def fits_nodes(self, a2: dict[int, int | None]) -> bool:
        """Eq. 1 and the slots S of each node."""
        for node, (slots, bound) in enumerate(self.nodes):
            here = [worker for worker, at in a2.items() if at == node]
            if len(here) > slots or sum(map(self.worker_load, here)) > bound:
                return False
        return True


def schedule(world: PrintedWorld) -> bool:
    """Fill `a1` and `a2`; False when something fits nowhere."""
    world.a1 = {(c, n): NONE for c, count in enumerate(world.executors) for n in range(count)}
    _first_phase(world)
    if NONE in world.a1.values():
        return False
    world.a2 = dict.fromkeys(sorted({at for at in world.a1.values() if at is not NONE}))
    return _second_phase(world)


def _turns(a: int, b: int) -> list[tuple[int, int]]:
    """(0, 0), (1, 0), (1, 1), (2, 1), …, then the pairs that are left over."""
    first = [(0, 0)]
    while first[-1] != (a - 1, b - 1):
        m, n = first[-1]
        step_m = n == b - 1 or (m < a - 1 and m == n)
        first.append((m + 1, n) if step_m else (m, n + 1))
    return first + [pair for pair in itertools.product(range(a), range(b)) if pair not in first]


def _first_phase(world: PrintedWorld) -> None:
    for a, b in sorted(world.rates, key=lambda pair: -world.rates[pair]):
        for m, n in _turns(world.executors[a], world.executors[b]):
            x, y = (a, m), (b, n)
            old = world.a1[x], world.a1[y]
            least = min(world.workers, key=lambda w: (world.worker_load(w), w))
            places = list(dict.fromkeys(w for w in (least, *old) if w is not NONE))
            found = []
            for order, new in enumerate(itertools.product(places, repeat=2)):
                a1 = {**world.a1, x: new[0], y: new[1]}
                if world.sound(a1, {*new, *old}):
                    moves = sum(o is not NONE and o != w for o, w in zip(old, new, strict=True))
                    found.append((world.between_workers(a1), moves, order, new))
            if found:
                world.a1[x], world.a1[y] = min(found)[-1]
                continue
            for z in (x, y):
                if world.a1[z] is NONE:
                    _first_phase_alone(world, z)
    for x, at in world.a1.items():
        if at is NONE:
            _first_phase_alone(world, x)


def _first_phase_alone(world: PrintedWorld, x: Executor) -> None:
    found = [
        (world.between_workers({**world.a1, x: w}), world.worker_load(w), w)
        for w in world.workers
        if world.sound({**world.a1, x: w}, {w})
    ]
    if found:
        world.a1[x] = min(found)[-1]


def _second_phase(world: PrintedWorld) -> bool:
    between: dict[tuple[int, int], float] = {}
    for x, y in itertools.combinations(world.a1, 2):
        pair = tuple(sorted((world.a1[x], world.a1[y])))
        if pair[0] != pair[1] and (world.rate(x, y) or {(x[0], y[0]), (y[0], x[0])} & world.rates.keys()):
            between[pair] = between.get(pair, 0.0) + world.rate(x, y)

    def node_load(node: int) -> float:
        return sum(world.worker_load(w) for w, at in world.a2.items() if at == node)

    def open_nodes() -> list[int]:
        held = list(world.a2.values())
        return [n for n, (slots, _) in enumerate(world.nodes) if held.count(n) < slots]

    def alone(w: int) -> bool:
        found = [
            (world.between_nodes({**world.a2, w: n}), node_load(n), n)
            for n in open_nodes()
            if world.fits_nodes({**world.a2, w: n})
        ]
        if found:
            world.a2[w] = min(found)[-1]
        return bool(found)

    for v, w in sorted(between, key=lambda pair: (-between[pair], pair)):
        old = world.a2[v], world.a2[w]
        least = min(open_nodes(), key=lambda n: (node_load(n), n), default=NONE)
        places = list(dict.fromkeys(n for n in (least, *old) if n is not NONE))
        found = []
        for order, new in enumerate(itertools.product(places, repeat=2)):
            a2 = {**world.a2, v: new[0], w: new[1]}
            if world.fits_nodes(a2):
                moves = sum(o is not NONE and o != n for o, n in zip(old, new, strict=True))
                found.append((world.between_nodes(a2), moves, order, new))
        if found:
            world.a2[v], world.a2[w] = min(found)[-1]
        elif not all(alone(z) for z in (v, w) if world.a2[z] is NONE):
            return False
    rest = [w for w, at in world.a2.items() if at is NONE]
    return all(alone(w) for w in sorted(rest, key=lambda w: (-world.worker_load(w), w)))


def offline(
    executors: list[int], feeds: set[tuple[int, int]], workers: int, alpha: float, beta: float
) -> list[list[int]]:
    """Section 3.1: of each slot, the component of every executor in it. feeds: (component, component that it feeds)."""
    slots: list[list[int]] = [[] for _ in range(workers)]
    e, least = sum(executors), -(-sum(executors) // workers)
    most = least + alpha * max(0, e - workers + 1 - least)
    for i, count in enumerate(executors, 1):
        component = i - 1
        upstream = [w for w in range(workers) if any((c, component) in feeds for c in slots[w])]
        for _ in range(count):
            empty = [w for w in range(workers) if not slots[w]]
            if i > beta * len(executors) and empty:
                slots[empty[0]].append(component)
                continue
            open_ones = [w for w in range(workers) if len(slots[w]) + 1 <= most]
            beside = (
                [w for w in open_ones if w in upstream] or [w for w in open_ones if slots[w]] or open_ones
            )
            slots[min(beside, key=lambda w: (len(slots[w]), w))].append(component)
    return slots
