"""What a profile measures next, and the model out of what it measured. Pure.

Paper 0, Alg. 1 (PerfModel), for trials of seconds instead of minutes:

    probe   closed loop: the task always has rows waiting; its rate is the slot's capacity
    trial   open loop at a given rate: stable or not
    sparse  a trial at a low rate: what a row costs when it comes alone (decision 20)

Capacities come first, for thread counts that double until the curve is flat; then trials bracket the peak
stable rate at the best count; then probes are repeated for the spread, with sparse trials between them, since the
machine drifts; and the first and the last count are bracketed too. So a budget that ends early leaves a model, only a
less sure one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import mean, median
from typing import Any, Literal

import msgspec

from headgate.topology_runtime.measuring.row_spread import CPU_SPREAD, WAIT_SPREAD
from headgate.topology_runtime.measuring.wake_cost import DispatchOverhead, share_of_wakes
from headgate.topology_runtime.wire.run_options import FRAME_ROWS, DataPlaneSettings, cap_at

SCHEMA = "headgate/model/v1"
GAIN = 1.05  # less than this more from twice the threads: flat
LEAST_POINTS = 3  # before a peak is called flat
NOISE = 1.03  # a gain below this is not told from none, so a plan shall spend no threads on it
NOISE_OF_A_PROBE = 1.5  # between single probes of one task at full CPU: up to 1.4 seen in slots of 0.12 core
FULL = 0.95  # of the slot's CPU: below it a backlogged task that computes was disturbed
WAITS = 0.2  # a task whose calls are blocked for this share of their time waits rather than computes
FIRST_PART, UP, DOWN = 0.97, 1.07, 0.90  # of the capacity: the first trial, and the next ones
CLOSE = 1.05  # a bracket this narrow is done
TRIALS_MOST = 6  # per thread count
ONE_PROBE = 0.15  # of a computing task in a few seconds: up to 1.4 between probes was seen in small slots
STARVED = 0.9  # of the slot's CPU in a trial, which begins with an empty queue
DELAYED, ROOM = (
    0.1,
    0.5,
)  # of its calls' time, waiting for the CPU; of the slot, used: below it no quota pauses it
REPEATS_OF_DISTURBED = 2  # probes thrown away per thread count before they are taken as they are
SPARSE_TPS, SPARSE_PART = 100.0, 0.5  # of a sparse trial: rows/s at most, and part of the capacity
SPARSE_LEAST_TPS = 4.0  # fewer rows in a few seconds tell nothing
SPARSE_OF_COMPUTING = 2  # times as many: what a wake costs is a small part of what such a row does
USUAL_COUNTS, USUAL_TRIALS = 4, 3  # for the time left, until it is known better


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """One closed-loop measurement. cpu: of the slot; memory_bytes: above the bare worker, at the end;
    blocked: share of its calls' time in which the task neither ran nor waited for the CPU; speed: rounds/s
    of a fixed loop beside it, since the machine drifts; worker_bytes: of the bare worker; leak_bytes: kept
    per row; spreads: of a row's CPU, of its waits (`row_spread`; None: too few calls); delayed: share of its calls'
    time in which it was ready and waited for the CPU."""

    threads: int
    rate_tps: float
    cpu: float
    memory_bytes: int
    blocked: float
    seconds: float
    warm_up_s: float
    rows: int
    frame_rows: int
    speed: float
    worker_bytes: int = 0
    leak_bytes: float = 0.0
    spreads: tuple[float | None, float | None] = (None, None)
    delayed: float = 0.0


class Tried(msgspec.Struct, frozen=True, tag="trial"):
    """One open-loop measurement: does the task keep up with `rate_tps`? cpu: of the slot. sparse: at a low rate,
    for that CPU; it tells nothing of the peak. delayed: as of a probe."""

    threads: int
    rate_tps: float
    stable: bool
    confidence: float
    seconds: float
    speed: float
    cpu: float = 1.0
    slope: float | None = None
    p99_s: float | None = None
    sparse: bool = False
    delayed: float = 0.0


class Glance(msgspec.Struct, frozen=True, tag="glance"):
    """A short closed loop with frames of so many rows, by one thread. cpu: of the slot."""

    rows: int
    rate_tps: float
    cpu: float

    @property
    def cpu_each(self) -> float:
        """Of the slot, for one row/s."""
        return min(1.0, self.cpu) / self.rate_tps


class ProfileChoice(msgspec.Struct, frozen=True):
    """What is asked of a profile. `threads`: these counts only (empty: as the curve demands); `sparse`: so many sparse
    trials, of a task that computes twice as many; `derate`: of the rates found, what the model says."""

    threads: tuple[int, ...] = ()
    threads_most: int = 64
    repeats: int = 3
    brackets: int = 3
    sparse: int = 3
    derate: float = 1.0


QUICK = ProfileChoice(repeats=1, brackets=0)  # one probe per count and nothing else


class Next(msgspec.Struct, frozen=True):
    what: Literal["probe", "trial", "sparse trial"]
    threads: int
    rate_tps: float = 0.0


def next_step(probes: Sequence[Probe], trials: Sequence[Tried], wish: ProfileChoice) -> Next | None:
    """The next measurement; None when the model is complete."""
    return next(_steps(probes, trials, wish), None)


def steps_left(probes: Sequence[Probe], trials: Sequence[Tried], wish: ProfileChoice) -> tuple[int, int]:
    """(probes, trials) still to come, about."""
    counts = counted(probes)
    expected = len(wish.threads) or (len(counts) if _next_count(probes, wish) is None else USUAL_COUNTS)
    brackets = min(wish.brackets, max(expected, 1))
    sparse = _sparse_left(probes, trials, wish)
    trials = [trial for trial in trials if not trial.sparse]
    done = sum(1 for threads in counts if _next_rate(probes, trials, threads) is None)
    started = sum(1 for trial in trials if _next_rate(probes, trials, trial.threads) is not None)
    probes_left = max(0, max(expected, len(counts)) * wish.repeats - len(probes))
    return probes_left, sparse + max(0, (brackets - done) * USUAL_TRIALS - started)


def _steps(probes: Sequence[Probe], trials: Sequence[Tried], wish: ProfileChoice) -> Iterator[Next]:
    """Everything that is still desired, the most telling first."""
    threads = _next_count(probes, wish)
    if threads is not None:
        yield Next("probe", threads)
        return
    counts = counted(probes)
    for count in counts:
        if _lacks_sound(probes, count):
            yield Next("probe", count)
    best = best_count(probes)
    for count in list(dict.fromkeys((best, counts[0], counts[-1], *counts)))[: wish.brackets]:
        rate_tps = _next_rate(probes, trials, count)
        if rate_tps is not None:
            yield Next("trial", count, rate_tps)
        if count == best:
            left, desired = _sparse_left(probes, trials, wish), _sparse_desired(probes, wish)
            sparse = Next("sparse trial", count, _sparse_tps(probes, count))
            if left and left * wish.repeats > desired * (wish.repeats - len(of(probes, best))):
                yield sparse
            yield from (Next("probe", c) for c in counts if _wants_repeats(probes, c, wish.repeats))
            if left:
                yield sparse


def _sparse_tps(probes: Sequence[Probe], threads: int) -> float:
    return min(SPARSE_TPS, SPARSE_PART * capacity(probes, threads))


def _sparse_desired(probes: Sequence[Probe], wish: ProfileChoice) -> int:
    """Sparse trials: none of a task too slow for them, or without brackets."""
    if not wish.brackets or (probes and _sparse_tps(probes, best_count(probes)) < SPARSE_LEAST_TPS):
        return 0
    return wish.sparse * (1 if not probes or waits(probes) else SPARSE_OF_COMPUTING)


def _sparse_left(probes: Sequence[Probe], trials: Sequence[Tried], wish: ProfileChoice) -> int:
    return max(0, _sparse_desired(probes, wish) - sum(trial.sparse for trial in trials))


def counted(probes: Sequence[Probe]) -> list[int]:
    return sorted({probe.threads for probe in probes})


def of(probes: Sequence[Probe], threads: int) -> list[Probe]:
    """The probes of a thread count that count: undisturbed ones where there are any."""
    here = [probe for probe in probes if probe.threads == threads]
    sound = [probe for probe in here if not disturbed(probe, probes)]
    return sound or here


def waits(probes: Sequence[Probe]) -> bool:
    """Does the task wait (for a service, a disk) rather than compute? Told by its first probe."""
    return probes[0].blocked > WAITS


def within_slot(probe: Probe) -> Probe:
    """A probe made where nothing limits the CPU, brought down to the slot's share of it."""
    if probe.cpu <= 1.0:
        return probe
    return msgspec.structs.replace(probe, rate_tps=probe.rate_tps / probe.cpu, cpu=1.0)


