"""What is wrong with the shape of a topology: circles, pieces, rates that explode. Pure, linear.

`Arc` = (edge number, from, to, selectivity); tasks are numbers. Every start comes through here, so networkx is asked
only about a topology that is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

Arc = tuple[int, int, int, float]

NAMES_SHOWN = 10  # task names in one fault
MAX_RATE_GAIN = 1e9  # tuples/s at a task for 1 tuple/s of input: above, rates are typing errors


def circle_faults(names: Sequence[str], arcs: Sequence[Arc]) -> Iterator[str]:
    """One fault for each knot of tasks that reach each other, with a shortest circle through its first."""
    if not _in_a_circle(len(names), arcs):
        return
    import networkx  # 0.2 s, which only a topology pays that is refused

    numbers = {(source, target): number for number, source, target, _ in reversed(arcs)}
    graph = networkx.DiGraph(list(numbers))
    knots = (knot for knot in networkx.strongly_connected_components(graph) if len(knot) > 1)
    for first, knot in sorted((min(knot), knot) for knot in knots):
        inside = graph.subgraph(knot)
        far = networkx.single_source_shortest_path_length(inside.reverse(copy=False), first)
        second = min(inside[first], key=far.__getitem__)
        circle = [first, *networkx.shortest_path(inside, second, first)]
        way = " → ".join([*_cut([names[task] for task in circle[:-1]]), names[first]])
        yield f"edges[{numbers[circle[-2], first]}]: tasks go round in a circle: {way}"


def _in_a_circle(size: int, arcs: Sequence[Arc]) -> bool:
    """Is any task left when those that nothing left leads to are taken away, again and again?"""
    waiting = [0] * size
    leaving: list[list[int]] = [[] for _ in range(size)]
    for _, source, target, _ in arcs:
        waiting[target] += 1
        leaving[source].append(target)
    ready = [task for task, count in enumerate(waiting) if count == 0]
    for task in ready:  # grows
        for target in leaving[task]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return len(ready) < size


def piece_faults(names: Sequence[str], arcs: Sequence[Arc]) -> Iterator[str]:
    """A topology is one piece: every task is joined to every other, whatever the direction."""
    root = list(range(len(names)))

    def find(task: int) -> int:
        while root[task] != task:
            root[task] = task = root[root[task]]
        return task

    for _, source, target, _ in arcs:
        root[find(source)] = find(target)
    pieces: dict[int, list[str]] = {}
    for task, name in enumerate(names):
        pieces.setdefault(find(task), []).append(name)
    if len(pieces) > 1:
        texts = _cut(["{" + ", ".join(_cut(piece)) + "}" for piece in pieces.values()])
        yield f"edges: the tasks are in {len(pieces)} pieces that no edge joins: {', '.join(texts)}"


def rate_faults(names: Sequence[str], arcs: Sequence[Arc]) -> Iterator[str]:
    """Selectivities along a way multiply: the first task whose rate runs away in a graph without
    circles."""
    waiting = [0] * len(names)
    leaving: list[list[tuple[int, float]]] = [[] for _ in names]
    for _, source, target, selectivity in arcs:
        waiting[target] += 1
        leaving[source].append((target, selectivity))
    ready = deque(task for task, count in enumerate(waiting) if count == 0)
    rates = [1.0 if count == 0 else 0.0 for count in waiting]
    while ready:
        task = ready.popleft()
        if not rates[task] <= MAX_RATE_GAIN:
            gain = f"{rates[task]:.3g} tuples for each tuple of the input"
            yield f"tasks[{task}] {names[task]!r}: would see {gain}; look at the selectivities before it"
            return
        for target, selectivity in leaving[task]:
            rates[target] += rates[task] * selectivity
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)


def _cut(words: list[str]) -> list[str]:
    more = len(words) - NAMES_SHOWN
    return [*words[:NAMES_SHOWN], f"… {more} more"] if more > 0 else words
