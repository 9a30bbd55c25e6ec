"""A window: what was measured over the last seconds, as plain frozen values. Made by `sample_windows.window_of`.

Times in series are seconds relative to the window's `now_ns` (≤ 0), oldest first.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headgate.topology_runtime.api.cluster import Slot

COMPLETE_SHARE = 0.95  # below it there is no rate or stability verdict (guarantee P7)
SERIES_STEP_S = 0.5  # between two points of a Progress
HISTORY_S = 120  # how far back series reach at most


class TaskWindow(msgspec.Struct, frozen=True):
    """One task, all its threads together. Rates in rows/s; `queue`: rows waiting, mean over the window.

    Latency: mean, from arrival in the thread's queue to completion, weighted by rows. Shares are fractions
    of the threads' time: in the task's logic, of that off the CPU, waiting for a CPU. `work_cores`: the CPU, each
    core × the speed of its VM, so that what unlike VMs do adds up. `timer_cores`: of the CPU, what timers took.
    `timer_s_of_row`: the CPU of all timers of the run so far, for each of its rows so far. Calls, and the
    sums over them of µs² / rows, on the CPU and off it (`row_spread`)."""

    threads: float
    rate_in_tps: float
    rate_out_tps: float
    queue: float
    queue_growth_tps: float
    latency_mean_ms: float
    cpu_cores: float
    busy_share: float
    wait_share: float
    run_delay_share: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    work_cores: float = 0.0
    timer_cores: float = 0.0
    timer_s_of_row: float = 0.0
    calls_per_s: float = 0.0
    ran_us2_per_s: float = 0.0
    waited_us2_per_s: float = 0.0

    @property
    def row_cores(self) -> float:
        """CPU of its rows, each with its part of what all timers took, whenever they fire (decision 102)."""
        return max(0.0, self.cpu_cores - self.timer_cores) + self.rate_in_tps * self.timer_s_of_row


class SlotWindow(msgspec.Struct, frozen=True):
    """One slot: `cpu` and `memory` as fractions of the slot, `throttled_share` of the time."""

    cpu: float
    memory: float
    cpu_cores: float
    memory_bytes: float
    throttled_share: float
    oom_kills: float


class EdgeWindow(msgspec.Struct, frozen=True):
    """Rows between two tasks: mean ms of a frame in the sender's buffer and on the way. Of the rows, those between two
    slots, and of these those between two VMs; only rows between slots have bytes."""

    rate_tps: float
    bytes_per_s: float
    buffer_latency_ms: float
    channel_latency_ms: float
    between_slots_tps: float = 0.0
    between_vms_tps: float = 0.0
    between_vms_bytes_per_s: float = 0.0
    frames_per_s: float = 0.0


class Latency(msgspec.Struct, frozen=True):
    """From the intended emit time at the source to completion at the sink, of `rows` rows."""

    rows: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float


class ProgressSeries(msgspec.Struct, frozen=True):
    """Positions offered, emitted and acked since the run began, every `SERIES_STEP_S`."""

    at_s: tuple[float, ...] = ()
    offered: tuple[float, ...] = ()
    emitted: tuple[float, ...] = ()
    acked: tuple[float, ...] = ()

    def lately(self, what: Literal["emitted", "acked"], seconds: float) -> float | None:
        """Rows/s of the last `seconds`; None before there is so much."""
        sums, points = getattr(self, what), round(seconds / SERIES_STEP_S)
        if len(self.at_s) <= points:
            return None
        return float((sums[-1] - sums[-1 - points]) / (self.at_s[-1] - self.at_s[-1 - points]))


class LatencySeries(msgspec.Struct, frozen=True):
    """Median end-to-end latency of each second in which rows reached a sink."""

    at_s: tuple[float, ...] = ()
    p50_s: tuple[float, ...] = ()


class MeasuredWindow(msgspec.Struct, frozen=True):
    """Measured over `seconds` (less than asked for when the history is shorter).

    complete: share of the expected samples that are there. backlog: rows offered and not yet acked.
    `latency_series` covers the window, `progress` the history."""

    now_ns: int
    seconds: float
    epoch: int
    complete: float
    offered_tps: float
    offered_slope_tps_per_s: float
    emitted_tps: float
    acked_tps: float
    backlog: float
    backlog_growth_tps: float
    tasks: dict[str, TaskWindow]
    slots: dict[Slot, SlotWindow]
    edges: dict[tuple[str, str], EdgeWindow]
    latency: Latency
    latencies: dict[tuple[str, str], Latency]  # (source, sink)
    latency_series: LatencySeries
    progress: ProgressSeries

    @property
    def is_complete(self) -> bool:
        return self.complete >= COMPLETE_SHARE
