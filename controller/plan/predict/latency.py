"""Latency of a plan before anything runs: a simulation of its threads. Pure.

Every thread is a queue of frames. A row costs the CPU that models say of it in its slot at this rate, wakes included,
and the time that it waits for others (a service). In a slot one thread runs at a time (Python's lock, 5 ms each), on
one core, and no more than the slot's part of it in each 20 ms (a CPU quota). Rows go on by the plan's shares and the
selectivities of edges. Rows of a paced source come evenly, of an arriving one by chance (Poisson).

What a row takes differs from one to the next: log-normal, by as much as models say was measured (`row_spread`); of CPU
`SPREAD` at least, which a machine makes where each row costs the same. What a hop between threads takes
(`HOP_S`, `CROSSING_S`) is an estimate, the same for every machine. Windows hold rows besides, and sinks that write in
batches: neither is in here.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from statistics import NormalDist
from typing import Any

from headgate.controller.models.plans import Placement, PlanLatency, Prediction, RowLatency, Share
from headgate.controller.models.task_models import Model, cpu, peak_rate
from headgate.controller.plan.predict.placement_load import load_of
from headgate.controller.plan.predict.vm_speeds import at_speed
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Topology
from headgate.topology_runtime.measuring.row_spread import of_rows
from headgate.topology_runtime.wire.run_options import DataPlaneSettings
from headgate.topology_runtime.worker.calls.router import GOLDEN, in_turn

ROOTS, ROOTS_LEAST = 2500, 250  # frames that sources emit in all
FRAMES = 50_000  # that all tasks work on together, about: of many tasks sources emit fewer
WARM = 0.2  # of these, at the beginning, that are not counted
EVERY_S = 0.0005  # a source looks for due rows so often
PERIOD_S = 0.020  # of a CPU quota
HOP_S, CROSSING_S = 40e-6, 200e-6  # from thread to thread in a worker; from one worker to another
USUAL = DataPlaneSettings()
SPREAD = 0.2  # of CPU, where none was measured, and at least: docs/decisions/0107
TURN_S, GAP_S, FRAME_ROWS = USUAL.switch_interval_s, USUAL.gap_s, USUAL.frame_rows
DRAWN = 16  # rows by key at once that are drawn one by one
STABLE = 1.0 + 1e-9  # of what it carries: above, latency grows for as long as it lasts
COMPUTES = (
    0.6,
    1.0,
)  # CPU of a slot that one thread uses at its peak: below it waits in between, at 1 it never does


def latency_of(
    topology: Topology,
    models: Mapping[str, Model],
    placement: Placement,
    vms: Sequence[Vm],
    prediction: Prediction,
    rate_tps: float,
    spread: float | None = None,
) -> PlanLatency | None:
    """At input rate `rate_tps`; None where the placement does not carry that, or nothing is known of a task. spread:
    other than by the models; 0 for rows that all take the same.

    O(FRAMES); some tenths of a second."""
    unknown = any(models[t.model_name].unmeasured for t in topology.tasks if t.static is None)
    if unknown or rate_tps <= 0 or rate_tps > STABLE * prediction.rate_tps:
        return None
    threads = _threads(topology, models, placement, vms, prediction.shares, rate_tps)
    if spread is not None:
        for thread in chain.from_iterable(threads):
            thread.cpu_spread = thread.wait_spread = spread
    found = _Simulation(topology, threads, rate_tps).run()
    if not found:
        return None
    every = [pair for pairs in found.values() for pair in pairs]
    sinks = tuple((name, _of(found[name])) for name in found)
    return PlanLatency(rate_tps, _of(every), sinks)


def _of(pairs: list[tuple[float, float]]) -> RowLatency:
    """Of (seconds, rows)."""
    pairs.sort()
    total, places = math.fsum(rows for _, rows in pairs), iter((0.5, 0.95, 0.99))
    found: list[float] = []
    share, done = next(places), 0.0
    for seconds, rows in pairs:
        done += rows
        while len(found) < 3 and done >= share * total * (1 - 1e-12):
            found.append(seconds * 1000)
            share = next(places, 2.0)
    return RowLatency(*found)


# ── The threads of a placement ──────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Slot:
    """quota_s: CPU that it has in a period; None: a whole core."""

    quota_s: float | None
    phase_s: float
    ready: deque[_Thread] = field(default_factory=deque)
    busy: bool = False
    period: int = -1
    left_s: float = 0.0


@dataclass(slots=True)
class _Thread:
    """cpu_s: of a core for a row; wait_s: of it without CPU, and how much both differ from row to row. queue: (rows,
    when they were due) of each frame."""

    task: int
    slot: _Slot
    cpu_s: float
    wait_s: float
    share: float
    cpu_spread: float = SPREAD
    wait_spread: float = 0.0
    queue: deque[tuple[int, float]] = field(default_factory=deque)
    work_s: float = 0.0  # CPU that is left of the frame under way
    working: bool = False


def _threads(
    topology: Topology,
    models: Mapping[str, Model],
    placement: Placement,
    vms: Sequence[Vm],
    shares: Iterable[Share],
    rate_tps: float,
) -> list[list[_Thread]]:
    """Of each task, in breadth-first order."""
    cores = {vm.vm: vm.slot_cores for vm in vms}
    speeds = {vm.vm: vm.speed for vm in vms}
    load = load_of(topology, models, placement, vms, True)
    parts = load.in_order(shares, load.even_shares())
    load = load.at(parts, rate_tps)
    slots = [_slot(cores.get(slot.vm, 1.0), number) for number, slot in enumerate(load.slots)]
    found: list[list[_Thread]] = [[] for _ in load.tasks]
    for g, group in enumerate(load.groups):
        vm = load.slots[group.slot].vm
        task, size = topology.by_name[load.tasks[group.task]], cores.get(vm, 1.0)
        cpu_s, wait_s, spreads = load.cpu_per_unit(g, full=False) * size, 0.0, (SPREAD, 0.0)
        if task.static is None:
            model = at_speed(models[task.model_name], speeds.get(vm, 1.0))
            wait_s = _wait_s(model, group.threads, size)
            ran, waited = model.spreads
            spreads = max(SPREAD, ran or 0.0), waited or 0.0
        for _ in range(group.threads):
            share = parts[g] / group.threads
            found[group.task].append(_Thread(group.task, slots[group.slot], cpu_s, wait_s, share, *spreads))
    return found


def _slot(cores: float, number: int) -> _Slot:
    quota_s = cores * PERIOD_S if cores < 1.0 else None
    return _Slot(quota_s, number * GOLDEN % 1.0 * PERIOD_S)


def _wait_s(model: Model, threads: int, cores: float) -> float:
    """Of a row, what a thread takes besides its CPU, where `threads` of them are in a slot. A thread that fills its
    slot is throttled to the slot's part of a core; one that does not runs at the speed of a core."""
    alone_tps, used, together_tps = peak_rate(model, 1), cpu(model, 1), peak_rate(model, threads)
    if alone_tps <= 0 or together_tps <= 0:
        return 0.0
    full = min(1.0, max(0.0, (used - COMPUTES[0]) / (COMPUTES[1] - COMPUTES[0])))
    cpu_s = used * cores / alone_tps * (1 + (1 / cores - 1) * full)
    return max(0.0, min(1 / alone_tps, threads / together_tps) - cpu_s)


