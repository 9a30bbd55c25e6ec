"""A closed-loop probe of a bench: the task as fast as it goes, in bins, from when it is steady."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from topology_runtime.calibration.bench import FAST_TPS, Bench, cpu_s_of, rss_bytes
from topology_runtime.calibration.speed import SpeedMeter
from topology_runtime.calibration.steps import Probe
from topology_runtime.calibration.warm_up import growth, steady_from
from topology_runtime.errors import HeadgateError

BIN_S = 0.25
ROUNDS_OF_ROWS = 8  # rows per thread in a probe: many threads finish in waves
LONGEST = 6.0  # times as long as asked, for that
LEAK_BYTES = 2 << 20  # of growth in one probe: less is an allocator's habit


class Look(msgspec.Struct, frozen=True):
    """What the meters say at one moment."""

    at_s: float
    done: int
    cpu_s: float
    rss_bytes: int
    blocked_ns: int
    busy_ns: int


def probe(
    bench: Bench, threads: int, rows_a_frame: int, seconds: float, slot_cores: float, silence_s: float
) -> Probe:
    """One probe of about `seconds`, longer when threads are many or slow. Raises HeadgateError when no row
    is finished within `silence_s`, or the task fails."""
    loaded_bytes = bench.memory_bytes
    bench.offer([(0.0, FAST_TPS)])
    bench.until(lambda: bench.done() > 0, silence_s, "finish a row")
    looks = [_look(bench)]
    end_s = looks[0].at_s + seconds
    with SpeedMeter() as meter:
        while not _enough(looks, threads, end_s, looks[0].at_s + LONGEST * seconds):
            bench.watch(BIN_S)
            looks.append(_look(bench))
    speed = meter.rounds_per_s
    tps = [(b.done - a.done) / (b.at_s - a.at_s) for a, b in zip(looks, looks[1:], strict=False)]
    return _probe_of(
        looks, steady_from(tps), threads, rows_a_frame, slot_cores, speed, loaded_bytes, bench.base_bytes
    )


def _enough(looks: Sequence[Look], threads: int, end_s: float, latest_s: float) -> bool:
    now = looks[-1]
    whole = now.done - looks[0].done >= ROUNDS_OF_ROWS * threads
    return now.at_s >= latest_s or (now.at_s >= end_s and whole)


def _look(bench: Bench) -> Look:
    blocked_ns, busy_ns = bench.blocked()
    return Look(
        time.monotonic(), bench.done(), cpu_s_of(bench.pid), rss_bytes(bench.pid), blocked_ns, busy_ns
    )


def _probe_of(  # the numbers of one probe
    looks: Sequence[Look],
    first: int,
    threads: int,
    rows_a_frame: int,
    slot_cores: float,
    speed: float,
    loaded_bytes: int,
    base_bytes: int,
) -> Probe:
    begin, end = looks[first], looks[-1]
    rows, long_s = end.done - begin.done, end.at_s - begin.at_s
    if rows <= 0:
        raise HeadgateError(f"finished no row in {long_s:.1f} s with {threads} thread(s)")
    kept = [look.rss_bytes for look in looks[first:]]
    leak = growth([look.done for look in looks[first:]], kept) if kept[-1] - kept[0] > LEAK_BYTES else 0.0
    return Probe(
        threads=threads,
        rate_tps=rows / long_s,
        cpu=(end.cpu_s - begin.cpu_s) / long_s / slot_cores,
        loaded_bytes=max(0, loaded_bytes),
        memory_bytes=max(0, end.rss_bytes - base_bytes),
        blocked=max(0.0, (end.blocked_ns - begin.blocked_ns) / max(1, end.busy_ns - begin.busy_ns)),
        seconds=end.at_s - looks[0].at_s,
        warm_up_s=begin.at_s - looks[0].at_s,
        rows=rows,
        frame_rows=rows_a_frame,
        speed=speed,
        leak_bytes=leak,
    )
