"""Queues in virtual time, told in bins as a trial is: rows offered at one rate, servers, what disturbs."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.topology_runtime.stability.evidence import Bin
from headgate.topology_runtime.stability.trial import Finding, Looks, Trial, looks_for

BIN_S, LOOKS = 0.25, 5


@dataclass
class Queue:
    """`load`: rate / capacity. `servers`: threads that each do a row in servers / capacity seconds.

    spread: of that time (log-normal; 0: every row the same). poisson: rows come at random, not paced.
    waves: rows wait until one is there for every server, then all are done together. reserve_s: a service
    behind the task gives tokens at the rate of the capacity and has saved up as many seconds of them.
    pauses: each (from, seconds) nothing is done at all. start_s: the first row of each server takes so much
    longer. frame: rows are offered together."""

    load: float
    rate_tps: float = 100.0
    servers: int = 1
    spread: float = 0.0
    poisson: bool = False
    waves: bool = False
    reserve_s: float = 0.0
    latency_s: float = 0.05
    pauses: Sequence[tuple[float, float]] = ()
    start_s: float = 0.0
    frame: int = 1
    seed: int = 0

    def bins(self, seconds: float) -> list[Bin]:
        chance = np.random.default_rng([self.seed, 7])
        count = int(self.rate_tps * seconds)
        if self.poisson:
            offered = np.cumsum(chance.exponential(1 / self.rate_tps, count))
        else:
            offered = (np.arange(count) // self.frame + 1) * self.frame / self.rate_tps
        done = self._throttled(offered, chance) if self.reserve_s else self._done(offered, chance)
        return self._told(offered, done, seconds)

    def finding(self, looks: Looks | None = None, waits: bool = False) -> Finding:
        looks = looks or looks_for(waits)
        trial = Trial(looks)
        for each in self.bins(looks.longest_s):
            if (found := trial.add(each)) is not None:
                return found
        raise AssertionError("a trial ends when its time is up")

    def _done(self, offered: np.ndarray, chance: np.random.Generator) -> np.ndarray:
        capacity = self.rate_tps / self.load
        work = (
            self.servers / capacity * np.exp(chance.normal(0, self.spread, len(offered)) - self.spread**2 / 2)
        )
        if self.waves:
            return self._in_waves(offered, capacity)
        free = [0.0] * self.servers
        done = np.empty(len(offered))
        for n, at_s in enumerate(offered):
            begin_s = max(at_s, heapq.heappop(free))
            extra_s = self.start_s if n < self.servers else 0.0
            done[n] = self._paused(begin_s, work[n] + extra_s)
            heapq.heappush(free, done[n])
        return done

    def _in_waves(self, offered: np.ndarray, capacity: float) -> np.ndarray:
        done, free_s = np.full(len(offered), np.inf), 0.0
        for first in range(0, len(offered) - self.servers + 1, self.servers):
            wave = slice(first, first + self.servers)
            free_s = max(free_s, offered[wave][-1]) + self.servers / capacity
            done[wave] = free_s
        return done

    def _throttled(self, offered: np.ndarray, chance: np.random.Generator) -> np.ndarray:
        """A token per row; the service keeps rows waiting that find none, in their order."""
        gap_s, token_s = self.load / self.rate_tps, -1e9
        done = np.empty(len(offered))
        for n, at_s in enumerate(offered):
            token_s = max(token_s, at_s - self.reserve_s) + gap_s
            done[n] = max(at_s, token_s) + self.latency_s * float(np.exp(chance.normal(0, self.spread)))
        return done

    def _paused(self, begin_s: float, work_s: float) -> float:
        end_s = begin_s + work_s
        for from_s, seconds in sorted(self.pauses):
            if begin_s < from_s + seconds and end_s > from_s:
                end_s += from_s + seconds - max(begin_s, from_s)
        return end_s

    def _told(self, offered: np.ndarray, done: np.ndarray, seconds: float) -> list[Bin]:
        order = np.argsort(done, kind="stable")
        ends, waited = done[order], (done - offered)[order]
        told, last_in, last_out = [], 0, 0
        for number in range(1, round(seconds / BIN_S) + 1):
            t_s = number * BIN_S
            rows_in, rows_out = bisect_right(offered, t_s), bisect_right(ends, t_s)
            latency_s = float(np.median(waited[last_out:rows_out])) if rows_out > last_out else None
            reads = t_s - BIN_S * np.arange(LOOKS) / LOOKS
            queue = float(
                np.mean(np.searchsorted(offered, reads, "right") - np.searchsorted(ends, reads, "right"))
            )
            told.append(Bin(t_s, latency_s, queue, rows_in - last_in, rows_out - last_out))
            last_in, last_out = rows_in, rows_out
        return told