# ── What happens ────────────────────────────────────────────────────────────────────────────────────────

Rows = tuple[int, float]  # how many, and when they were due


class _Chance:
    """Numbers that are the same each time, spread evenly over (0, 1)."""

    def __init__(self) -> None:
        self._state = 7

    def next(self) -> float:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return ((self._state >> 11) + 0.5) / (1 << 53)


@dataclass(slots=True)
class _Way:
    """From one thread by one edge. due: as the router has it, when each target is next, in rows. owed: of rows that are
    not whole yet."""

    edge: Edge
    targets: Sequence[_Thread]
    shares: Sequence[float]
    due: Any
    flush_s: dict[int, float] = field(default_factory=dict)  # of a target: not before
    waiting: dict[int, list[Rows]] = field(default_factory=dict)
    owed: float = 0.0


class _Receivers:
    """Of an edge. shares: of its rows."""

    def __init__(self, edge: Edge, threads: Sequence[_Thread]) -> None:
        self._edge, self._threads = edge, threads[:1] if edge.grouping == "global" else threads
        self._shares = _shares(self._threads)

    def way(self, thread: _Thread, first: int) -> _Way:
        """That of a thread to them; it begins somewhere else than the others."""
        threads, shares = self._threads, self._shares
        near = [one for one in threads if one.slot is thread.slot] if self._edge.grouping == "local" else []
        if near:
            threads, shares = near, _shares(near)
        return _Way(self._edge, threads, shares, first_dues(first, shares))


