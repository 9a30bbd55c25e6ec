"""What happens in a made-up run, but for its noise: rates, epochs, placement, what every row truly costs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TOPOLOGY = "made"
TASKS = ("source", "parse", "score", "enrich", "sink")
COST_S = np.array([20e-6, 90e-6, 400e-6, 180e-6, 40e-6])  # CPU per row, alone in a slot
BESIDE = np.array([1.0, 1.05, 1.25, 1.12, 1.0])  # × beside other tasks in the slot
SELECTIVITY = np.array([1.0, 1.0, 1.0, 1.0, 0.5])  # rows taken in per row of the source
SLOTS_OF_VM, SLOT_CORES, SLOT_MEMORY_BYTES = 4, 0.5, 512 * 1024**2
BUSIEST = 0.8  # CPU of the fullest slot at the highest rate
GROWING_S, GROWTH = 300, 1.12  # at most so long, and so much more is offered than done
START_US = 1_800_000_000_000_000

PLANTS = {
    "growing": "in every third epoch a queue grows until its end",
    "beside": "every task costs more beside others",
    "overload": "in the second epoch more is offered than is done, for a while; then it is caught up with",
    "slow_slot": "a slot does 0.7 of what the others do in the same CPU time",
    "pair": "score and enrich cost each other half as much again in the same slot",
    "leak": "the memory of a slot's process grows by a half over the run",
    "faults": "some rows are lost, others are sent again and arrive twice, as the controller counts",
    "skew": "a thread of score takes in three times as many rows as the others",
}
USUAL = ("growing", "beside")
SLOW_SLOT, SPEED = 5, 0.7
PAIR, PAIR_COST = ("score", "enrich"), 1.5
LEAK_SLOT, LEAK_GROWN = 9, 0.5
SKEW = 3.0
OVERLOAD, CATCHING_UP = 1.3, 1.5  # offered / done, done / offered
OVERLOAD_S, OVERLOAD_AT = 60, 0.3  # at most, from this part of the epoch on
LEAST_MEMORY = 0.05  # of a slot: the worker and what tasks import


@dataclass(frozen=True)
class Wanted:
    """What is made: rows of `samples` over all runs, the cluster of each, what is planted, and how it is cut up."""

    rows: int
    threads: int = 50
    slots: int = 16
    epochs: int = 6
    runs: int = 1
    seed: int = 1
    season_s: float = 0.0  # 0: a quarter of a run, a day at most
    segment_rows: int = 1_000_000
    workers: int = 2
    planted: tuple[str, ...] = USUAL

    @property
    def windows(self) -> int:
        """Seconds of a run."""
        return max(self.epochs, -(-self.rows // (self.threads * self.runs)))


@dataclass(frozen=True)
class Epoch:
    """Threads of an epoch: their numbers, tasks, slots, share of the task's rows, true CPU per row."""

    number: int
    begin: int  # window
    end: int
    thread: NDArray[np.int64]
    task: NDArray[np.int64]
    slot: NDArray[np.int64]
    share: Floats
    cost_s: Floats
    growing_from: int  # window; `end` when nothing grows


@dataclass(frozen=True)
class Run:
    """A whole run but for its noise: per window the rates (rows/s) and what waits in the slow task."""

    wanted: Wanted
    number: int
    epochs: list[Epoch]
    season_s: float
    offered: Floats
    acked: Floats
    planned: Floats
    predicted: Floats
    backlog: Floats
    bias: Floats  # per slot: predicted CPU / what the model without interference would say
    overload: tuple[int, int, float] | None  # windows from and to, and how long rows waited at most

    @property
    def leak_per_s(self) -> float:
        """Growth of the memory of the slot that leaks, fractions of the slot per second."""
        return LEAK_GROWN * LEAST_MEMORY / self.wanted.windows if "leak" in self.wanted.planted else 0.0

    def at_us(self, window: float) -> int:
        """When so many windows were over."""
        return self.start_us + round(window * 1_000_000)

    @property
    def start_us(self) -> int:
        return START_US + (self.number - 1) * (self.wanted.windows + 3600) * 1_000_000


