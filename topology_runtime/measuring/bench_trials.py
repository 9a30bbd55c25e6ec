"""Open-loop trials: a task is offered a steady rate, and either keeps up or does not.

Rows are due by the clock, whether the task keeps up or not, so what it cannot do shows as a queue (rows
due and not done) and as latency from the time each row was due. Read every quarter of a second from the
worker's meter, judged by headgate.topology_runtime.stability; the trial ends once its verdict is sure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

import msgspec

from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.latency.latency_buckets import BUCKETS, percentile_ns
from headgate.topology_runtime.measuring.bench import FAST_TPS, Bench, WatchedRig
from headgate.topology_runtime.measuring.machine_speed import SpeedMeter, SpeedSource
from headgate.topology_runtime.measuring.profile_steps import Probe, growth, steady_from
from headgate.topology_runtime.measuring.row_spread import Calls, row_spread
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.platform.processes import rss_bytes_of_all
from headgate.topology_runtime.rates.schedule import NS, Schedule
from headgate.topology_runtime.stability.trial_evidence import (
    Bin,
    Evidence,
    Finding,
    Trial,
    Verdict,
    looks_for,
)
from headgate.topology_runtime.testing.run_results import failed_row
from headgate.topology_runtime.wording import counted

BIN_S, LOOKS = 0.25, 5  # length of a bin, and how often in it the queue is looked at
QUIET_S = 20.0  # for what an earlier measurement left to do


class TrialResult(msgspec.Struct, frozen=True):
    """achieved_tps: rows done per second; cpu: of the slot; latencies from when a row was due to when it
    was done, 0 where none was; all after the warm-up. memory_bytes: above the bare worker, at the end.
    seconds: all of it; forced: the time was up before the verdict was sure."""

    verdict: Verdict
    evidence: Evidence
    confidence: float
    forced: bool
    offered_tps: float
    achieved_tps: float
    p50_s: float
    p95_s: float
    p99_s: float
    cpu: float
    memory_bytes: int
    seconds: float
    bins: tuple[Bin, ...]

    @property
    def stable(self) -> bool:
        return self.verdict == "stable"

    @property
    def slope(self) -> float:
        """Growth of the queue / rate in s/s."""
        return self.evidence.queue.value


class LoopReading(msgspec.Struct, frozen=True):
    """Counters at one moment. t_s: since the rate began to be offered."""

    t_s: float
    offered: float
    done: int
    cpu_s: float
    latencies: tuple[int, ...]


class OfferedLoad:
    """A steady rate offered to a bench from now on, after all that was offered before is done."""

    def __init__(self, bench: WatchedRig, rate_tps: float) -> None:
        used = bench.desired is not None and bench.desired.schedule is not None
        given = bench.quiet(QUIET_S) if used else 0
        self._bench, self._done_before, self._sinks = bench, bench.done(), bench.sinks()
        self._schedule = Schedule(wall_ns(), ((0.0, rate_tps),), base=float(given))
        bench.send("committed", self._schedule)

    def watch_until(self, t_s: float) -> float:
        """Rows due and not done, on average from now to then."""
        queues = []
        for left in range(LOOKS - 1, -1, -1):
            self._bench.watch(max(0.0, t_s - BIN_S * left / LOOKS - self._now_s()))
            offered, done = self._rows(wall_ns())
            queues.append(offered - done)
        return max(0.0, fmean(queues))

    def read(self) -> LoopReading:
        latencies = [0] * BUCKETS
        for sink in self._sinks:
            latencies = [a + b for a, b in zip(latencies, self._bench.latencies(sink), strict=True)]
        now_ns = wall_ns()
        offered, done = self._rows(now_ns)
        t_s = (now_ns - self._schedule.start_ns) / NS
        return LoopReading(t_s, offered, done, self._bench.cpu_s, tuple(latencies))

    def _now_s(self) -> float:
        return (wall_ns() - self._schedule.start_ns) / NS

    def _rows(self, now_ns: int) -> tuple[float, int]:
        offered = self._schedule.offered(now_ns) - self._schedule.base
        return offered, self._bench.done() - self._done_before


def run_trial(
    bench: WatchedRig, rate_tps: float, longest_s: float, waits: bool, look: Callable[[], None] = lambda: None
) -> TrialResult:
    """One trial on a bench that has started. `waits`: the task waits for a service, which may be throttled
    and hide an overload for seconds: longer until it is called stable. `look` is called with every reading: once at
    the beginning, then at the end of each of the result's `bins`. Raises as `WatchedRig.watch` does."""
    offer = OfferedLoad(bench, rate_tps)
    trial = Trial(looks_for(waits, longest_s, bench.threads_measured / rate_tps))
    readings, bins = [offer.read()], list[Bin]()
    look()
    finding: Finding | None = None
    while finding is None:
        queue = offer.watch_until(BIN_S * len(readings))
        readings.append(offer.read())
        look()
        bins.append(bin_of(readings[-2], readings[-1], queue))
        finding = trial.add(bins[-1])
    return result(finding, bins, readings, rate_tps, bench)


def bin_of(before: LoopReading, after: LoopReading, queue: float) -> Bin:
    latency_s = percentile_ns(since(before, after), 0.5) / NS
    return Bin(after.t_s, latency_s or None, queue, after.offered - before.offered, after.done - before.done)


