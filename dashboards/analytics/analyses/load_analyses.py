"""Does each epoch keep up, and each 15 s of it? By the means and limits of `headgate.topology_runtime.stability`.

Of an epoch: Theil–Sen on medians of its bins, put together to at most 24, and the same for queue / rate where the
windows are enough. It does not keep up when one of them surely grows, or when rows waited for long for 15 s or more in
episodes that began in it; it does when one surely does not grow; else nobody can tell. Of a window: the least-squares
slope of the latencies in it.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.dashboards.analytics.analyses.analysis_input import (
    AnalysisInput,
    built,
    number,
    over,
    thinned,
)
from headgate.dashboards.analytics.analyses.latency_analyses import spread_of
from headgate.dashboards.analytics.storage.result_tables import (
    POINTS_MOST,
    BottleneckAnswer,
    Episode,
    LeftOut,
    SkewedThread,
    StabilityAnswer,
    StepAnswer,
    StepSlot,
)
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.dashboards.tables.trace_files import JUDGED_S
from headgate.topology_runtime.stability.slopes import Slope, theil_sen, trend
from headgate.topology_runtime.stability.trial_evidence import (
    LATENCY_RESOLUTION,
    UNSTABLE_SLOPE,
    Evidence,
    verdict_of,
)

POINTS = 24  # of an epoch: pairs of points grow with the square
LEAST_POINTS = 4  # points or rows below which a slope says nothing
ERROR = 0.05  # of either verdict being wrong: what is less sure is not said
SLOW_LEAST_S = 15.0  # in episodes that began in the epoch

PathKey = tuple[str, int, str, str]
Point = tuple[float, float]


def epochs(asked: AnalysisInput, episodes: Iterable[Episode]) -> list[StabilityAnswer]:
    """`episodes`: those of the runs."""
    latency = _latency(asked)
    queue = _queues(asked)
    slow: dict[PathKey, float] = defaultdict(float)
    for one in episodes:
        slow[one.run, one.epoch, one.source, one.sink] += one.to_s - one.from_s
    return [
        _epoch(asked, key, points, queue.get(key[:2], []), slow[key])
        for key, points in sorted(latency.items())
    ]


def windows(asked: AnalysisInput) -> tuple[list[StabilityAnswer], dict[tuple[str, int], tuple[int, int]]]:
    """(windows, evenly chosen; of each epoch: how many grow, of how many)."""
    rows = [
        row
        for row in asked.rows("latency_windows", "run", "w", "source", "sink", "epoch")
        if row["width_s"] == JUDGED_S and row["n"] >= LEAST_POINTS and row["slope"] is not None
    ]
    counts: dict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in rows:
        grow, n = counts[row["run"], row["epoch"]]
        counts[row["run"], row["epoch"]] = grow + (row["slope"] > UNSTABLE_SLOPE), n + 1
    return [_window(asked, row) for row in thinned(rows)], dict(counts)


def _window(asked: AnalysisInput, row: Mapping[str, Any]) -> StabilityAnswer:
    at_s, slope = asked.window_at_s(row["run"], row["w"], JUDGED_S), number(row["slope"])
    stable = None if slope is None else slope <= UNSTABLE_SLOPE
    return StabilityAnswer(
        row["run"], row["epoch"], "window", row["source"], row["sink"], at_s, at_s + JUDGED_S,
        slope, None, None, None, stable, row["n"],
    )  # fmt: skip


def _latency(asked: AnalysisInput) -> dict[PathKey, list[Point]]:
    """Per path and epoch at most 24 (time in s, median latency in s)."""
    values: dict[PathKey, list[tuple[int, float]]] = defaultdict(list)
    for row in asked.rows("latency_windows", "w"):
        if row["width_s"] == asked.widths.bin_s and row["p50_s"] is not None:
            values[row["run"], row["epoch"], row["source"], row["sink"]].append((row["w"], row["p50_s"]))
    return {key: merged(of, asked.widths.bin_s) for key, of in values.items()}


def _queues(asked: AnalysisInput) -> dict[tuple[str, int], list[Point]]:
    """Per epoch at most 24 (time in s, rows queued / rate in s)."""
    offered_tps = {
        (row["run"], row["epoch"], row["w"]): row["offered_tps"] for row in asked.rows("rate_windows")
    }
    values: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
    for row in asked.sums("task_windows", "run", "epoch", "w"):
        offered = offered_tps.get((row["run"], row["epoch"], row["w"]))
        if offered is not None and offered > 0 and row["queued"] is not None:
            values[row["run"], row["epoch"]].append((row["w"], row["queued"] / offered))
    return {key: merged(of, asked.window_s) for key, of in values.items()}


def merged(values: Sequence[tuple[int, float]], width_s: int) -> list[Point]:
    """Neighbouring bins (number, value), ascending, put together to at most 24: mean times in s, and means."""
    first, last = values[0][0], values[-1][0]
    each = -(-(last - first + 1) // POINTS)
    found = []
    for _, group in groupby(values, key=lambda value: (value[0] - first) // each):
        its = list(group)
        at_s = sum((w + 0.5) * width_s for w, _ in its) / len(its)
        found.append((at_s, sum(value for _, value in its) / len(its)))
    return found


def _epoch(
    asked: AnalysisInput,
    key: PathKey,
    latency: list[Point],
    queue: list[Point],
    slow_s: float,
) -> StabilityAnswer:
    none = Slope(0.0, 0.0, 0.0, 0)
    middle = sorted(value for _, value in latency)[len(latency) // 2]
    slope = _slope(latency, LATENCY_RESOLUTION * middle) or none
    growth = _slope(queue, 0.0)
    found = Evidence(slope, growth or none, slope, 1.0, 0.0, 0.0, 0.0, len(latency))
    verdict = "unstable" if slow_s >= SLOW_LEAST_S else verdict_of(found, ERROR, ERROR)
    known = slope.freedom > 0
    times = [asked.at_s(key[0], at * 1e6) for at, _ in latency]
    return StabilityAnswer(
        *key[:2], "epoch", *key[2:], max(0.0, times[0]), times[-1],
        slope.value if known else None, slope.low if known else None, slope.high if known else None,
        growth.value if growth else None,
        {"stable": True, "unstable": False, "unsure": None}[verdict], len(latency),
    )  # fmt: skip


def _slope(points: list[Point], resolution: float) -> Slope | None:
    if len(points) < LEAST_POINTS:
        return None
    x, y = (np.array([point[n] for point in points]) for n in (0, 1))
    return trend(x - x[0], y, resolution)


# ── Runs that were led up and down a stair of rates: what each step did, and what the slots used meanwhile
#
# Whoever leads a run leaves `steps.json` in its trace: {"schema": "headgate/steps/v1", "steps": [{"from_s":
# …, "to_s": …, "offered_tps": …}]}, seconds since 1970 UTC. The first `SETTLE_S` of a step are not counted.

FILE, SCHEMA = "steps.json", "headgate/steps/v1"
SETTLE_S = 1.5
LEAST_SECONDS = 3  # seconds with rows, below which a slope says nothing
OF_STEPS = f"""
select r.*, m.step, unix_micros(r.time) / 1e6 as at_s
from {{near}} r
join steps m on m.run = r.run
where unix_micros(r.time) / 1e6 >= m.from_s + {SETTLE_S}e0 and unix_micros(r.time) / 1e6 <= m.to_s
"""  # without the beginning of each
SECONDS_OF_STEPS = """
select
  run,
  step,
  floor(at_s) as second,
  avg(at_s) as at_s,
  percentile_disc(0.5) within group (order by latency_s) as p50_s