def make_run(wanted: Wanted, number: int) -> Run:
    """Rates, epochs and placement of one run."""
    chance = np.random.default_rng([wanted.seed, number])
    windows, season_s = wanted.windows, wanted.season_s or min(86_400.0, wanted.windows / 4)
    phase = 2 * np.pi * np.arange(windows) / season_s
    swing = 1 + 0.4 * np.sin(phase) + 0.15 * np.sin(2 * phase + 1)
    drift = 1 + 0.02 * np.cumsum(chance.standard_normal(windows // 60 + 2)).clip(-5, 5) / 5
    shape = swing * np.interp(np.arange(windows) / 60, np.arange(len(drift)), drift)
    epochs = [make_epoch(wanted, index) for index in range(wanted.epochs)]
    offered = shape * peak_tps(wanted, epochs) / shape.max()
    offered *= 1 + 0.01 * chance.standard_normal(windows)
    acked, planned, predicted = offered.copy(), np.zeros(windows), np.zeros(windows)
    backlog = np.zeros(windows)
    for epoch in epochs:
        there = slice(epoch.begin, epoch.end)
        planned[there] = offered[there].max() * 1.05
        predicted[there] = planned[there] * chance.uniform(1.0, 1.05)
        slow = slice(epoch.growing_from, epoch.end)
        if epoch.growing_from < epoch.end:
            capacity = offered[slow].mean() / GROWTH
            waiting = np.cumsum(offered[slow] - capacity)
            backlog[slow] = waiting - np.minimum(np.minimum.accumulate(waiting), 0)
            acked[slow] = offered[slow] - np.diff(backlog[slow], prepend=0)
            if epoch.growing_from == epoch.begin:  # else it was right until something happened
                predicted[there] = capacity * chance.uniform(0.97, 1.03)
    overload = overloaded(epochs[1], offered, acked, backlog) if "overload" in wanted.planted else None
    acked *= 1 + 0.004 * chance.standard_normal(windows)
    bias = chance.normal(1.0, 0.03, wanted.slots)
    return Run(wanted, number, epochs, season_s, offered, acked, planned, predicted, backlog, bias, overload)


def overloaded(epoch: Epoch, offered: Floats, acked: Floats, backlog: Floats) -> tuple[int, int, float]:
    """Plant an overload into these rates: when it began, when nothing waited any more, how long rows waited."""
    begin = epoch.begin + int(OVERLOAD_AT * (epoch.end - epoch.begin))
    until = begin + min(OVERLOAD_S, (epoch.end - epoch.begin) // 5)
    waiting, longest_s = 0.0, 0.0
    for n in range(begin, epoch.end):
        can = offered[n] / OVERLOAD if n < until else offered[n] * CATCHING_UP
        acked[n] = min(can, waiting + offered[n])
        waiting += offered[n] - acked[n]
        backlog[n] = waiting
        longest_s = max(longest_s, waiting / acked[n])
        if n >= until and waiting <= 0:
            return begin, n, longest_s
    raise ValueError("the epoch is too short to catch up in")


def make_epoch(wanted: Wanted, index: int) -> Epoch:
    """Threads side by side by task, turned by a few slots from epoch to epoch so that neighbours differ."""
    begin, end = (wanted.windows * at // wanted.epochs for at in (index, index + 1))
    work = COST_S * SELECTIVITY
    counts = np.maximum(1, np.round(wanted.threads * work / work.sum())).astype(int)
    counts[2] += wanted.threads - counts.sum()
    task = np.repeat(np.arange(len(TASKS)), counts)
    place = (np.arange(wanted.threads) * wanted.slots) // wanted.threads
    slot = (place + index) % wanted.slots if index % 2 else np.roll(place, index * 2)
    inside: dict[int, set[int]] = defaultdict(set)
    for mine, its in zip(slot.tolist(), task.tolist(), strict=True):
        inside[mine].add(its)
    cost_s = COST_S[task]
    if "beside" in wanted.planted:
        alone = np.array([len(inside[mine]) == 1 for mine in slot.tolist()])
        cost_s = cost_s * np.where(alone, 1.0, BESIDE[task])
    if "pair" in wanted.planted:
        pair = {TASKS.index(name) for name in PAIR}
        both = np.array([pair <= inside[mine] for mine in slot.tolist()]) & np.isin(task, list(pair))
        cost_s = cost_s * np.where(both, PAIR_COST, 1.0)
    if "slow_slot" in wanted.planted:
        cost_s = cost_s * np.where(slot == SLOW_SLOT, 1 / SPEED, 1.0)
    share = 1.0 / counts[task]
    if "skew" in wanted.planted:
        skewed = np.flatnonzero(task == 2)
        share[skewed] = np.where(skewed == skewed[0], SKEW, 1.0) / (len(skewed) + SKEW - 1)
    grows = index % 3 == 2 and "growing" in wanted.planted
    growing = max(begin, end - GROWING_S) if grows else end
    thread = np.arange(wanted.threads) + index * wanted.threads
    return Epoch(index + 1, begin, end, thread, task, slot, share, cost_s, growing)


def peak_tps(wanted: Wanted, epochs: list[Epoch]) -> float:
    """The input rate at which the fullest slot of any epoch is as busy as it may be."""
    fullest = 0.0
    for epoch in epochs:
        load = SELECTIVITY[epoch.task] * epoch.share * epoch.cost_s / SLOT_CORES
        fullest = max(fullest, np.bincount(epoch.slot, load, wanted.slots).max())
    return float(BUSIEST / fullest)