def since(before: LoopReading, after: LoopReading) -> list[int]:
    return [b - a for a, b in zip(before.latencies, after.latencies, strict=True)]


def result(
    finding: Finding, bins: Sequence[Bin], readings: Sequence[LoopReading], rate_tps: float, bench: WatchedRig
) -> TrialResult:
    last = readings[-1]
    first = next(r for r in readings if r.t_s >= finding.evidence.from_s)  # before the last: a third is kept
    seconds = last.t_s - first.t_s
    buckets = since(first, last)
    p50_s, p95_s, p99_s = (percentile_ns(buckets, share) / NS for share in (0.5, 0.95, 0.99))
    return TrialResult(
        verdict=finding.verdict,
        evidence=finding.evidence,
        confidence=finding.confidence,
        forced=finding.forced,
        offered_tps=rate_tps,
        achieved_tps=(last.done - first.done) / seconds,
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
        cpu=(last.cpu_s - first.cpu_s) / seconds / bench.cores,
        memory_bytes=bench.memory_bytes,
        seconds=finding.seconds,
        bins=tuple(bins),
    )


# ── A closed-loop probe of a bench: the task as fast as it goes, in bins, from when it is steady ────────

PROBE_BIN_S = 0.25
ROUNDS_OF_ROWS = 8  # rows per thread in a probe: many threads finish in waves
LONGEST = 6.0  # times as long as asked, for that
LEAK_BYTES = 2 << 20  # of growth in one probe: less is an allocator's habit


class MeterReading(msgspec.Struct, frozen=True):
    at_s: float
    done: int
    cpu_s: float
    rss_bytes: int
    blocked_ns: int
    delay_ns: int
    busy_ns: int
    letters: int
    calls: tuple[Calls, Calls]  # on the CPU, and off it


def probe(  # what is measured, how long, beside what
    bench: Bench,
    threads: int,
    rows_a_frame: int,
    seconds: float,
    slot_cores: float,
    silence_s: float,
    meter_of: Callable[[], SpeedSource] = SpeedMeter,
) -> Probe:
    """One probe of about `seconds`, longer when threads are many or slow. Raises HeadgateError when no row
    is finished within `silence_s`, or the task fails."""
    bench.offer([(0.0, FAST_TPS)])
    bench.until(lambda: bench.done() > 0, silence_s, "finish a row")
    looks = [_look(bench)]
    end_s = looks[0].at_s + seconds
    with meter_of() as meter:
        while not _enough(looks, threads, end_s, looks[0].at_s + LONGEST * seconds):
            bench.watch(PROBE_BIN_S)
            looks.append(_look(bench))
    tps = [(b.done - a.done) / (b.at_s - a.at_s) for a, b in pairwise(looks)]
    steady = looks[steady_from(tps) :]
    failed, done = steady[-1].letters - steady[0].letters, steady[-1].done - steady[0].done
    if failed and 2 * failed >= done:
        raise HeadgateError(
            f"{bench.what} fails on most of its rows", cause=str(failed_row(bench.letters()[-1]))
        )
    if done <= 0:
        raise HeadgateError(
            f"{bench.what} finished no row in {seconds:.1f} s with {counted(threads, 'thread')}"
        )
    begin, end = steady[0], steady[-1]
    long_s, sizes = end.at_s - begin.at_s, [look.rss_bytes for look in steady]
    leak = growth([look.done for look in steady], sizes) if sizes[-1] - sizes[0] > LEAK_BYTES else 0.0
    return Probe(
        threads=threads,
        rate_tps=done / long_s,
        cpu=(end.cpu_s - begin.cpu_s) / long_s / slot_cores,
        memory_bytes=max(0, end.rss_bytes - bench.base_bytes),
        blocked=max(0.0, (end.blocked_ns - begin.blocked_ns) / max(1, end.busy_ns - begin.busy_ns)),
        seconds=end.at_s - looks[0].at_s,
        warm_up_s=begin.at_s - looks[0].at_s,
        rows=done,
        frame_rows=rows_a_frame,
        speed=meter.rounds_per_s,
        worker_bytes=bench.base_bytes,
        leak_bytes=leak,
        spreads=(_spread(steady, 0), _spread(steady, 1)),
        delayed=max(0.0, (end.delay_ns - begin.delay_ns) / max(1, end.busy_ns - begin.busy_ns)),
    )


def _spread(looks: Sequence[MeterReading], which: int) -> float | None:
    return row_spread(after.calls[which].without(before.calls[which]) for before, after in pairwise(looks))


def _enough(looks: Sequence[MeterReading], threads: int, end_s: float, latest_s: float) -> bool:
    now = looks[-1]
    whole = now.done - looks[0].done >= ROUNDS_OF_ROWS * threads
    return now.at_s >= latest_s or (now.at_s >= end_s and whole)


def _look(bench: Bench) -> MeterReading:
    blocked = bench.blocked()
    now_s, rss, letters = time.monotonic(), rss_bytes_of_all(bench.pid), len(bench.letters())
    return MeterReading(now_s, bench.done(), bench.cpu_s, rss, *blocked, letters, bench.calls())
