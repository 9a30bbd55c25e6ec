"""From the rings of `Intake` to a frozen `Window`."""

from __future__ import annotations

import numpy as np

from headgate.controller.knowledge import measured_window as w
from headgate.controller.monitor import sample_intake as x
from headgate.controller.monitor.sample_blocks import Ints, mean_ns, percentiles_ns
from headgate.controller.monitor.sample_intake import NS, Intake
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.stability.slopes import Floats, theil_sen, theil_sen_each

LATE_S = 3  # samples that are not in so long after a second ended are missing
COVERED_SHARE = 0.9  # of a second: blocks of one VM meet within a few ms
SHARES = (0.5, 0.95, 0.99)  # of the rows
ABSENT_S = 3  # a slot without samples for so long is not there any more


def window_of(intake: Intake, now_ns: int, seconds: float) -> w.MeasuredWindow:
    """What was measured over the last `seconds`, up to the newest second that all samples are in for."""
    rows = _seconds(intake, now_ns, seconds)
    span_s = float(len(rows))
    cover_s, complete = _coverage(intake, rows)
    series = progress(intake, now_ns)
    back = _tail(series, seconds)
    latency = intake.latency.of(rows)
    every, latency_series = _latency_of(latency, rows, now_ns)
    one = latency.shape[1] == 1  # then all rows are of that pair
    return w.MeasuredWindow(
        now_ns=now_ns,
        seconds=span_s,
        epoch=intake.epoch,
        complete=complete,
        offered_tps=_rate(back, 1),
        offered_slope_tps_per_s=_rate_slope(back),
        emitted_tps=_rate(back, 2),
        acked_tps=_rate(back, 3),
        backlog=max(0.0, series.offered[-1] - series.acked[-1]) if series.at_s else 0.0,
        backlog_growth_tps=theil_sen(back[:, 0], back[:, 1] - back[:, 3]).value,
        tasks=_tasks(intake, rows, cover_s),
        slots=_slots(intake, rows),
        edges=_edges(intake, rows, cover_s),
        latency=every,
        latencies={
            pair: every if one else _latency(latency[:, n].sum(axis=0)) for pair, n in intake.pairs.items()
        },
        latency_series=latency_series,
        progress=series,
    )


def _seconds(intake: Intake, now_ns: int, seconds: float) -> Ints:
    """The seconds of the window: up to the newest one that every VM covers, at most LATE_S ago."""
    begins = [sender.since for sender in intake.senders.values() if sender.since is not None]
    if not begins:
        return np.zeros(0, np.int64)
    newest = now_ns // NS - 1
    intake.timeline.advance(newest)  # what was there two minutes ago is not what is there now
    candidates = np.arange(newest, newest - LATE_S, -1)
    covered = intake.coverage.of(candidates)[:, [s.number for s in intake.senders.values()], 0]
    starts = np.array([newest + 1 if s.since is None else s.since for s in intake.senders.values()])
    whole = ((covered >= COVERED_SHARE) | (candidates[:, None] < starts)).all(axis=1)
    end = int(candidates[int(whole.argmax()) if whole.any() else LATE_S - 1])
    first = max(min(begins), end - min(round(seconds), w.HISTORY_S) + 1)
    return np.arange(first, end + 1)


def queues_now(intake: Intake, now_ns: int) -> dict[str, float]:
    """Task → rows that wait before it, of the last second that is known."""
    rows = _seconds(intake, now_ns, 1.0)
    if not len(rows):
        return {}
    cover_s, _ = _coverage(intake, rows)
    queues = intake.tasks.of(rows)[0, :, x.QUEUE] / max(cover_s, 1e-9)
    return dict(zip(intake.map.tasks, queues.tolist(), strict=True))


def _coverage(intake: Intake, rows: Ints) -> tuple[float, float]:
    """(seconds covered by the average VM, share of the expected samples that are there)."""
    there = expected = 0.0
    covered = np.ascontiguousarray(np.minimum(intake.coverage.of(rows)[:, :, 0], 1.0).T)
    for sender in intake.senders.values():
        if sender.since is not None:
            due = covered[sender.number, max(0, sender.since - int(rows[0])) :] if len(rows) else rows
            expected += len(due)
            there += float(due.sum())
    if expected == 0:
        return 0.0, 0.0
    return len(rows) * there / expected, there / expected


def progress(intake: Intake, now_ns: int) -> w.ProgressSeries:
    """Positions every half second back from now, as far as the history goes; where rows are taken as they come,
    back from when that was looked at last."""
    marks = intake.progress.all()
    if len(marks) == 0:
        return w.ProgressSeries()
    end_ns = int(marks[-1, 0]) if intake.arriving else now_ns
    age_s = min(w.HISTORY_S, max(0.0, (end_ns - marks[0, 0]) / NS))
    at_s = -np.arange(int(age_s / w.SERIES_STEP_S), -1, -1) * w.SERIES_STEP_S + (end_ns - now_ns) / NS
    ages = (marks[:, 0] - now_ns) / NS
    series = [tuple(np.interp(at_s, ages, marks[:, k]).tolist()) for k in (1, 2, 3)]
    return w.ProgressSeries(tuple(at_s.tolist()), *series)


def _tail(series: w.ProgressSeries, seconds: float) -> Floats:
    """(points, 4): at_s, offered, emitted, acked of the last `seconds`."""
    points = int(seconds / w.SERIES_STEP_S) + 1
    columns = (series.at_s, series.offered, series.emitted, series.acked)
    return np.array([column[-points:] for column in columns]).T.reshape(-1, 4)


def _rate(back: Floats, column: int) -> float:
    if len(back) < 2:
        return 0.0
    return float((back[-1, column] - back[0, column]) / (back[-1, 0] - back[0, 0]))


