"""Where rows of each edge go, from a plan's shares and its numbered threads. Pure.

A group's share of its task's rows is divided evenly among its threads. Every `fields` edge into a task
uses the same key ranges, so that a key meets one thread whichever way it comes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from headgate.controller.knowledge.models import Model, peak_rate
from headgate.controller.knowledge.plans import Plan, ThreadAt
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.messages import Route
from headgate.topology_runtime.topology import KEY_RANGES, Topology

Weights = list[tuple[int, float]]  # (thread, part of the task's rows), by rising thread, sum 1


def routes(
    topology: Topology, plan: Plan, threads: tuple[ThreadAt, ...], before: tuple[Route, ...] = ()
) -> tuple[Route, ...]:
    """One route per edge in file order. `threads`: those that the plan wants, without leaving ones.

    `before`: the routes in force; key ranges stay with their owner unless its weight forbids that."""
    weights = thread_weights(plan, threads)
    owners = _owners_before(topology, before)
    ranges: dict[str, list[int]] = {}
    found = []
    for number, edge in enumerate(topology.edges):
        targets = weights[edge.target]
        if edge.grouping == "global":
            found.append(Route(number, ((targets[0][0], 1.0),)))
        elif edge.grouping == "fields":
            if edge.target not in ranges:
                ranges[edge.target] = owners_of_ranges(targets, owners.get(edge.target, ()))
            found.append(Route(number, tuple(targets), _runs(ranges[edge.target])))
        else:
            found.append(Route(number, tuple(targets)))
    return tuple(found)


def modelled_tps(
    plan: Plan, topology: Topology, models: Mapping[str, Model], threads: tuple[ThreadAt, ...]
) -> dict[int, float]:
    """Thread → tuples/s it is modelled for: its part of I(q), or of the planned rate where there is no
    model (sources, sinks)."""
    sizes = {(bundle.slot, bundle.task): bundle.threads for bundle in plan.placement.bundles}
    rates = {task.task: task.rate_tps for task in plan.allocation.tasks}
    weights = {thread: part for parts in thread_weights(plan, threads).values() for thread, part in parts}
    modelled = {}
    for thread in threads:
        task = topology.by_name[thread.task]
        if task.static is None:
            size = sizes[thread.slot, thread.task]
            modelled[thread.thread] = peak_rate(models[task.model_name], size) / size
        else:
            modelled[thread.thread] = rates[thread.task] * weights[thread.thread]
    return modelled


def thread_weights(plan: Plan, threads: Sequence[ThreadAt]) -> dict[str, Weights]:
    """Task → (thread, part of its rows): the shares of the plan, evenly within each group."""
    shares = {(share.slot, share.task): share.share for share in plan.prediction.shares}
    members: defaultdict[tuple[Slot, str], int] = defaultdict(int)
    for thread in threads:
        members[thread.slot, thread.task] += 1
    weights: defaultdict[str, Weights] = defaultdict(list)
    for thread in sorted(threads, key=lambda thread: thread.thread):
        group = thread.slot, thread.task
        weights[thread.task].append((thread.thread, shares[group] / members[group]))
    for parts in weights.values():
        total = math.fsum(part for _, part in parts)
        parts[:] = [(thread, part / total if total > 0 else 1 / len(parts)) for thread, part in parts]
    return dict(weights)


def owners_of_ranges(targets: Weights, before: Sequence[int]) -> list[int]:
    """The owner of each of the 1,024 key ranges: as many for a thread as its weight says, the fewest
    moved from `before` (the owners now; empty: none), what moves in runs as long as may be."""
    desired = _quotas(targets)
    owners: list[int | None] = [None] * KEY_RANGES
    for place, owner in enumerate(before):
        if desired.get(owner, 0) > 0:
            desired[owner] -= 1
            owners[place] = owner
    missing = (thread for thread, _ in targets for _ in range(desired[thread]))
    return [owner if owner is not None else next(missing) for owner in owners]


def _quotas(targets: Weights) -> dict[int, int]:
    """1,024 ranges by weight: the largest remainders get what rounding down leaves over."""
    exact = {thread: weight * KEY_RANGES for thread, weight in targets}
    quotas = {thread: math.floor(ranges) for thread, ranges in exact.items()}
    left = KEY_RANGES - sum(quotas.values())
    by_remainder = sorted(exact, key=lambda thread: (quotas[thread] - exact[thread], thread))
    for i in range(left):
        quotas[by_remainder[i % len(by_remainder)]] += 1
    return quotas


def _owners_before(topology: Topology, before: Sequence[Route]) -> dict[str, list[int]]:
    """Task → owner of each of its key ranges by the routes `before`."""
    owners: dict[str, list[int]] = {}
    for route in before:
        if route.ranges:
            owned = [thread for thread, count in route.ranges for _ in range(count)]
            owners.setdefault(topology.edges[route.edge].target, owned)
    return owners


def _runs(owners: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Run-length code: (thread, how many ranges)."""
    runs: list[list[int]] = []
    for owner in owners:
        if runs and runs[-1][0] == owner:
            runs[-1][1] += 1
        else:
            runs.append([owner, 1])
    return tuple((owner, count) for owner, count in runs)
