"""The watermark of a thread with event time: the lowest of all that its input says. Pure.

Every thread of a source with timestamps upstream says how far its rows are done, and every owner of a key range of a
task with event time upstream how far that is; who was never heard holds the watermark back. It never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headgate.topology_runtime.api.timed import END_US, IDLE_US
from headgate.topology_runtime.api.topology import KEY_RANGES, Topology
from headgate.topology_runtime.wire.dead_letter_messages import timed_partition
from headgate.topology_runtime.wire.state_moves import RangeWatermarks, Watermark
from headgate.topology_runtime.worker.orders.thread_orders import Orders

UNHEARD = -(1 << 62)  # below any event time
TOLD_EVERY_NS, TOLD_AGAIN_NS = 100_000_000, 1_000_000_000  # when it has changed, and when it has not


class InputTimes:
    """All that one thread of `task` has heard."""

    def __init__(self, topology: Topology, task: str) -> None:
        upstream = topology.upstream(task)
        self._sources = [one.name for one in topology.sources if one.name in upstream and one.timestamps]
        timed = {
            number: one.name
            for number, one in enumerate(topology.tasks)
            if one.timed and one.name in upstream
        }
        self._fed_by = {
            number: [one.name for one in topology.sources_with_times(name)] for number, name in timed.items()
        }
        self._feeders: dict[int, list[int]] = {}  # task → threads of these sources
        self._threads: dict[int, int] = {}  # of these sources
        self._needed: frozenset[int] = frozenset()
        self._known = False  # by some orders
        self._versions = {number: [-1] * KEY_RANGES for number in timed}
        self._ranges = {number: [UNHEARD] * KEY_RANGES for number in timed}
        self._idle = {number: bytearray(KEY_RANGES) for number in timed}  # 1: that range, by the last word
        self._found: tuple[int, int] | None = None  # lowest of these all, held by; None: look

    def obey(self, orders: Orders) -> None:
        """Who is to be heard: all threads of these sources, also those that are to go."""
        self._needed = frozenset(n for name in self._sources for n in orders.threads_of.get(name, ()))
        self._feeders = {
            number: [thread for name in names for thread in orders.threads_of.get(name, ())]
            for number, names in self._fed_by.items()
        }
        self._threads = {thread: at_us for thread, at_us in self._threads.items() if thread in self._needed}
        self._known, self._found = True, None

    def hear(self, word: Watermark | RangeWatermarks) -> None:
        if isinstance(word, Watermark):
            self._threads[word.sender] = min(word.at_us, IDLE_US)
            self._found = None
            return
        values = self._ranges.get(word.task)
        if values is None:
            return
        versions, idle = self._versions[word.task], self._idle[word.task]
        for first, count, version, at_us in word.ranges:
            for key_range in range(max(0, first), min(KEY_RANGES, first + count)):
                if version >= versions[key_range]:
                    versions[key_range], idle[key_range] = version, at_us >= IDLE_US
                    if at_us < IDLE_US:
                        values[key_range] = at_us
        self._found = None

    def _lowest_of(self, number: int) -> int:
        """Of a task. Its threads have the same input, but hear of it one by one, and not when this one does: what is
        idle counts as it was, until all of them are, and all sources before them."""
        feeders = self._feeders.get(number, ())
        idle = all(self._threads.get(thread, UNHEARD) >= IDLE_US for thread in feeders)
        return IDLE_US if idle and all(self._idle[number]) else min(self._ranges[number])

    @property
    def lowest_us(self) -> int:
        """Of all input; UNHEARD: some was never heard of, IDLE_US: none is waited for."""
        return (self._found or self._find())[0]

    @property
    def held_by(self) -> int:
        """The thread of a source that holds it back; −1: none, or a task."""
        return (self._found or self._find())[1]

    def _find(self) -> tuple[int, int]:
        threads = [self._threads.get(thread, UNHEARD) for thread in self._needed]
        there = self._known and bool(self._sources or self._ranges)
        every = [*threads, *(self._lowest_of(number) for number in self._ranges)]
        lowest_us = min(every, default=UNHEARD) if there else UNHEARD
        slowest = min(self._needed, key=lambda one: (self._threads.get(one, UNHEARD), one), default=-1)
        holds = self._threads.get(slowest, UNHEARD) == lowest_us < IDLE_US
        self._found = lowest_us, slowest if holds else -1
        return self._found


def done_places(word: RangeWatermarks) -> Iterator[tuple[int, int, int]]:
    """(source, partition, position) below which nothing comes of a task with event time upstream (`Applied`)."""
    for key_range, number in word.kept:
        if 0 <= key_range < KEY_RANGES:
            yield 0, timed_partition(word.task, key_range), number


class Telling:
    """When a watermark is told: to one set of targets."""

    def __init__(self) -> None:
        self._told: object = None
        self._told_ns = -TOLD_AGAIN_NS

    def due(self, now_ns: int) -> bool:
        """May it be told, if it has changed?"""
        return now_ns - self._told_ns >= TOLD_EVERY_NS

    def is_told(self, what: object, now_ns: int) -> bool:
        """True when this is to be told now."""
        if what == self._told and now_ns - self._told_ns < TOLD_AGAIN_NS:
            return False
        self._told, self._told_ns = what, now_ns
        return True


def targets_of(orders: Orders, task: str) -> list[int]:
    """The threads that hear the watermark of a thread of this task."""
    return [n for name in orders.topology.timed_below(task) for n in orders.threads_of.get(name, ())]


def keyed_below(orders: Orders, task: str) -> list[int]:
    """The threads that know rows of this task by their names."""
    topology = orders.topology
    names = [
        one.name for one in topology.tasks if one.state == "keyed" and task in topology.upstream(one.name)
    ]
    return [n for name in names for n in orders.threads_of.get(name, ())]


def runs(told: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """(range, version, watermark) of ranges in order as (first, how many, version, watermark)."""
    first = count = version = at_us = -1
    for key_range, its_version, its_us in told:
        if count > 0 and key_range == first + count and (its_version, its_us) == (version, at_us):
            count += 1
            continue
        if count > 0:
            yield first, count, version, at_us
        first, count, version, at_us = key_range, 1, its_version, its_us
    if count > 0:
        yield first, count, version, at_us


assert UNHEARD < END_US < IDLE_US
