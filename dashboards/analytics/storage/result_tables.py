"""The result tables: `output/results/<name>.json`, each a list of plain rows. The report reads nothing else.

None: undefined or unknown (too few points, no prediction recorded). `run` is `topology/run`. `at_s` counts
from the run's first sample. Tables that could be long hold at most `POINTS_MOST` rows, evenly chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

# ── The figures of a run as a whole, and what of them differs from another run's by more than runs differ
# anyway

CARRIES = 0.01  # of what was offered: a plan that follows a rate is late by so much
RECORDED = "recorded"  # the policy that is the run itself


class RunFigures(msgspec.Struct, frozen=True):
    """A run in one row. slots: mean number with threads; waited_s: how long the episodes of overload
    took together. None: not known."""

    run: str
    topology: str
    started_us: int | None
    seconds: float | None
    offered_tps: float | None
    acked_tps: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    waited_s: float | None
    slots: float | None
    slot_hours: float | None
    usd: float | None
    replans: int | None
    lost: int | None
    dead_lettered: int | None
    replayed: int | None
    duplicates: int | None


class PolicyTried(msgspec.Struct, frozen=True):
    """A policy with the offer of a run, by the models; `recorded`: the run's own plans. rank: 1 is the one with the
    fewest slot-hours of those that carry what was offered (but for a hundredth), behind them those that fall short, by
    how much; None of the run itself, and of what could not begin. violations_s, violated_tuples: for how long more was
    offered than the plan in force is predicted to carry, and how much more; measured_s, measured_tuples: what the run
    really failed to finish, in stretches of 10 s; p50_ms, p95_ms, p99_ms: what rows are predicted to take, a mean over
    the time for which it is; measured_p50_ms …: what rows of the run took in that time; note: of its first plan; why:
    it could not begin or go on."""

    run: str
    policy: str
    rank: int | None
    slot_hours: float
    usd: float | None
    violations_s: float
    violated_tuples: float
    offered: float
    replans: int
    moves: int
    measured_s: float | None = None
    measured_tuples: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    measured_p50_ms: float | None = None
    measured_p95_ms: float | None = None
    measured_p99_ms: float | None = None
    note: str | None = None
    why: str | None = None

    @property
    def carries(self) -> bool:
        return self.rank is not None and self.violated_tuples <= CARRIES * self.offered


class RunChange(msgspec.Struct, frozen=True):
    """A figure of a run, and what it was in `against`. differs: by more than two runs of the same differ; None: one of
    the two is not known."""

    run: str
    against: str
    figure: str
    unit: str
    value: float | None
    before: float | None
    differs: bool | None


@dataclass(frozen=True)
class FigureNoise:
    """What two runs of the same differ by: `share` of the larger one, or `least` in the figure's unit, whichever is
    more. decisions/0056 says where these are from. title: as the report says it."""

    title: str
    unit: str
    share: float = 0.0
    least: float = 0.0


NOISE = {
    "seconds": FigureNoise("It lasted", "s", 0.02, 2.0),
    "offered_tps": FigureNoise("Offered", "rows/s", 0.02),
    "acked_tps": FigureNoise("Finished", "rows/s", 0.05),
    "p50_s": FigureNoise("Half of the rows took at most", "s", 0.25, 0.02),
    "p95_s": FigureNoise("95 % of the rows took at most", "s", 0.25, 0.05),
    "p99_s": FigureNoise("99 % of the rows took at most", "s", 0.33, 0.1),
    "waited_s": FigureNoise("Rows waited for long for", "s", 0.25, 3.0),
    "slots": FigureNoise("Slots in the mean", "slots", 0.03),
    "slot_hours": FigureNoise("Slot-hours", "slot·h", 0.03),
    "usd": FigureNoise("USD", "USD", 0.03),
    "replans": FigureNoise("Re-plans", "re-plans"),
    "lost": FigureNoise("Lost rows", "rows"),
    "dead_lettered": FigureNoise("Dead letters", "rows"),
    "replayed": FigureNoise("Rows sent once more", "rows"),
    "duplicates": FigureNoise("Duplicates at sinks, at least", "rows"),
}


def changes(
    own: Sequence[RunFigures], before: Sequence[RunFigures], named: bool = False
) -> Iterator[RunChange]:
    """Each run against the one of the same topology that began last before it, of these and of `before`; `named`:
    against that in `before`, whatever its topology."""
    for now in own:
        then = before[0] if named and before else previous(now, [*own, *before])
        if then is not None and then.run != now.run:
            yield from against(now, then)


def previous(now: RunFigures, others: Iterable[RunFigures]) -> RunFigures | None:
    earlier = [
        (other.started_us, other.run, other)
        for other in others
        if other.topology == now.topology
        and other.started_us is not None
        and now.started_us is not None
        and (other.started_us, other.run) < (now.started_us, now.run)
    ]
    return max(earlier, key=lambda one: one[:2])[2] if earlier else None


def against(now: RunFigures, then: RunFigures) -> Iterator[RunChange]:
    for figure, noise in NOISE.items():
        value, before = getattr(now, figure), getattr(then, figure)
        yield RunChange(now.run, then.run, figure, noise.unit, value, before, differs(noise, value, before))


def differs(noise: FigureNoise, value: float | None, before: float | None) -> bool | None:
    if value is None or before is None:
        return None
    return abs(value - before) > max(noise.least, noise.share * max(abs(value), abs(before)))


def waited_s(spans: Iterable[tuple[float, float]]) -> float:
    """How long these stretches take together; where two lie over each other it counts once."""
    whole, until = 0.0, float("-inf")
    for from_s, to_s in sorted(spans):
        whole += max(0.0, to_s - max(from_s, until))
        until = max(until, to_s)
    return whole


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

SCHEMA = "headgate/analysis/v1"  # of analysis.json beside them
POINTS_MOST = 2_000
HISTOGRAM_BINS_PER_DOUBLING = 4  # of latency: each bin is 19 % wide, as the recorder's are


class StabilityAnswer(msgspec.Struct, frozen=True):
    """Does it keep up? `scope`: "epoch", or "window" (15 s of it). slope: of the median latency, s/s (Theil–Sen
    for an epoch with its 95 % interval, least squares for a window, without one); queue_slope: of queue / rate."""

    run: str
    epoch: int
    scope: str
    source: str | None
    sink: str | None
    from_s: float
    to_s: float
    slope: float | None
    slope_low: float | None
    slope_high: float | None
    queue_slope: float | None
    stable: bool | None  # None: cannot be told
    points: int


class Episode(msgspec.Struct, frozen=True):
    """A stretch in which rows waited for long (`latency_analyses.py`). peak_s: the highest latency of a row that
    came out in it, peak_at_s: when; usual_s: the 90th percentile of the latency when it is not slow; tuples: that came
    out in it; epoch: in which it began. task, vm, slot: the threads that held up its rows, held_s: for how long each in
    the mean (queue / what they take in). None: nobody clearly did."""

    run: str
    source: str
    sink: str
    epoch: int
    from_s: float
    to_s: float
    peak_s: float
    peak_at_s: float
    usual_s: float
    tuples: float
    task: str | None = None
    vm: str | None = None
    slot: int | None = None
    held_s: float | None = None
    busy_share: float | None = None


class RateWindow(msgspec.Struct, frozen=True):
    """Mean rates of the sources in one stretch of time, rows/s. tried: more was offered than was predicted, or rows
    waited for long: only then what came through says whether the prediction is right."""

    run: str
    epoch: int
    at_s: float
    window_s: float
    offered_tps: float | None
    emitted_tps: float | None
    acked_tps: float | None
    planned_tps: float | None
    predicted_tps: float | None
    tried: bool = False


class SlotPredicted(msgspec.Struct, frozen=True):
    """CPU and memory of a slot in one stretch of time, fractions of the slot: measured and predicted at the
    rate of that moment. `pair`: allocator+mapper."""

    run: str
    pair: str | None
    epoch: int
    at_s: float
    vm: str
    slot: int
    cpu: float | None
    predicted_cpu: float | None
    memory: float | None
    predicted_memory: float | None


class Residuals(msgspec.Struct, frozen=True):
    """Predicted against actual. `of`: rate, cpu or memory; `by`: all, task, slot, vm, pair, epoch; `name`: which
    (task name, "vm1/0", "vm1", "mba+sam", "<run> 3"; "" for all). Errors of the rate are relative to the actual
    one, of cpu and memory fractions of the slot; `mean_residual` = actual − predicted in its own unit. r2 =
    1 − SSres / SStot; r2_without_offset: the same once the mean residual is taken off (memory: a worker's base load,
    which models leave out)."""

    of: str
    by: str
    name: str
    n: int
    r2: float | None
    mae: float | None
    median_error: float | None
    p95_error: float | None
    worst_error: float | None
    mean_residual: float | None
    r2_without_offset: float | None = None


class TaskResidual(msgspec.Struct, frozen=True):
    """A task in an epoch: rows/s taken in, against what the topology's selectivities make of the emitted rate;
    cpu: seconds per second of all its threads, cost of a row, and how busy its threads are (1: always)."""

    run: str
    epoch: int
    task: str
    threads: float
    rate_tps: float | None
    predicted_tps: float | None
    residual_tps: float | None
    cpu_cores: float | None
    cpu_s_per_tuple: float | None
    busy_share: float | None
    memory_bytes: float | None


class ResidualCell(msgspec.Struct, frozen=True):
    """Map of task × slot: measured − predicted CPU of the slots (fraction), shared out to the slot's tasks by
    their CPU. `cpu`: the task's own measured share."""

    run: str
    task: str
    vm: str
    slot: int
    cpu: float | None
    residual: float | None
    windows: int


