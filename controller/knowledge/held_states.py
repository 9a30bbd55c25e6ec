"""How much the states of keyed tasks take, by key range, as their threads say it. Pure.

A thread's word counts for the ranges that it owns. Whoever has not said anything yet has nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headgate.controller.models.plans import TaskState
from headgate.topology_runtime.api.topology import KEY_RANGES, Topology
from headgate.topology_runtime.wire.messages import Route
from headgate.topology_runtime.wire.report_messages import PART_STEPS, HeldState

BYTES_MOST = 1 << 50  # that a thread may say it has

Said = Mapping[int, HeldState]  # thread → what it said last


def sound(held: HeldState) -> bool:
    """Can this be what a thread has?"""
    if not (0 <= held.saved_bytes <= BYTES_MOST and 0 <= held.memory_bytes <= BYTES_MOST):
        return False
    many = 0
    for first, count in held.ranges:
        if not (0 <= first < KEY_RANGES and 0 < count <= KEY_RANGES - first):
            return False
        many += count
    return many == len(held.parts) <= KEY_RANGES


def task_states(said: Said, tasks: Mapping[int, str]) -> tuple[TaskState, ...]:
    """Of each task that has any, in order of names. tasks: thread → its task."""
    found: dict[str, tuple[int, int]] = {}
    for thread, held in said.items():
        if (task := tasks.get(thread)) is not None:
            saved, memory = found.get(task, (0, 0))
            found[task] = saved + held.saved_bytes, memory + held.memory_bytes
    return tuple(TaskState(task, *found[task]) for task in sorted(found) if found[task][1])


def range_sizes(said: Said, routes: Sequence[Route], topology: Topology) -> dict[str, list[int]]:
    """Task → bytes in each of its key ranges, whose owners are those of these routes."""
    found: dict[str, list[int]] = {}
    for route in routes:
        task = topology.edges[route.edge].target
        if not route.ranges or task in found or topology.by_name[task].state != "keyed":
            continue
        owned: dict[int, list[int]] = {}
        for place, thread in enumerate(t for t, count in route.ranges for _ in range(count)):
            owned.setdefault(thread, []).append(place)
        sizes = [0] * KEY_RANGES
        for thread, ranges in owned.items():
            for place, size in _of_thread(said.get(thread), ranges):
                sizes[place] += size
        found[task] = sizes
    return found


def _of_thread(held: HeldState | None, ranges: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(range, bytes): as it says, or evenly."""
    if held is None:
        return
    if not held.parts:
        yield from ((place, held.saved_bytes // len(ranges)) for place in ranges)
        return
    weights = [2.0 ** (part / PART_STEPS) if part else 0.0 for part in held.parts]
    total = sum(weights)
    places = (first + n for first, count in held.ranges for n in range(count))
    for place, weight in zip(places, weights, strict=True):
        yield place, int(held.saved_bytes * weight / total) if total else 0
