"""The tables of a made-up run, as a recorder would write them: phases of VMs, starts and ends, what is not known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from made_traces.made_runs import (
    LEAK_SLOT,
    LEAST_MEMORY,
    SELECTIVITY,
    SLOT_CORES,
    SLOT_MEMORY_BYTES,
    SLOTS_OF_VM,
    TASKS,
    Epoch,
    Floats,
    Run,
    Wanted,
)

TRAILING_S = 10  # of a controller's window, over which recorded rates are means
LINKS_EVERY = 10  # windows
LATENCIES = 20  # rows of `latency` a window
PHASE_US = 37_000  # between the samples of two VMs, within the second that all of them sample once
LEAVING_S = 2  # for which threads of the plan before are still there, and do nothing
LAST_S = 0.04  # of the last window, which an end cuts short
STARTS = 0.9  # of a slot's CPU, for what a worker imports
UTC_US = pa.timestamp("us", tz="UTC")
PLAIN = ("cpu_s", "run_delay_s", "latency_mean_s", "latency_p50_s", "latency_p99_s", "busy_s", "wait_s")

# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Sums:
    """What R² = 1 − SSres / SStot is made of."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0
    residual: float = 0.0

    def add(self, actual: Floats, predicted: Floats) -> None:
        self.n += actual.size
        self.total += float(actual.sum())
        self.squares += float((actual**2).sum())
        self.residual += float(((actual - predicted) ** 2).sum())

    def plus(self, other: Sums) -> Sums:
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return Sums(*(mine + its for mine, its in pairs))

    @property
    def r2(self) -> float:
        return 1 - self.residual / (self.squares - self.total**2 / self.n)


def words(values: tuple[str, ...], index: NDArray[Any]) -> pa.DictionaryArray:
    """A column of words, by number; in the file it is text like any other."""
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), pa.array(values))


def same(run: Run, begin: int, end: int, each: int) -> dict[str, Any]:
    """Time and length of these windows, `each` rows of one."""
    times = run.start_us + (np.arange(begin, end) + 1) * 1_000_000
    return {"time": pa.array(np.repeat(times, each), UTC_US), "window_s": np.ones(each * (end - begin))}


def sampled(run: Run, begin: int, end: int, vm: NDArray[np.int64]) -> dict[str, Any]:
    """The same of rows that agents take: each agent has a phase of its own and is not quite punctual; all rows of one
    of its windows, in whatever table, have one time and one length. `vm`: of each row of a window."""
    chance = np.random.Generator(np.random.SFC64([run.wanted.seed, run.number, begin, 1]))
    lengths = 1.0 + 2e-5 * chance.standard_normal((end - begin, len(vms_of(run.wanted))))
    late_us = chance.integers(0, 900, (end - begin, 1)) + vm * PHASE_US % 1_000_000
    times = run.start_us + (np.arange(begin, end)[:, None] + 1) * 1_000_000 + late_us
    return {"time": pa.array(times.ravel(), UTC_US), "window_s": lengths[:, vm].ravel()}


