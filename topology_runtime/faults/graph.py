"""What is wrong with the shape of a topology: circles, pieces, rates that explode. Pure, linear.

Graphs are adjacency lists over task numbers; `Arc` = (edge number, from, to, selectivity).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

Arc = tuple[int, int, int, float]
Graph = list[list[int]]

NAMES_SHOWN = 10  # task names in one fault
MAX_RATE_GAIN = 1e9  # tuples/s at a task for 1 tuple/s of input: above, rates are typing errors


def adjacency(size: int, arcs: Sequence[Arc]) -> Graph:
    graph: Graph = [[] for _ in range(size)]
    for _, source, target, _ in arcs:
        graph[source].append(target)
    return graph


def circle_faults(names: Sequence[str], arcs: Sequence[Arc]) -> Iterator[str]:
    """One fault for each knot of tasks that reach each other, with a shortest circle through its first."""
    graph = adjacency(len(names), arcs)
    numbers = {(source, target): number for number, source, target, _ in reversed(arcs)}
    for knot in _knots(graph):
        circle = _circle_through(min(knot), graph, set(knot))
        way = " → ".join([*_cut([names[task] for task in circle]), names[circle[0]]])
        yield f"edges[{numbers[circle[-1], circle[0]]}]: tasks go round in a circle: {way}"


def _knots(graph: Graph) -> list[list[int]]:
    """Strongly connected components of two tasks or more (Kosaraju), by their first task."""
    reverse: Graph = [[] for _ in graph]
    for source, targets in enumerate(graph):
        for target in targets:
            reverse[target].append(source)
    seen = [False] * len(graph)
    finished = [task for start in range(len(graph)) for task in _postorder(start, graph, seen)]
    seen = [False] * len(graph)
    components = [list(_postorder(start, reverse, seen)) for start in reversed(finished)]
    return sorted((knot for knot in components if len(knot) > 1), key=min)


def _postorder(start: int, graph: Graph, seen: list[bool]) -> Iterator[int]:
    """Tasks first reached from `start`, each after all that it leads to."""
    if seen[start]:
        return
    seen[start] = True
    stack = [(start, iter(graph[start]))]
    while stack:
        task, targets = stack[-1]
        for target in targets:
            if not seen[target]:
                seen[target] = True
                stack.append((target, iter(graph[target])))
                break
        else:
            stack.pop()
            yield task


def _circle_through(start: int, graph: Graph, knot: set[int]) -> list[int]:
    """A shortest way from `start` round to itself inside its knot."""
    came_from = {start: start}
    waiting = deque([start])
    while waiting:
        task = waiting.popleft()
        for target in graph[task]:
            if target == start:
                return _way_back(task, start, came_from)
            if target in knot and target not in came_from:
                came_from[target] = task
                waiting.append(target)
    raise AssertionError("a knot has a circle through each of its tasks")


def _way_back(task: int, start: int, came_from: dict[int, int]) -> list[int]:
    way = [task]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1]


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