class LatencyBin(msgspec.Struct, frozen=True):
    """Tuples with latency in [from_s, to_s)."""

    from_s: float
    to_s: float
    tuples: float


class LatencyEpoch(msgspec.Struct, frozen=True):
    """Latency from a source's intended emit time to a sink, seconds, weighted by tuples."""

    run: str
    epoch: int
    source: str
    sink: str
    tuples: float
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    max_s: float | None
    histogram: list[LatencyBin]


class LatencyForeseen(msgspec.Struct, frozen=True):
    """What rows were predicted to take at a sink by a plan in force and a rate, and what they took then (a row of
    `mart_latency`, which says when). …_error: by what part of the measured one the predicted one is higher."""

    run: str
    epoch: int
    plan: str
    sink: str
    rate_tps: float
    from_s: float
    to_s: float
    tuples: float
    p50_s: float
    predicted_p50_s: float
    p50_error: float | None
    p95_s: float
    predicted_p95_s: float
    p95_error: float | None
    p99_s: float
    predicted_p99_s: float
    p99_error: float | None


class BottleneckAnswer(msgspec.Struct, frozen=True):
    """The groups of threads (task in slot) of an epoch that are nearest to their limit, rank 1 first, as
    mart_bottlenecks has them."""

    run: str
    epoch: int
    rank: int
    task: str
    vm: str
    slot: int
    threads: float
    busy_share: float | None
    cpu_share: float | None  # of the slot while they were there, by all tasks in it
    queue_mean: float | None
    queue_growth_tps: float | None
    load: float | None = None


