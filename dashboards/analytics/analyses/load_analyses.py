"""Does each epoch keep up, and each 15 s of it? By the means and limits of `headgate.topology_runtime.stability`.

Of an epoch: Theil–Sen on medians of its bins, put together to at most 24, and the same for queue / rate where the
windows are enough. It does not keep up when one of them surely grows, or when rows waited for long for 15 s or more in
episodes that began in it; it does when one surely does not grow; else nobody can tell. Of a window: the least-squares
slope of the latencies in it.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.dashboards.analytics.analyses.analysis_input import (
    AnalysisInput,
    built,
    number,
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


# ── The threads of each epoch that saturate first, and threads that take in far more than their share

RANKS = 3
BOTTLENECKS = f"""
select * from mart_bottlenecks
where rank <= {RANKS}
order by run, epoch, rank
limit {POINTS_MOST}
"""
SKEWED = f"""
select *, tuples_tps as rate_tps, tuples_tps / skew as planned_tps, skew as times
from mart_skew
where skewed
order by run, epoch, times desc, task, thread
limit {POINTS_MOST}
"""


def bottlenecks(asked: AnalysisInput) -> list[BottleneckAnswer]:
    return [built(BottleneckAnswer, row) for row in asked.ask(BOTTLENECKS)]


def skewed(asked: AnalysisInput) -> list[SkewedThread]:
    """The most skewed of each run and epoch first."""
    return [built(SkewedThread, row) for row in asked.ask(SKEWED)]