def vms_of(wanted: Wanted) -> tuple[str, ...]:
    return tuple(f"vm{n + 1}" for n in range(-(-wanted.slots // SLOTS_OF_VM)))


def samples(
    run: Run, epoch: Epoch, begin: int, end: int, chance: np.random.Generator
) -> tuple[dict[str, Any], Floats]:
    """Rows of `samples` of these windows, and the CPU seconds by (window, thread)."""
    many, threads = end - begin, len(epoch.thread)
    noise = chance.standard_normal((3, many, threads), np.float32)
    mean = run.acked[begin:end, None] * SELECTIVITY[epoch.task] * epoch.share
    taken = np.maximum(0, np.rint(mean + np.sqrt(mean) * 0.3 * noise[0])).astype(np.int64)
    cpu_s = taken * epoch.cost_s * (1 + 0.03 * noise[1])
    slow = epoch.task == 2
    waiting = run.backlog[begin:end, None] * SELECTIVITY[2] * epoch.share * slow
    wait_s = waiting / np.maximum(mean, 1e-9)
    latency_s = epoch.cost_s * 3 * np.exp(0.3 * noise[2]) + wait_s
    out = np.where(epoch.task == 3, (taken * SELECTIVITY[-1]).astype(np.int64), taken)
    out[:, epoch.task == len(TASKS) - 1] = 0
    entering = np.where(epoch.task == 0, 0, taken)
    inside = np.bincount(epoch.slot, minlength=run.wanted.slots)[epoch.slot]
    memory = (held(run, epoch, begin, end)[:, epoch.slot] * SLOT_MEMORY_BYTES / inside).astype(np.int64)
    vm = epoch.slot // SLOTS_OF_VM
    return sampled(run, begin, end, vm) | {
        "epoch": np.full(many * threads, epoch.number),
        "vm": words(vms_of(run.wanted), np.tile(vm, many)),
        "slot": np.tile(epoch.slot % SLOTS_OF_VM, many),
        "task": words(TASKS, np.tile(epoch.task, many)),
        "thread": np.tile(epoch.thread, many),
        "cpu_s": cpu_s.ravel(),
        "run_delay_s": (0.1 * cpu_s).ravel(),
        "memory_bytes": memory.ravel(),
        "tuples_in": entering.ravel(),
        "tuples_out": out.ravel(),
        "queue": np.rint(waiting + (noise[0] > 1)).astype(np.int64).ravel(),
        "latency_mean_s": latency_s.ravel(),
        "latency_p50_s": (latency_s * 0.9).ravel(),
        "latency_p99_s": (latency_s * 2.5).ravel(),
        "busy_s": np.minimum(1.0, cpu_s * 1.2).ravel(),
        "wait_s": (0.05 * cpu_s).ravel(),
        "bytes_in": (entering * 200).ravel(),
        "bytes_out": (out * 200).ravel(),
    }, cpu_s


def idle(run: Run, epoch: Epoch, at_us: int, window_s: float) -> dict[str, Any]:
    """One row of `samples` for each thread of this epoch, which does nothing any more."""
    threads = len(epoch.thread)
    zeros, nothing = np.zeros(threads, np.int64), np.zeros(threads)
    counts = ("tuples_in", "tuples_out", "queue", "bytes_in", "bytes_out")
    return {
        "time": pa.array(np.full(threads, at_us), UTC_US),
        "window_s": np.full(threads, window_s),
        "epoch": np.full(threads, epoch.number),
        "vm": words(vms_of(run.wanted), epoch.slot // SLOTS_OF_VM),
        "slot": epoch.slot % SLOTS_OF_VM,
        "task": words(TASKS, epoch.task),
        "thread": epoch.thread,
        "memory_bytes": zeros + int(LEAST_MEMORY * SLOT_MEMORY_BYTES),
        **dict.fromkeys(counts, zeros),
        **{name: nothing for name in PLAIN},
    }


def held(run: Run, epoch: Epoch, begin: int, end: int) -> Floats:
    """Fractions of each slot's memory that its process holds: by window and slot."""
    threads = np.bincount(epoch.slot, minlength=run.wanted.slots)
    rate = run.acked[begin:end, None] / run.offered.max()
    memory: Floats = LEAST_MEMORY + 0.001 * threads + 0.002 * rate * run.bias
    if run.leak_per_s:
        memory[:, LEAK_SLOT] += run.leak_per_s * np.arange(begin, end)
    return memory


def by_slot(epoch: Epoch, values: Floats, slots: int) -> Floats:
    """(windows, threads) → their sums by window and slot."""
    return np.stack([np.bincount(epoch.slot, row, slots) for row in values])


def slots(run: Run, epoch: Epoch, begin: int, end: int, cpu_s: Floats) -> tuple[dict[str, Any], Sums, Sums]:
    """Rows of `slots`, and how well their CPU and memory were predicted. In the first second of a plan nothing is
    predicted, and workers start."""
    many, number = end - begin, run.wanted.slots
    cpu = by_slot(epoch, cpu_s, number) / SLOT_CORES
    rows = np.minimum(run.offered, run.predicted)[begin:end, None] * SELECTIVITY[epoch.task] * epoch.share
    expected = by_slot(epoch, rows * epoch.cost_s, number) / SLOT_CORES * run.bias
    memory = held(run, epoch, begin, end)
    rate = run.acked[begin:end, None] / run.offered.max()
    foreseen = LEAST_MEMORY + 0.001 * np.bincount(epoch.slot, minlength=number) + 0.002 * rate + 0 * memory
    unknown = np.zeros(cpu.shape, bool)
    if begin == epoch.begin:
        unknown[0] = True
        cpu[0] += STARTS
    of_cpu, of_memory = Sums(), Sums()
    of_cpu.add(cpu[~unknown], expected[~unknown])
    of_memory.add(memory[~unknown], foreseen[~unknown])
    every = np.tile(np.arange(number), many)
    return (
        sampled(run, begin, end, np.arange(number) // SLOTS_OF_VM)
        | {
            "epoch": np.full(many * number, epoch.number),
            "vm": words(vms_of(run.wanted), every // SLOTS_OF_VM),
            "slot": every % SLOTS_OF_VM,
            "cpu": cpu.ravel(),
            "memory": memory.ravel(),
            "predicted_cpu": pa.array(expected.ravel(), mask=unknown.ravel()),
            "predicted_memory": pa.array(foreseen.ravel(), mask=unknown.ravel()),
        },
        of_cpu,
        of_memory,
    )


def rates(run: Run, epoch: Epoch, begin: int, end: int) -> dict[str, Any]:
    """As they are recorded: means over the last seconds, and the counts of each."""
    there, many = slice(begin, end), end - begin
    offered, acked = counted(run.offered), counted(run.acked)
    known = np.arange(begin, end) > 0  # of the first second a controller has no mean
    return same(run, begin, end, 1) | {
        "window_s": np.full(many, float(TRAILING_S)),
        "epoch": np.full(many, epoch.number),
        "source": words(TASKS[:1], np.zeros(many)),
        "offered_tps": trailing(offered)[there] * known,
        "emitted_tps": trailing(offered)[there] * known,
        "acked_tps": trailing(acked)[there] * known,
        "planned_tps": run.planned[there],
        "predicted_tps": run.predicted[there],
        "source_kind": words(("paced",), np.zeros(many)),
        "lag_rows": pa.nulls(many, pa.int64()),
        "lag_s": pa.nulls(many, pa.float64()),
        "offered": offered[there],
        "emitted": offered[there],
        "acked": acked[there],
        "backlog_rows": pa.nulls(many, pa.int64()),
        "backlog_s": pa.nulls(many, pa.float64()),
    }


def counted(rates: Floats) -> NDArray[np.int64]:
    """Whole tuples of each second; none is lost by rounding."""
    sums: NDArray[np.int64] = np.floor(np.concatenate([[0.0], np.cumsum(rates)])).astype(np.int64)
    return np.diff(sums)


def trailing(counts: NDArray[np.int64]) -> Floats:
    """Means over the last `TRAILING_S` seconds, at first over those that there were."""
    sums = np.concatenate([[0], np.cumsum(counts)])
    at = np.arange(1, len(counts) + 1)
    first = np.maximum(0, at - TRAILING_S)
    means: Floats = (sums[at] - sums[first]) / (at - first)
    return means


def latencies(run: Run, epoch: Epoch, begin: int, end: int, chance: np.random.Generator) -> dict[str, Any]:
    """Quantiles of a log-normal around 50 ms, later by what waits."""
    many = end - begin
    spread = np.sort(np.exp(0.5 * chance.standard_normal((many, LATENCIES))), axis=1)
    latency_s = 0.05 * spread + (run.backlog / np.maximum(run.acked, 1e-9))[begin:end, None]
    columns = same(run, begin, end, LATENCIES)
    columns.pop("window_s")
    each = run.acked[begin:end] * SELECTIVITY[-1] / LATENCIES
    nothing = np.zeros(many * LATENCIES)
    return columns | {
        "epoch": np.full(many * LATENCIES, epoch.number),
        "source": words(TASKS[:1], nothing),
        "sink": words(TASKS[-1:], nothing),
        "latency_s": latency_s.ravel(),
        "error_s": 0.06 * latency_s.ravel(),
        "tuples": np.repeat(each, LATENCIES),
    }


def paths(epoch: Epoch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(senders, receivers), by their places in the epoch."""
    pairs = []
    for task in range(len(TASKS) - 1):
        senders, after = (np.flatnonzero(epoch.task == n) for n in (task, task + 1))
        pairs += [(senders, after[(senders + k) % len(after)]) for k in range(min(2, len(after)))]
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


def links(run: Run, epoch: Epoch, begin: int, end: int) -> dict[str, Any]:
    """Every thread sends to two of the next task; one window in ten."""
    a, b = paths(epoch)
    at = np.arange(begin, end)[np.arange(begin, end) % LINKS_EVERY == 0]
    sent = run.acked[at, None] * SELECTIVITY[epoch.task[b]] * epoch.share[a] / 2
    times = run.start_us + (np.repeat(at, len(a)) + 1) * 1_000_000
    tuples, many = np.rint(sent).astype(np.int64).ravel(), len(at)
    return {
        "time": pa.array(times, UTC_US),
        "window_s": np.ones(len(times)),
        "epoch": np.full(len(times), epoch.number),
        "from_task": words(TASKS, np.tile(epoch.task[a], many)),
        "from_thread": np.tile(epoch.thread[a], many),
        "to_task": words(TASKS, np.tile(epoch.task[b], many)),
        "to_thread": np.tile(epoch.thread[b], many),
        "tuples": tuples,
        "bytes": tuples * 200,
        "frames": tuples // 8 + 1,
        "buffer_latency_s": np.full(len(times), 0.001),
        "channel_latency_s": np.full(len(times), 0.002),
    }


# ── What the controller of a made-up run publishes of its tuples: a snapshot, and deltas that say what has
# changed

EVERY_S, LINES_MOST = 10, 2_000
LOST, REPLAYED, DUPLICATED = 1e-4, 2e-3, 5e-4  # of what was emitted, where that is planted


def views(run: Run) -> Iterator[str]:
    """The lines of `views.jsonl`. They end while the run goes on, as those of a controller that was killed do."""
    step = max(EVERY_S, run.wanted.windows // LINES_MOST)
    before: dict[str, int] = {}
    for window, now in counts(run, [*range(0, run.wanted.windows, step), run.wanted.windows]):
        changed = {name: value for name, value in now.items() if before.get(name) != value}
        if not before:
            said: dict[str, Any] = {"schema": "headgate/snapshot/v1", "stage": "running", "tuples": now}
        else:
            said = {"schema": "headgate/delta/v1", "patch": {"tuples": changed}}
        before = now
        yield json.dumps(said | {"now": iso(run, window)}, separators=(",", ":"))


def counts(run: Run, windows: Sequence[int]) -> Iterator[tuple[int, dict[str, int]]]:
    """What became of the tuples of so many seconds."""
    emitted_by, acked_by = (np.concatenate([[0], np.cumsum(counted(of))]) for of in (run.offered, run.acked))
    for window in windows:
        emitted = int(emitted_by[window])
        lost = planted(run, LOST, emitted)
        acked = min(int(acked_by[window]), emitted - lost)
        yield (
            window,
            {
                "offered": emitted,
                "emitted": emitted,
                "acked": acked,
                "in_flight": emitted - acked - lost,
                "lost": lost,
                "dead_lettered": 0,
                "replayed": planted(run, REPLAYED, emitted),
                "duplicates": planted(run, DUPLICATED, emitted),
            },
        )


def planted(run: Run, share: float, emitted: int) -> int:
    return int(share * emitted) if "faults" in run.wanted.planted else 0


def iso(run: Run, window: float) -> str:
    at = datetime.fromtimestamp(run.at_us(window) / 1e6, UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