class Interference(msgspec.Struct, frozen=True):
    """CPU seconds per row of a task alone in its slot and beside others. ratio = shared / alone."""

    run: str
    task: str
    alone_s_per_tuple: float | None
    shared_s_per_tuple: float | None
    ratio: float | None
    alone_windows: int
    shared_windows: int
    beside: list[str]  # the tasks that shared a slot with it most, at most three


class SlotSpeed(msgspec.Struct, frozen=True):
    """How fast a slot is, against the mean of the others, by what rows cost in it (`slot_analyses.py`), with a 95 %
    interval. slot None: the whole VM. slow: the interval is below 0.9."""

    run: str
    vm: str
    slot: int | None
    speed: float
    low: float
    high: float
    windows: int
    slow: bool


class PairCost(msgspec.Struct, frozen=True):
    """What a row of a task costs in CPU time with `beside` in its slot, in times of what it does without, with a 95 %
    interval. disturbs: the interval is above 1.1."""

    run: str
    task: str
    beside: str
    factor: float
    low: float
    high: float
    windows: int
    disturbs: bool


class Leak(msgspec.Struct, frozen=True):
    """A slot whose memory only grew, between from_s and to_s; bytes_per_s with a 95 % interval (None: the size of the
    slot is not known). held: fraction of the slot at the end; full_in_s: seconds from then until it is full."""

    run: str
    vm: str
    slot: int
    tasks: list[str]
    from_s: float
    to_s: float
    bytes_per_s: float | None
    low: float | None
    high: float | None
    held: float
    full_in_s: float


class SkewedThread(msgspec.Struct, frozen=True):
    """A thread that took in far more than its plan gives it (planned_tps), as mart_skew has it. times: how much more;
    share: of all rows of the task in a second."""

    run: str
    epoch: int
    task: str
    thread: int
    vm: str
    slot: int
    rate_tps: float
    planned_tps: float
    times: float
    share: float


class Cost(msgspec.Struct, frozen=True):
    """Of an epoch (`epoch` None: the whole run), as mart_cost has it. usd: None when run.json has no price for one of
    the VMs; recorded_s: of `seconds`; coverage: as a part of them."""

    run: str
    epoch: int | None
    seconds: float
    slots_used: float  # mean number with threads
    slot_hours: float
    vms: int
    vm_hours: float
    usd: float | None
    tuples_acked: int | None
    usd_per_million_tuples: float | None
    recorded_s: float | None
    coverage: float | None