def disturbed(probe: Probe, probes: Sequence[Probe]) -> bool:
    """Something else took this task's CPU. One that computes had rows waiting and yet CPU to spare, more than in its
    best probe (short rows never fill a slot wholly); one that waits was ready to run for long, in a slot with room."""
    if waits(probes):
        return kept_waiting(probe)
    return probe.cpu < FULL * max(FULL, *(p.cpu for p in probes))


def kept_waiting(measured: Probe | Tried) -> bool:
    """Was it ready, and waited for a CPU that its slot had to spare? (Near its bound a slot pauses by itself.)"""
    return measured.delayed > DELAYED and measured.cpu < ROOM


def starved(trial: Tried, waiting: bool) -> bool:
    """It fell behind and had CPU to spare: it was kept from it, which says nothing."""
    return not trial.stable and (kept_waiting(trial) if waiting else trial.cpu < STARVED)


def delay_taken_off(probes: Sequence[Probe]) -> float:
    """The largest share of its time that a task which waits was kept from the CPU by others, in probes that count."""
    if not probes or not waits(probes):
        return 0.0
    counting = (probe for threads in counted(probes) for probe in of(probes, threads))
    return max((probe.delayed for probe in counting if kept_waiting(probe)), default=0.0)


def _lacks_sound(probes: Sequence[Probe], threads: int) -> bool:
    here = [probe for probe in probes if probe.threads == threads]
    return len(here) <= REPEATS_OF_DISTURBED and all(disturbed(probe, probes) for probe in here)