def first_dues(sender: int, weights: Sequence[float]) -> Any:
    """An array: when each receiver is due next, in rows; infinity: never. As `router.first_turns`, for thousands of
    threads that each send to thousands."""
    import numpy as np

    order, parts = np.array(in_turn(len(weights))), np.array(weights)
    turns = (sender * GOLDEN - np.arange(len(weights)) / len(weights)) % 1.0
    sends = parts[order] > 0
    due = np.full(len(weights), math.inf)
    due[order[sends]] = turns[sends] / parts[order[sends]]
    return due


def _shares(threads: Sequence[_Thread]) -> list[float]:
    whole = math.fsum(one.share for one in threads)
    return [one.share / whole if whole > 0 else 1 / len(threads) for one in threads]


class _Simulation:
    def __init__(self, topology: Topology, threads: list[list[_Thread]], rate_tps: float) -> None:
        order = topology.breadth_first
        place = {task.name: number for number, task in enumerate(order)}
        self._names = [task.name for task in order]
        self._threads, self._rate_tps = threads, rate_tps
        self._sources = [(place[task.name], bool(task.arriving)) for task in topology.sources]
        self._out = [
            [_Receivers(edge, threads[place[edge.target]]) for _, edge in topology.out_edges(task.name)]
            for task in order
        ]
        self._first = {id(thread): number for number, thread in enumerate(chain.from_iterable(threads))}
        self._ways: dict[int, list[_Way]] = {}  # of threads that had rows
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = 0
        self._chance, self._normal = _Chance(), NormalDist()
        self._counted_s = 0.0
        self.found: dict[str, list[tuple[float, float]]] = {}

    def run(self) -> dict[str, list[tuple[float, float]]]:
        """Sink → (seconds, rows)."""
        self._emit()
        while self._events:
            now_s, _, happens = heapq.heappop(self._events)
            happens(now_s)
        return {name: self.found[name] for name in self._names if name in self.found}

    def _at(self, at_s: float, happens: Callable[[float], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (at_s, self._number, happens))

    def _emit(self) -> None:
        """All that sources send: a frame for each row, or for those of one look."""
        readers = [(thread, arrives) for task, arrives in self._sources for thread in self._threads[task]]
        each_tps = [self._rate_tps * thread.share for thread, _ in readers]
        frames_a_s = sum(min(tps, 1 / EVERY_S) for tps in each_tps)
        end_s = max(ROOTS_LEAST, min(ROOTS, FRAMES // len(self._names))) / frames_a_s
        self._counted_s = WARM * end_s
        for number, ((thread, arrives), tps) in enumerate(zip(readers, each_tps, strict=True)):
            due_s, left = (number + 1) / len(readers) / tps, 0.0
            while due_s < end_s:
                rows = 1
                if tps > 1 / EVERY_S:
                    left += tps * EVERY_S
                    rows, step_s = int(left), EVERY_S
                    left -= rows
                else:
                    step_s = (-math.log(self._chance.next()) if arrives else 1.0) / tps
                self._at(due_s, partial(self._arrive, thread, (rows, due_s)))
                due_s += step_s

    def _arrive(self, thread: _Thread, rows: Rows, now_s: float) -> None:
        thread.queue.append(rows)
        if not thread.working:
            self._take(thread, now_s)

    def _take(self, thread: _Thread, now_s: float) -> None:
        """Its next frame, if there is one."""
        thread.working = bool(thread.queue)
        if not thread.working:
            return
        rows = thread.queue[0][0]
        thread.work_s = rows * thread.cpu_s * self._drawn_part(of_rows(thread.cpu_spread, rows))
        thread.slot.ready.append(thread)
        if not thread.slot.busy:
            self._go_on(thread.slot, now_s)

    def _drawn_part(self, spread: float) -> float:
        """What a frame takes, to what is usual: 1 on average."""
        if not spread:
            return 1.0
        z = self._normal.inv_cdf(self._chance.next())
        return math.exp(spread * z - spread**2 / 2)

    def _go_on(self, slot: _Slot, now_s: float) -> None:
        """The first thread that is ready has the slot's CPU, for a while."""
        slot.busy = bool(slot.ready)
        if not slot.busy:
            return
        thread, most_s = slot.ready[0], TURN_S
        if slot.quota_s is not None:
            period = math.floor((now_s + slot.phase_s) / PERIOD_S + 1e-9)
            if period != slot.period:
                slot.period, slot.left_s = period, slot.quota_s
            next_s = (period + 1) * PERIOD_S - slot.phase_s
            if slot.left_s <= 1e-9:
                self._at(next_s, partial(self._go_on, slot))
                return
            most_s = min(TURN_S, slot.left_s, max(1e-9, next_s - now_s))
        ran_s = min(thread.work_s, most_s)
        self._at(now_s + ran_s, partial(self._ran, slot, thread, ran_s))

    def _ran(self, slot: _Slot, thread: _Thread, ran_s: float, now_s: float) -> None:
        slot.left_s -= ran_s
        thread.work_s -= ran_s
        slot.ready.popleft()
        if thread.work_s > 1e-12:
            slot.ready.append(thread)
        elif thread.wait_s > 0:
            rows = thread.queue[0][0]
            wait_s = thread.wait_s * rows * self._drawn_part(of_rows(thread.wait_spread, rows))
            self._at(now_s + wait_s, partial(self._done, thread))
        else:
            self._done(thread, now_s)
        if not slot.busy or slot.ready:
            self._go_on(slot, now_s)
        else:
            slot.busy = False

    def _done(self, thread: _Thread, now_s: float) -> None:
        """What comes of a frame goes on."""
        rows, due_s = thread.queue.popleft()
        ways = self._ways_of(thread)
        for way in ways:
            for target, count in self._split(way, rows):
                self._send(thread, way, target, (count, due_s), now_s)
        if not ways and due_s >= self._counted_s:
            self.found.setdefault(self._names[thread.task], []).append((now_s - due_s, float(rows)))
        self._take(thread, now_s)

    def _ways_of(self, thread: _Thread) -> list[_Way]:
        known = self._ways.get(id(thread))
        if known is None:
            first = self._first[id(thread)]
            known = self._ways[id(thread)] = [to.way(thread, first) for to in self._out[thread.task]]
        return known

    def _split(self, way: _Way, rows: int) -> Iterator[tuple[int, int]]:
        """(target, rows of it): a frame at a time in turns, as the router does; by key, few by chance and many by their
        shares."""
        way.owed += rows * way.edge.selectivity
        made = int(way.owed + 1e-9)
        way.owed -= made
        if way.edge.grouping == "all":
            yield from ((target, made) for target in range(len(way.targets)) if made)
        elif way.edge.grouping == "fields" and len(way.targets) > 1:
            draws, left = min(made, DRAWN), made
            for draw in range(draws):
                count = left // (draws - draw)
                left -= count
                yield self._drawn(way.shares), count
        else:
            while made > 0:
                target, count = int(way.due.argmin()), min(made, FRAME_ROWS)
                way.due[target] += count / max(1e-9, way.shares[target])
                yield target, count
                made -= count

    def _drawn(self, shares: Sequence[float]) -> int:
        at = self._chance.next()
        for target, share in enumerate(shares):
            at -= share
            if at < 0:
                return target
        return len(shares) - 1

    def _send(self, thread: _Thread, way: _Way, target: int, rows: Rows, now_s: float) -> None:
        """At once where the last frame is a gap old, else with those that follow within it."""
        waiting = way.waiting.setdefault(target, [])
        waiting.append(rows)
        if now_s >= way.flush_s.get(target, 0.0):
            self._flush(thread, way, target, now_s)
        elif len(waiting) == 1:
            self._at(way.flush_s[target], partial(self._flush, thread, way, target))

    def _flush(self, thread: _Thread, way: _Way, target: int, now_s: float) -> None:
        receiver = way.targets[target]
        hop_s = HOP_S if receiver.slot is thread.slot else CROSSING_S
        for rows in way.waiting.pop(target):
            self._at(now_s + hop_s, partial(self._arrive, receiver, rows))
        way.flush_s[target] = now_s + GAP_S