class Replan(msgspec.Struct, frozen=True):
    """What a plan cost. decided_s: the decision's time to think, enacted_s: from the decision until in force,
    pause_ms: from the order to switch until the last sender had, silent_s: the longest stretch without output of
    a task that had output before (windows of a second), dip: 1 − tuples in the 5 s after / before, corrected by
    nothing. None: not recorded."""

    run: str
    epoch: int
    at_s: float
    reason: str
    rate_tps: float | None
    predicted_tps: float | None
    slots: int | None
    moves: int | None
    decided_s: float | None
    enacted_s: float | None
    pause_ms: float | None
    silent_s: float | None
    dip: float | None
    text: str


class TuplesTold(msgspec.Struct, frozen=True):
    """What the controller counted, as of `at_s`, the last that it published; None: nothing was recorded. over: the run
    had ended by then. lost: read, neither done nor on their way; duplicates: rows at sinks more than once, at least."""

    run: str
    at_s: float | None
    over: bool | None
    offered: int | None
    emitted: int | None
    acked: int | None
    in_flight: int | None
    lost: int | None
    dead_lettered: int | None
    replayed: int | None
    duplicates: int | None


class RunNote(msgspec.Struct, frozen=True):
    """An event of the run that is no step of a plan, in the controller's words: kind, for example advice, vm_lost."""

    run: str
    at_s: float
    epoch: int | None
    kind: str
    text: str


class Forecast(msgspec.Struct, frozen=True):
    """The offered rate, `kind`: actual (whole run), fitted (the hold-out, by the method chosen before it) or
    forecast (after the end, with an interval of the errors seen in the hold-out)."""

    run: str
    kind: str
    at_s: float
    rate_tps: float
    low_tps: float | None
    high_tps: float | None


class Season(msgspec.Struct, frozen=True):
    """Seasonality of a run's offered rate, and how well forecasts did on its held-out end: mean absolute error
    in rows/s and relative to the mean rate, for the method and for "as the last value". why: when None."""

    run: str
    period_s: float | None
    strength: float | None  # autocorrelation at the period, 1: repeats exactly
    power_share: float | None  # of the periodogram at the period and its harmonics
    method: str | None
    holdout_s: float | None
    mae_tps: float | None
    relative_error: float | None
    naive_mae_tps: float | None
    why: str | None


class Refitted(msgspec.Struct, frozen=True):
    """A task's model made from this trace, or why not. `file` is below output/models."""

    task: str
    file: str | None
    points: int
    windows: int
    why: str | None


class Pair(msgspec.Struct, frozen=True):
    """Traffic from task to task of an epoch; latencies are means per frame."""

    run: str
    epoch: int
    from_task: str
    to_task: str
    tuples_tps: float | None
    bytes_per_s: float | None
    buffer_latency_s: float | None
    channel_latency_s: float | None


class StepAnswer(msgspec.Struct, frozen=True):
    """A step of a run that was led up and down a stair of rates. achieved_tps: tuples of the sources that came
    through; slope of the latency, s/s (Theil–Sen); stable None: too short to tell."""

    run: str
    step: int
    at_s: float
    seconds: float
    offered_tps: float
    achieved_tps: float | None
    slope: float | None
    stable: bool | None
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    histogram: list[LatencyBin]


class StepSlot(msgspec.Struct, frozen=True):
    """What a slot used in a step: means over `n` samples, fractions of it."""

    run: str
    step: int
    vm: str
    slot: int
    cpu: float | None
    memory: float | None
    n: int


class LeftOut(msgspec.Struct, frozen=True):
    """A file (or a column, or a run's models) that was not used. kind: truncated, foreign, future-version,
    empty, schema, clock, duplicate, unfinished, unreadable, missing, models. rows: None when unknown."""

    file: str
    kind: str
    reason: str
    rows: int | None


TABLES: dict[str, type[msgspec.Struct]] = {
    "stability": StabilityAnswer,
    "episodes": Episode,
    "rate_windows": RateWindow,
    "slots_predicted": SlotPredicted,
    "residuals": Residuals,
    "tasks_residuals": TaskResidual,
    "residual_map": ResidualCell,
    "latency_epochs": LatencyEpoch,
    "latency_foreseen": LatencyForeseen,
    "bottlenecks": BottleneckAnswer,
    "interference": Interference,
    "slot_speeds": SlotSpeed,
    "pair_costs": PairCost,
    "leaks": Leak,
    "skewed_threads": SkewedThread,
    "cost": Cost,
    "replans": Replan,
    "tuples_told": TuplesTold,
    "run_notes": RunNote,
    "forecast": Forecast,
    "seasons": Season,
    "refitted": Refitted,
    "pairs": Pair,
    "steps": StepAnswer,
    "step_slots": StepSlot,
    "run_figures": RunFigures,
    "run_changes": RunChange,
    "policies_tried": PolicyTried,
    "left_out": LeftOut,
}