def _wants_repeats(probes: Sequence[Probe], threads: int, repeats: int) -> bool:
    made = sum(probe.threads == threads for probe in probes)
    return len(of(probes, threads)) < repeats and made < repeats + REPEATS_OF_DISTURBED


def _next_count(probes: Sequence[Probe], wish: ProfileChoice) -> int | None:
    """The next thread count without a probe."""
    counts = counted(probes)
    if wish.threads:
        return next((threads for threads in wish.threads if threads not in counts), None)
    if not counts:
        return 1
    last = counts[-1]
    if len(counts) >= LEAST_POINTS:
        before = max(capacity(probes, threads) for threads in counts[:-1])
        full = min(probe.cpu for probe in of(probes, last)) >= FULL
        if full or capacity(probes, last) < GAIN * before:
            return None
    return last * 2 if last * 2 <= wish.threads_most else None


def best_count(probes: Sequence[Probe]) -> int:
    """The fewest threads whose capacity is the highest, but for noise."""
    counts = counted(probes)
    most = max(capacity(probes, threads) for threads in counts)
    return next(threads for threads in counts if capacity(probes, threads) * NOISE >= most)


def reference(probes: Sequence[Probe]) -> float:
    """The machine's speed to which rates are brought."""
    return median(probe.speed for probe in probes)


def rates(probes: Sequence[Probe], threads: int) -> list[float]:
    """The capacities measured with so many threads; those of a computing task at the reference speed, those of one that
    waits without the time that others kept it from the CPU."""
    scale = reference(probes)
    if waits(probes):
        return [
            probe.rate_tps / (1 - probe.delayed if kept_waiting(probe) else 1)
            for probe in of(probes, threads)
        ]
    return [probe.rate_tps * scale / probe.speed for probe in of(probes, threads)]


