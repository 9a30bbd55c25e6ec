"""A closed-loop probe of a bench: the task as fast as it goes, in bins, from when it is steady."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from headgate.topology_runtime.calibration.bench import FAST_TPS, Bench
from headgate.topology_runtime.calibration.profile_steps import Probe
from headgate.topology_runtime.calibration.speed import SpeedMeter, SpeedSource
from headgate.topology_runtime.calibration.warm_up import growth, steady_from
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.faults.words import counted
from headgate.topology_runtime.proc import rss_bytes

BIN_S = 0.25
ROUNDS_OF_ROWS = 8  # rows per thread in a probe: many threads finish in waves
LONGEST = 6.0  # times as long as asked, for that
LEAK_BYTES = 2 << 20  # of growth in one probe: less is an allocator's habit


class MeterReading(msgspec.Struct, frozen=True):
    """What the meters say at one moment."""

    at_s: float
    done: int
    cpu_s: float
    rss_bytes: int
    blocked_ns: int
    busy_ns: int
    letters: int


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
            bench.watch(BIN_S)
            looks.append(_look(bench))
    tps = [(b.done - a.done) / (b.at_s - a.at_s) for a, b in pairwise(looks)]
    steady = looks[steady_from(tps) :]
    failed, done = steady[-1].letters - steady[0].letters, steady[-1].done - steady[0].done
    if failed and 2 * failed >= done:
        raise HeadgateError(f"{bench.what} fails on most of its rows", cause=bench.letters()[-1].error)
    if done <= 0:
        raise HeadgateError(
            f"{bench.what} finished no row in {seconds:.1f} s with {counted(threads, 'thread')}"
        )
    return _probe_of(looks, steady, threads, rows_a_frame, slot_cores, meter.rounds_per_s, bench.base_bytes)


def _enough(looks: Sequence[MeterReading], threads: int, end_s: float, latest_s: float) -> bool:
    now = looks[-1]
    whole = now.done - looks[0].done >= ROUNDS_OF_ROWS * threads
    return now.at_s >= latest_s or (now.at_s >= end_s and whole)


def _look(bench: Bench) -> MeterReading:
    blocked_ns, busy_ns = bench.blocked()
    now_s, rss, letters = time.monotonic(), rss_bytes(bench.pid), len(bench.letters())
    return MeterReading(now_s, bench.done(), bench.cpu_s, rss, blocked_ns, busy_ns, letters)


def _probe_of(  # the numbers of one probe
    looks: Sequence[MeterReading],
    steady: Sequence[MeterReading],
    threads: int,
    rows_a_frame: int,
    slot_cores: float,
    speed: float,
    base_bytes: int,
) -> Probe:
    begin, end = steady[0], steady[-1]
    rows, long_s = end.done - begin.done, end.at_s - begin.at_s
    kept = [look.rss_bytes for look in steady]
    leak = growth([look.done for look in steady], kept) if kept[-1] - kept[0] > LEAK_BYTES else 0.0
    return Probe(
        threads=threads,
        rate_tps=rows / long_s,
        cpu=(end.cpu_s - begin.cpu_s) / long_s / slot_cores,
        memory_bytes=max(0, end.rss_bytes - base_bytes),
        blocked=max(0.0, (end.blocked_ns - begin.blocked_ns) / max(1, end.busy_ns - begin.busy_ns)),
        seconds=end.at_s - looks[0].at_s,
        warm_up_s=begin.at_s - looks[0].at_s,
        rows=rows,
        frame_rows=rows_a_frame,
        speed=speed,
        worker_bytes=base_bytes,
        leak_bytes=leak,
    )