def _rate_slope(back: Floats) -> float:
    if len(back) < 2:
        return 0.0
    at_s, offered = back[:, 0], back[:, 1]
    return theil_sen(at_s[1:], (offered[1:] - offered[:-1]) / (at_s[1:] - at_s[:-1])).value


def _tasks(intake: Intake, rows: Ints, cover_s: float) -> dict[str, w.TaskWindow]:
    each = intake.tasks.of(rows)
    growth = theil_sen_each(rows.astype(np.float64), each[:, :, x.QUEUE])
    sums = each.sum(axis=0)
    per_s = sums / max(cover_s, 1e-9)
    latency = sums[:, x.MEAN] / np.maximum(sums[:, x.IN], 1.0) / 1e6
    each_ns = intake.ever[:, 1] / np.maximum(intake.ever[:, 0], 1.0)
    shares = sums[:, [x.BUSY, x.WAIT, x.DELAY]] / np.maximum(sums[:, x.THREADS : x.THREADS + 1] * NS, 1.0)
    return {
        name: w.TaskWindow(
            threads=per_s_of[x.THREADS],
            rate_in_tps=per_s_of[x.IN],
            rate_out_tps=per_s_of[x.OUT],
            queue=per_s_of[x.QUEUE],
            queue_growth_tps=growth_of,
            latency_mean_ms=mean,
            cpu_cores=per_s_of[x.CPU] / NS,
            busy_share=busy,
            wait_share=wait,
            run_delay_share=delay,
            bytes_in_per_s=per_s_of[x.BYTES_IN],
            bytes_out_per_s=per_s_of[x.BYTES_OUT],
            work_cores=per_s_of[x.WORK] / NS,
            timer_cores=per_s_of[x.TIMERS] / NS,
            timer_s_of_row=timers / NS,
            calls_per_s=per_s_of[x.CALLS],
            ran_us2_per_s=per_s_of[x.RAN_SQUARES],
            waited_us2_per_s=per_s_of[x.WAITED_SQUARES],
        )
        for name, per_s_of, growth_of, mean, (busy, wait, delay), timers in zip(
            intake.map.tasks, *(a.tolist() for a in (per_s, growth, latency, shares, each_ns)), strict=True
        )
    }


def _slots(intake: Intake, rows: Ints) -> dict[Slot, w.SlotWindow]:
    each = intake.slots.of(rows)
    there = (each[-ABSENT_S:, :, x.SLOT_TIME].sum(axis=0) > 0).tolist()
    sums = each.sum(axis=0)
    per_s = (sums / np.maximum(sums[:, x.SLOT_TIME : x.SLOT_TIME + 1], 1e-9)).tolist()
    out: dict[Slot, w.SlotWindow] = {}
    for sender in intake.senders.values():
        for slot in sender.vm.all_slots():
            n = sender.first_slot + slot.number
            if there[n]:
                cores = per_s[n][x.SLOT_CPU] / NS
                memory = sums[n, x.SLOT_MEMORY] / max(float(sums[n, x.SLOT_HELD_TIME]), 1e-9)
                out[slot] = w.SlotWindow(
                    cpu=cores / sender.vm.slot_cores,
                    memory=float(memory) / sender.vm.slot_memory_bytes,
                    cpu_cores=cores,
                    memory_bytes=float(memory),
                    throttled_share=per_s[n][x.SLOT_THROTTLED] / NS,
                    oom_kills=float(sums[n, x.SLOT_KILLS]),
                )
    return out


def _edges(intake: Intake, rows: Ints, cover_s: float) -> dict[tuple[str, str], w.EdgeWindow]:
    sums = intake.edges.of(rows).sum(axis=0)
    per_s = sums / max(cover_s, 1e-9)
    frames = np.maximum(sums[:, x.FRAMES], 1.0)
    return {
        edge: w.EdgeWindow(
            rate_tps=float(per_s[n, x.TUPLES]),
            bytes_per_s=float(per_s[n, x.BYTES]),
            buffer_latency_ms=float(sums[n, x.BUFFER] / frames[n]) / 1e6,
            channel_latency_ms=float(sums[n, x.CHANNEL] / frames[n]) / 1e6,
            between_slots_tps=float(per_s[n, x.SLOTS_TUPLES]),
            between_vms_tps=float(per_s[n, x.VMS_TUPLES]),
            between_vms_bytes_per_s=float(per_s[n, x.VMS_BYTES]),
            frames_per_s=float(per_s[n, x.FRAMES]),
        )
        for n, edge in enumerate(intake.map.edges)
    }


def _latency(counts: Floats) -> w.Latency:
    return _as_latency(counts, percentiles_ns(counts[None], SHARES)[0])


def _as_latency(counts: Floats, at_ns: Floats) -> w.Latency:
    return w.Latency(float(counts.sum()), mean_ns(counts) / 1e6, *(at_ns / 1e6).tolist())


def _latency_of(latency: Floats, rows: Ints, now_ns: int) -> tuple[w.Latency, w.LatencySeries]:
    """Of the window, and of each of its seconds (seconds, series, BUCKETS)."""
    whole, each = latency.sum(axis=(0, 1)), latency.sum(axis=1)
    found_ns = percentiles_ns(np.concatenate((whole[None], each)), SHARES)
    at_s = ((rows + 0.5) * NS - now_ns) / NS
    there = each.sum(axis=1) > 0
    p50_s = found_ns[1:, 0] / NS
    series = w.LatencySeries(tuple(at_s[there].tolist()), tuple(p50_s[there].tolist()))
    return _as_latency(whole, found_ns[0]), series