def capacity(probes: Sequence[Probe], threads: int) -> float:
    """Rows/s in a closed loop: the median."""
    return median(rates(probes, threads))


def pooled(probes: Sequence[Probe]) -> dict[int, float]:
    """Thread count → capacity. Single probes that use up the slot's CPU all measure that, each with the noise of a few
    seconds: they get their common mean. Those that differ by more than noise does stay as they are."""
    found = {threads: capacity(probes, threads) for threads in counted(probes)}
    full = {n: found[n] for n in found if [p.cpu >= FULL for p in of(probes, n)] == [True]}
    if full and max(full.values()) <= NOISE_OF_A_PROBE * min(full.values()):
        found |= dict.fromkeys(full, mean(full.values()))
    return found


# ── brackets ────────────────────────────────────────────────────────────────────────────────────


def bracket(probes: Sequence[Probe], trials: Sequence[Tried], threads: int) -> tuple[float, float]:
    """(highest stable part, lowest unstable part) of the capacity; 0 and infinity where not known. Of
    verdicts that contradict each other the later one holds."""
    low, high = 0.0, math.inf
    for trial in trials:
        if trial.sparse or trial.threads != threads or starved(trial, waits(probes)):
            continue
        part = _part(probes, trial)
        if trial.stable:
            low = max(low, part)
            high = high if high > part else math.inf
        else:
            high = min(high, part)
            low = low if low < part else 0.0
    return low, high


def _part(probes: Sequence[Probe], trial: Tried) -> float:
    rate_tps = trial.rate_tps
    if not waits(probes):
        rate_tps *= reference(probes) / trial.speed
    return rate_tps / capacity(probes, trial.threads)


def _next_rate(probes: Sequence[Probe], trials: Sequence[Tried], threads: int) -> float | None:
    """The rate of the next trial; None when the bracket is narrow or enough was tried."""
    tried = sum(trial.threads == threads and not trial.sparse for trial in trials)
    low, high = bracket(probes, trials, threads)
    if tried >= TRIALS_MOST or (low > 0 and high <= CLOSE * low):
        return None
    if low == 0:
        part = FIRST_PART if math.isinf(high) else high * DOWN
    else:
        part = low * UP if math.isinf(high) else math.sqrt(low * high)
    return part * capacity(probes, threads)


def stable_part(probes: Sequence[Probe], trials: Sequence[Tried], threads: int) -> tuple[float, float] | None:
    """(part of the capacity that is stable, half the bracket's width); None when not bracketed."""
    low, high = bracket(probes, trials, threads)
    if low == 0 and math.isinf(high):
        return None
    if math.isinf(high):
        return min(1.0, low), 0.0
    if low == 0:
        return high * DOWN, high * (1 - DOWN)
    middle = math.sqrt(low * high)
    return min(1.0, middle), (high - low) / 2


# ── what a wake costs ───────────────────────────────────────────────────────────────────────────


def full_cpu(probes: Sequence[Probe], trials: Sequence[Tried], threads: int) -> float:
    """CPU of the slot for one row/s when rows always wait, at the reference speed: in probes, and in trials near
    the capacity that were stable (of others more rows come than are counted)."""
    near = [t for t in trials if t.threads == threads and t.stable and not t.sparse]
    measured: list[Probe | Tried] = [*of(probes, threads), *near]
    return median(min(1.0, m.cpu) * m.speed / (m.rate_tps * reference(probes)) for m in measured)


def wake_cpu(probes: Sequence[Probe], trials: Sequence[Tried]) -> float:
    """CPU of the slot for one row/s that a row alone costs besides; 0 where nothing tells it."""
    scale, found = reference(probes), []
    for trial in trials:
        if not trial.sparse:
            continue
        each = trial.cpu * trial.speed / (trial.rate_tps * scale)
        known = DispatchOverhead(1.0, waits(probes)).at_peak(capacity(probes, trial.threads))
        besides = each - full_cpu(probes, trials, trial.threads)
        found.append(besides / (share_of_wakes(trial.rate_tps) - known))
    return max(0.0, median(found)) if found else 0.0


