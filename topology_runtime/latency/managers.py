"""Who looks after which part of a constrained path: paper 4, algorithms 1 to 3. Pure.

A constraint on a path of tasks is one for every *sequence*: a thread of each task of the path, each joined to the next
by a channel. There are far too many to name (800 threads in three places: 512 million), so they are shared out: the
threads of one task, the *anchor*, are split by worker, and each part, with all threads that a sequence through it can
pass, is looked after by that worker's manager. A sequence passes one thread of the anchor, so it has one manager.

Every worker computes this from the same desired state, so nobody has to be told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.topology import Edge, Grouping, LatencyConstraint, Topology

Threads = frozenset[int]


@dataclass(frozen=True)
class PathPart:
    """The sequences of constraint `constraint` that one manager looks after: for each task of its path the threads
    that they can pass."""

    constraint: int
    threads: tuple[Threads, ...]


@dataclass(frozen=True)
class Manager:
    """The manager in the worker of `slot`."""

    slot: Slot
    parts: tuple[PathPart, ...]


@dataclass
class Channels:
    """The channels of one edge: which of its senders gives rows to which of its receivers (router.py)."""

    grouping: Grouping
    senders: Threads
    receivers: Threads
    slot_of: Mapping[int, Slot]
    _there: dict[Slot, Threads] = field(default_factory=dict)  # receivers by slot
    _here: dict[Slot, Threads] = field(default_factory=dict)  # senders by slot
    _astray: Threads = frozenset()  # senders in slots without a receiver, by `local`

    def __post_init__(self) -> None:
        if self.grouping == "global" and self.receivers:
            self.receivers = frozenset({min(self.receivers)})
        if self.grouping == "local":
            self._there, self._here = (
                _by_slot(self.receivers, self.slot_of),
                _by_slot(self.senders, self.slot_of),
            )
            self._astray = frozenset(t for t in self.senders if self.slot_of[t] not in self._there)

    @property
    def count(self) -> int:
        if self.grouping != "local":
            return len(self.senders) * len(self.receivers)
        near = sum(len(self._here.get(slot, ())) * len(there) for slot, there in self._there.items())
        return near + len(self._astray) * len(self.receivers)

    def after(self, senders: Threads) -> Threads:
        """The receivers of these senders."""
        if self.grouping != "local" or senders & self._astray:
            return self.receivers if senders else frozenset()
        slots = {self.slot_of[thread] for thread in senders}
        return frozenset().union(*(self._there[slot] for slot in slots))

    def before(self, receivers: Threads) -> Threads:
        """The senders to these receivers."""
        if self.grouping != "local":
            return self.senders if receivers & self.receivers else frozenset()
        slots = {self.slot_of[thread] for thread in receivers}
        return frozenset().union(self._astray, *(self._here.get(slot, frozenset()) for slot in slots))


def managers(
    topology: Topology, threads_of: Mapping[str, Collection[int]], slot_of: Mapping[int, Slot]
) -> list[Manager]:
    """Algorithm 1 (ComputeQoSSetup): all managers of all constraints, one for each worker that has any."""
    found: dict[Slot, list[PathPart]] = {}
    for number, constraint in enumerate(topology.latency_constraints):
        for slot, part in _managers_of(topology, number, constraint, threads_of, slot_of):
            found.setdefault(slot, []).append(part)
    return [Manager(slot, tuple(parts)) for slot, parts in sorted(found.items())]


def _managers_of(
    topology: Topology,
    number: int,
    constraint: LatencyConstraint,
    threads_of: Mapping[str, Collection[int]],
    slot_of: Mapping[int, Slot],
) -> list[tuple[Slot, PathPart]]:
    """Algorithm 2 (GetQoSManagers): the anchor's threads by worker, each expanded along the path both ways."""
    path, channels = [frozenset(threads_of.get(constraint.path[0], ()))], list[Channels]()
    for source, target in pairwise(constraint.path):
        edge, receivers = edge_between(topology, source, target), frozenset(threads_of.get(target, ()))
        channels.append(Channels(edge.grouping, path[-1], receivers, slot_of))
        path.append(channels[-1].after(path[-1]))  # others get no rows on this path
    anchor = anchor_of(path, channels, slot_of)
    made: list[tuple[Slot, PathPart]] = []
    for slot, mine in sorted(_by_slot(path[anchor], slot_of).items()):
        threads = [frozenset[int]()] * anchor + [mine] + [frozenset[int]()] * (len(path) - anchor - 1)
        for step in range(anchor, len(channels)):
            threads[step + 1] = channels[step].after(threads[step])
        for step in range(anchor - 1, -1, -1):
            threads[step] = channels[step].before(threads[step + 1])
        if all(threads):
            made.append((slot, PathPart(number, tuple(threads))))
    return made


def anchor_of(path: Sequence[Threads], channels: Sequence[Channels], slot_of: Mapping[int, Slot]) -> int:
    """Algorithm 3 (GetAnchorVertex): of the tasks in most workers, the first one with the fewest channels on its
    smaller side: its place in the path."""
    workers = [len({slot_of[thread] for thread in threads}) for threads in path]
    fewest = [
        min(joined.count for joined in channels[max(0, place - 1) : place + 1]) for place in range(len(path))
    ]
    return min(range(len(path)), key=lambda place: (-workers[place], fewest[place], place))


def edge_between(topology: Topology, source: str, target: str) -> Edge:
    """The edge from one task to the other; its constraint was checked."""
    return next(edge for _, edge in topology.in_edges(target) if edge.source == source)


def sequences(part: PathPart, channels: Sequence[Channels]) -> int:
    """How many sequences the part holds, counted without naming one."""
    ways = dict.fromkeys(part.threads[-1], 1)
    for step in range(len(part.threads) - 2, -1, -1):
        every, before = sum(ways.values()), {}
        for thread in part.threads[step]:
            reached = channels[step].after(frozenset({thread}))
            whole = reached.issuperset(part.threads[step + 1])
            before[thread] = every if whole else sum(ways.get(other, 0) for other in reached)
        ways = before
    return sum(ways.values())


def _by_slot(threads: Threads, slot_of: Mapping[int, Slot]) -> dict[Slot, Threads]:
    slots: dict[Slot, list[int]] = {}
    for thread in threads:
        slots.setdefault(slot_of[thread], []).append(thread)
    return {slot: frozenset(own) for slot, own in slots.items()}