from latency_of_steps
where latency_s is not null
group by run, step, floor(at_s)
order by run, step, second
"""
HISTOGRAM_OF_STEPS = """
with binned as (
  select *, cast(floor(ln(greatest(latency_s, 1e-6)) / ln(2e0) * 16) as bigint) as bucket from latency_of_steps
  where latency_s is not null
)
select run, step, bucket, sum(tuples) as tuples, sum(tuples * latency_s) as weighted_s, max(latency_s) as max_s
from binned
group by run, step, bucket
order by run, step, bucket
"""
DONE_IN_STEPS = """
with sinks as (
  select distinct l.run, l.sink as task, w.weight
  from latency_of_steps l
  join weights w on w.run = l.run and w.task = l.sink
),
threads as (
  select s.run, s.step, s.task, s.thread, sum(s.tuples_in) / nullif(sum(s.window_s), 0) / max(k.weight) as tps
  from samples_of_steps s
  join sinks k on k.run = s.run and k.task = s.task
  group by s.run, s.step, s.task, s.thread
),
tasks as (
  select run, step, task, sum(tps) as tps from threads group by run, step, task
)
select run, step, avg(tps) as tps from tasks group by run, step
"""  # tuples of the sources per second that came through: rows at the sinks by what they weigh
SLOTS_OF_STEPS = """
select run, step, vm, slot, avg(cpu) as cpu, avg(memory) as memory, count(*) as n
from slots_of_steps
group by run, step, vm, slot
order by run, step, vm, slot
"""

Marks = tuple[str, int, float, float, float]  # run, step, from_s, to_s, offered_tps
StepKey = tuple[str, int]


def steps(asked: AnalysisInput) -> tuple[list[StepAnswer], list[StepSlot], list[LeftOut]]:
    """Nothing for runs without the file."""
    marks: list[Marks] = []
    left = []
    for run in asked.runs.values():
        found, why = marks_of(run)
        marks += found
        left += why
    if not marks:
        return [], [], left
    kinds = {
        "run": pa.string(), "step": pa.int64(), "from_s": pa.float64(), "to_s": pa.float64(),
        "offered_tps": pa.float64(),
    }  # fmt: skip
    asked.put("steps", marks, kinds)
    spans = [(run, int(from_s * 1e6), int(to_s * 1e6)) for run, _, from_s, to_s, _ in marks]
    for table in ("latency", "samples", "slots"):
        asked.engine.define(f"{table}_of_steps", OF_STEPS.format(near=asked.near(table, spans)))
    return _steps(asked, marks), [built(StepSlot, row) for row in asked.ask(SLOTS_OF_STEPS)], left


def marks_of(run: TraceRun) -> tuple[list[Marks], list[LeftOut]]:
    """What the file says; why not, when it is none."""
    file = run.place / FILE
    try:
        data = json.loads(file.read())
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']!r}, not {SCHEMA!r}")
        rows = [(float(r["from_s"]), float(r["to_s"]), float(r["offered_tps"])) for r in data["steps"]]
        if not all(map(math.isfinite, sum(rows, ()))):
            raise ValueError("a time or a rate is not finite")
    except FileNotFoundError:
        return [], []
    except (OSError, ValueError, TypeError, KeyError) as error:
        return [], [LeftOut(file.uri, "foreign", f"no steps: {type(error).__name__}: {error}", None)]
    return [(run.key, n, *row) for n, row in enumerate(rows)], []


def _steps(asked: AnalysisInput, marks: Sequence[Marks]) -> list[StepAnswer]:
    seconds: dict[StepKey, list[tuple[float, float]]] = defaultdict(list)
    for row in asked.ask(SECONDS_OF_STEPS):
        seconds[row["run"], row["step"]].append((row["at_s"], row["p50_s"]))
    histogram: dict[StepKey, list[Any]] = defaultdict(list)
    for row in asked.ask(HISTOGRAM_OF_STEPS):
        histogram[row["run"], row["step"]].append(row)
    weights = [(r.key, task, w) for r in asked.runs.values() for task, w in r.weights.items() if w > 0]
    asked.put("weights", weights, {"run": pa.string(), "task": pa.string(), "weight": pa.float64()})
    done = {(row["run"], row["step"]): row["tps"] for row in asked.ask(DONE_IN_STEPS)}
    return [_step(asked, mark, seconds[mark[:2]], histogram[mark[:2]], done.get(mark[:2])) for mark in marks]


def _step(
    asked: AnalysisInput,
    mark: Marks,
    seconds: list[tuple[float, float]],
    bins: list[Any],
    done_tps: float | None,
) -> StepAnswer:
    run, step, from_s, to_s, offered_tps = mark
    spread = spread_of(bins)
    del spread["max_s"]
    at_s = asked.at_s(run, from_s * 1e6)
    return StepAnswer(
        run, step, at_s, to_s - from_s, offered_tps, number(done_tps), *judged(seconds), **spread
    )


def judged(seconds: Iterable[tuple[float, float]]) -> tuple[float | None, bool | None]:
    """(slope of the seconds' median latencies, is it within the limit?); None: too few of them."""
    points = np.array(list(seconds), dtype=float).reshape(-1, 2)
    if len(points) < LEAST_SECONDS:
        return None, None
    slope = theil_sen(points[:, 0] - points[0, 0], points[:, 1]).value
    return slope, bool(slope <= UNSTABLE_SLOPE)


# ── The threads of each epoch that saturate first: task, slot, and how their queue grows ───
#
# A load is the present rate as a part of the one at which they saturate: of what the run's model lets them do, or of
# the slot's CPU as the models predict it while they are there, less what tasks of fixed size reserve. Where there is no
# model, the share of the time that they are busy, or of the slot's CPU. A queue that grows comes first. What does
# nothing, and has nothing waiting, limits nothing, however full its slot is.

RANKS = 3
GROUP = ("run", "epoch", "task", "vm", "slot")
USES_OF_SLOT = ("cpu_share", "predicted_share")
GROWN_S = 0.5  # a queue that has grown by what is taken in so long has grown, however long it took
LEAST_GROWTH_TPS = 1e-6  # less is what rounding makes of a queue that stands
LEAST_EPOCH_SHARE = 0.2  # of the time of the group that was there for longest: one with less came or left


def bottlenecks(asked: AnalysisInput) -> list[BottleneckAnswer]:
    slots = {tuple(row[key] for key in GROUP): row for row in asked.ask("select * from sum_group_slots")}
    able = _able(asked, even=True)
    found: list[BottleneckAnswer] = []
    rows = [row for row in asked.sums("groups", *GROUP) if row["seconds"]]
    for (run, epoch), mine in groupby(rows, key=lambda row: (row["run"], row["epoch"])):
        reserved, groups = asked.runs[run].reserved, []
        for row in mine:
            slot = slots.get(tuple(row[key] for key in GROUP))
            use = {name: number(slot[name]) if slot is not None else None for name in USES_OF_SLOT}
            groups.append(_group(row, asked.window_s) | use)
        for group in groups:
            group["load"] = _load(group, groups, able, reserved)
        there = [
            group
            for group in there_for_long(groups)
            if group["busy_share"] is not None and (group["taken_tps"] > 0 or group["grows"])
        ]
        there.sort(key=_order)
        found += [_row(run, epoch, rank + 1, group) for rank, group in enumerate(there[:RANKS])]
    return found[:POINTS_MOST]


def _order(group: dict[str, Any]) -> tuple[Any, ...]:
    """The nearest to a limit first. Threads of one slot may be as near as each other, but for what rounding makes."""
    names = (group["task"], group["vm"], group["slot"])
    return (not group["grows"], -round(group["load"], 9), -group["cpu_s"], *names)


def there_for_long(groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that say something of their epoch. What counts is time, not windows: where threads come and go, these are
    short.

    >>> [one["task"] for one in there_for_long([{"task": "a", "seconds": 9.0}, {"task": "b", "seconds": 1.0}])]
    ['a']
    """
    longest_s = max(group["seconds"] for group in groups)
    return [group for group in groups if group["seconds"] >= LEAST_EPOCH_SHARE * longest_s]


def _group(row: dict[str, Any], window_s: int) -> dict[str, Any]:
    """How busy these threads are, their queue, and how much they take in."""
    seconds = row["seconds"]
    taken_tps = max(row["tuples_in"], row["tuples_out"]) / seconds
    busy_share, threads = over(row["busy_s"], row["window_s"]), row["window_s"] / seconds
    growth_tps = over(
        row["xy"] - row["x"] * row["y"] / row["windows"],
        (row["xx"] - row["x"] ** 2 / row["windows"]) * window_s,
    )
    limit = min(UNSTABLE_SLOPE, GROWN_S / seconds) * taken_tps
    return row | {
        "taken_tps": taken_tps,
        "busy_share": busy_share,
        "threads": threads,
        "queue_mean": row["queue"] / row["n"] * threads,
        "queue_growth_tps": growth_tps,
        "grows": growth_tps is not None and growth_tps > max(LEAST_GROWTH_TPS, limit),
    }


def _load(
    of: dict[str, Any], groups: Sequence[dict[str, Any]], able: Able, reserved: dict[str, float]
) -> float:
    """How near to saturation; 0 of what only reserves."""
    task, many = of["task"], max(1, round(of["threads"]))
    if task in reserved:
        return 0.0
    known = [n for run, name, n in able if (run, name) == (of["run"], task) and n <= many]
    if not known:
        return max(of["busy_share"] or 0.0, of["cpu_share"] or 0.0)
    most = max(known)
    part = float(of["taken_tps"]) / (able[of["run"], task, most] * most)
    here = [one for one in groups if (one["vm"], one["slot"]) == (of["vm"], of["slot"])]
    fixed = sum(reserved.get(one["task"], 0.0) * round(one["threads"]) for one in here)
    predicted = of["predicted_share"] or 0.0
    return max(part, (predicted - fixed) / (1 - fixed) if fixed < 1 else 0.0)


def _row(run: str, epoch: int, rank: int, of: dict[str, Any]) -> BottleneckAnswer:
    return built(BottleneckAnswer, of, run=run, epoch=epoch, rank=rank, threads=round(of["threads"], 2))


# ── Threads that take in far more than their share: twice what the others of their task do, or more ───
#
# Where routing is weighted, each relative to what the run's model lets a thread do where it is (with q threads in a
# slot the q-th part of what q can): a thread alone in a slot may well do what four do together in another.

TIMES = 2.0
LEAST_TUPLES = 100
LEAST_TIME_SHARE = 0.5  # of the time of the thread that was there for longest

Able = Mapping[tuple[str, str, int], float]  # run, task, threads in a slot → rows/s of each


def skewed(asked: AnalysisInput) -> list[SkewedThread]:
    """The most skewed of each run and epoch first."""
    able = _able(asked)
    found: list[SkewedThread] = []
    rows = [row for row in asked.rows("threads", "run", "epoch", "task") if row["window_s"]]
    for _, group in groupby(rows, key=lambda row: (row["run"], row["epoch"], row["task"])):
        found += _of_task(list(group), able)
    found.sort(key=lambda row: (row.run, row.epoch, -row.times, row.task, row.thread))
    return found[:POINTS_MOST]


def _of_task(rows: Sequence[Mapping[str, Any]], able: Able) -> list[SkewedThread]:
    """Of one epoch."""
    longest_s = max(row["window_s"] for row in rows)
    there = [row for row in rows if row["window_s"] >= LEAST_TIME_SHARE * longest_s and row["window_s"] > 0]
    threads = Counter((row["vm"], row["slot"]) for row in there)
    rates = [row["tuples_in"] / row["window_s"] for row in there]
    each = [able.get((row["run"], row["task"], threads[row["vm"], row["slot"]])) for row in there]
    relative = [
        rate / able_tps if able_tps is not None and None not in each else rate
        for rate, able_tps in zip(rates, each, strict=True)
    ]
    middle, tuples = median(relative or [0.0]), sum(row["tuples_in"] for row in there)
    return [
        SkewedThread(
            row["run"], row["epoch"], row["task"], row["thread"], row["vm"], row["slot"], rate,
            median(rates), of / middle, row["tuples_in"] / tuples,
        )
        for row, rate, of in zip(there, rates, relative, strict=True)
        if middle > 0 and of / middle >= TIMES and row["tuples_in"] >= LEAST_TUPLES
    ]  # fmt: skip


def _able(asked: AnalysisInput, even: bool = False) -> Able:
    """What one of q threads in a slot can do by the run's models. even: of runs too where each gets as many rows."""
    return {
        (run.key, str(model["task"]), int(point["threads"])): float(point["rate_tps"]) / int(point["threads"])
        for run in asked.runs.values()
        if even or not run.even
        for model in run.models
        for point in _every(model)
    }


def _every(model: Any) -> list[dict[str, float]]:
    """The points of a model, and between two of them a straight line."""
    points = sorted(model["points"], key=lambda point: point["threads"])
    threads, rates = ([point[name] for point in points] for name in ("threads", "rate_tps"))
    every = range(1, int(threads[-1]) + 1)
    return [{"threads": n, "rate_tps": float(np.interp(n, threads, rates))} for n in every]