# ── the model ───────────────────────────────────────────────────────────────────────────────────


def model_of(
    task: str,
    probes: Sequence[Probe],
    trials: Sequence[Tried],
    slot: dict[str, Any],
    about: dict[str, Any],
    derate: float = 1.0,
) -> dict[str, Any]:
    """A `headgate/model/v1` document. `slot`: cores, memory_bytes, machine; `about`: more keys."""
    capacities = pooled(probes)
    parts = {threads: stable_part(probes, trials, threads) for threads in capacities}
    known = [part for part, _ in filter(None, parts.values())]
    usual = median(known) if known else FIRST_PART
    points: list[dict[str, Any]] = []
    best_tps = 0.0
    for threads, capacity_tps in capacities.items():
        part, half = parts[threads] or (usual, 0.0)
        rate_tps = capacity_tps * part
        if best_tps < rate_tps < (1 + noise(probes, threads)) * best_tps:
            rate_tps = best_tps  # a gain that is not told from none: a plan shall spend no threads on it
        best_tps = max(best_tps, rate_tps)
        load = rate_tps / capacity_tps
        point = _point(probes, trials, threads, load, half * capacity_tps, slot["memory_bytes"])
        points.append({"threads": threads, "rate_tps": _digits(derate * rate_tps), **point})
    return {
        "schema": SCHEMA,
        "task": task,
        "slot": slot,
        "points": points,
        "method": "closed loop, bracketed by open-loop trials" if known else "closed loop",
        "derate": derate,
        "waiting": waits(probes),
        "reference_speed": _digits(reference(probes)),
        "wake_cpu": _digits(wake_cpu(probes, trials)),
        "base_memory": _digits(base_memory(points)),
        "worker_bytes": round(median(probe.worker_bytes for probe in probes)),
        **_spreads(probes),
        **about,
    }


def _spreads(probes: Sequence[Probe]) -> dict[str, float]:
    """By one thread, which nothing holds up: of a row's CPU, and of its waits where it waits."""
    alone = [probe.spreads for probe in probes if probe.threads == 1]
    ran = [ran for ran, _ in alone if ran is not None]
    waited = [waited for _, waited in alone if waited is not None and waits(probes)]
    named = ((CPU_SPREAD, ran), (WAIT_SPREAD, waited))
    return {name: _digits(median(of)) for name, of in named if of}


def base_memory(points: Sequence[dict[str, Any]]) -> float:
    """What the task holds before its first thread works (imports, mostly): the line through the fewest
    threads and the most, at no thread. Threads open what they need when rows come, so it cannot be read."""
    first, last = points[0], points[-1]
    if first is last:
        return float(first["memory"])
    slope = (last["memory"] - first["memory"]) / (last["threads"] - first["threads"])
    return float(max(0.0, first["memory"] - max(0.0, slope) * first["threads"]))


def _point(
    probes: Sequence[Probe],
    trials: Sequence[Tried],
    threads: int,
    load: float,
    half: float,
    slot_bytes: int,
) -> dict[str, Any]:
    here = of(probes, threads)
    capacities = rates(probes, threads)
    cpus = [min(1.0, probe.cpu) * load for probe in here]
    memories = [max(0.0, probe.memory_bytes / slot_bytes) for probe in here]
    about = [trial for trial in trials if trial.threads == threads]
    spread = {
        "rate_tps": _digits(math.hypot(half_width(capacities) * load, half)),
        "cpu": _digits(half_width(cpus)),
        "memory": _digits(half_width(memories)),
    }
    return {
        "cpu": _digits(median(cpus)),
        "memory": _digits(median(memories)),
        "closed_loop_tps": _digits(capacity(probes, threads)),
        "trials": len(here) + len(about),
        "seconds": _digits(sum(p.seconds for p in here) + sum(trial.seconds for trial in about)),
        "frame_rows": here[-1].frame_rows,
        **({"spread": spread} if len(here) > 1 else {}),
    }


def noise(probes: Sequence[Probe], threads: int) -> float:
    """By how much, relative, a capacity may be off: from its repeats; of one computing probe as is usual."""
    capacities = rates(probes, threads)
    if len(capacities) > 1:
        return max(NOISE - 1, half_width(capacities) / median(capacities))
    return NOISE - 1 if waits(probes) else ONE_PROBE


def half_width(values: Sequence[float]) -> float:
    """Half of what the values span."""
    return (max(values) - min(values)) / 2


def _digits(number: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{number:.4g}")


# ── Where a measurement becomes steady: found in its own bins, not guessed. Pure ────────────────────────

LONGEST_PART = 0.5  # of the bins: what is not steady by then is no warm-up


def steady_from(values: Sequence[float]) -> int:
    """The bin from which the rest is most alike: the marginal standard error rule (MSER).

    It cuts where the variance of what is left, divided by its number, is least: cutting a slow start
    pays, cutting steady bins costs. 0 for fewer than four bins."""
    best, best_error = 0, float("inf")
    for start in range(int(len(values) * LONGEST_PART) + 1 if len(values) >= 4 else 1):
        rest = values[start:]
        mean = sum(rest) / len(rest)
        error = sum((value - mean) ** 2 for value in rest) / len(rest) ** 2
        if error < best_error * (1 - 1e-9):
            best, best_error = start, error
    return best


def growth(rows: Sequence[int], sizes: Sequence[int]) -> float:
    """Bytes kept per row: the median slope over pairs half the measurement apart, if sizes never stop
    growing; 0 when they do. `rows`: done so far, `sizes`: resident bytes, at the same times."""
    half = len(rows) // 2
    if half < 2 or sizes[-1] <= sizes[-1 - half // 2]:
        return 0.0
    slopes = sorted(
        (sizes[i + half] - sizes[i]) / max(1, rows[i + half] - rows[i]) for i in range(len(rows) - half)
    )
    return slopes[len(slopes) // 2] if slopes[0] > 0 else 0.0


# ── How many rows a frame holds while a task is measured: as many as in a run at that rate. Pure ────────

ROWS_MOST = 64
QUICK_S = 1e-3  # of CPU for a row that comes alone: of slower tasks frames are a small part
CALL_ROWS_MOST = DataPlaneSettings().frame_rows


def frame_rows(per_thread_tps: float, gap_s: float) -> int:
    """Rows in a frame at this rate: what comes together while an edge waits its gap."""
    return max(1, min(ROWS_MOST, int(per_thread_tps * gap_s)))


def frames_when_full(tps_with: Callable[[int], float], cores: float) -> int:
    """Rows in a frame of a task that computes and has as much as it takes, as a run has them: a quick one asks for
    ever larger ones, up to the cap that a run has for it at the rate that they allow (decision 114). tps_with: rows/s
    of a thread in a slot of these cores whose frames have so many rows."""
    alone_tps = tps_with(1)
    if alone_tps * QUICK_S < cores:
        return 1
    rows, most = 1, cap_at(FRAME_ROWS, alone_tps)
    while most >= 2 * rows:
        rows, most = most, cap_at(FRAME_ROWS, tps_with(most))
    return rows


def row_and_frame(glances: Sequence[Glance]) -> tuple[float, float] | None:
    """CPU of the slot for one row/s and for one frame/s, by frames of one row and the largest; None where only one size
    was looked at.

    >>> row_and_frame([Glance(1, 100.0, 1.0), Glance(100, 5000.0, 1.0)])
    (0.0001, 0.0099)
    """
    few, many = (pick(glances, key=lambda one: one.rows, default=None) for pick in (min, max))
    if few is None or many is None or few.rows == many.rows:
        return None
    frame = max(0.0, (few.cpu_each - many.cpu_each) / (1 / few.rows - 1 / many.rows))
    return _digits(max(0.0, many.cpu_each - frame / many.rows)), _digits(frame)


def call_rows(per_thread_tps: float) -> int:
    """Rows in a call of a batched task that has as much as it takes at this rate: what waits comes together, up to the
    cap that a run has for it."""
    return cap_at(CALL_ROWS_MOST, per_thread_tps)
