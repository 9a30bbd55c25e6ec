"""Makes traces of any size, whose truth is known: what an analysis finds can be held against `truth.json`.

A line of tasks on VMs of four slots, runs of one row per thread and second. The offered rate has a season and
noise; a task costs a fixed CPU time per row, more beside other tasks in its slot; in some epochs a task is
too slow and its queue grows. Files nobody should trust can be planted among the good ones (`--bad`).

    .venv/bin/python scripts/generate_trace.py OUT --rows 100_000_000 --threads 50

writes OUT/<topology>/run-1, … and OUT/truth.json. The same seed makes the same rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent))

from made_runs import (
    BESIDE,
    COST_S,
    SELECTIVITY,
    SLOT_CORES,
    SLOT_MEMORY_BYTES,
    SLOTS_OF_VM,
    TASKS,
    TOPOLOGY,
    Epoch,
    Floats,
    Run,
    Wanted,
    make_run,
)
from spoil_trace import BAD, plant

TRAILING_S = 10  # of a controller's window, over which recorded rates are means
LINKS_EVERY = 10  # windows
LATENCIES = 20  # rows of `latency` a window
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


def vms_of(wanted: Wanted) -> tuple[str, ...]:
    return tuple(f"vm{n + 1}" for n in range(-(-wanted.slots // SLOTS_OF_VM)))


def write(folder: Path, table: str, name: str, columns: dict[str, Any]) -> None:
    (folder / table).mkdir(parents=True, exist_ok=True)
    text = [key for key in columns if key not in PLAIN]
    path = folder / table / f"{name}.parquet"
    pq.write_table(pa.table(columns), path, store_schema=False, use_dictionary=text, row_group_size=1 << 20)


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
    memory = (30_000_000 + 1_000_000 * epoch.task + run.bias[epoch.slot] * 200_000).astype(np.int64)
    return same(run, begin, end, threads) | {
        "epoch": np.full(many * threads, epoch.number),
        "vm": words(vms_of(run.wanted), np.tile(epoch.slot // SLOTS_OF_VM, many)),
        "slot": np.tile(epoch.slot % SLOTS_OF_VM, many),
        "task": words(TASKS, np.tile(epoch.task, many)),
        "thread": np.tile(epoch.thread, many),
        "cpu_s": cpu_s.ravel(),
        "run_delay_s": (0.1 * cpu_s).ravel(),
        "memory_bytes": np.tile(memory, many),
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


def slots(run: Run, epoch: Epoch, begin: int, end: int, cpu_s: Floats) -> tuple[dict[str, Any], Sums, Sums]:
    """Rows of `slots`, and how well their CPU and memory were predicted."""
    many, number = end - begin, run.wanted.slots
    member = np.zeros((len(epoch.slot), number))
    member[np.arange(len(epoch.slot)), epoch.slot] = 1
    cpu = cpu_s @ member / SLOT_CORES
    rows = np.minimum(run.offered, run.predicted)[begin:end, None] * SELECTIVITY[epoch.task] * epoch.share
    expected = rows * epoch.cost_s @ member / SLOT_CORES * run.bias
    threads, rate = member.sum(0), run.acked[begin:end, None] / run.offered.max()
    memory = 0.05 + 0.01 * threads + 0.02 * rate * run.bias
    foreseen = np.broadcast_to(0.05 + 0.01 * threads + 0.02 * rate, memory.shape)
    of_cpu, of_memory = Sums(), Sums()
    of_cpu.add(cpu, expected)
    of_memory.add(memory, foreseen)
    every = np.tile(np.arange(number), many)
    return (
        same(run, begin, end, number)
        | {
            "epoch": np.full(many * number, epoch.number),
            "vm": words(vms_of(run.wanted), every // SLOTS_OF_VM),
            "slot": every % SLOTS_OF_VM,
            "cpu": cpu.ravel(),
            "memory": memory.ravel(),
            "predicted_cpu": expected.ravel(),
            "predicted_memory": foreseen.ravel(),
        },
        of_cpu,
        of_memory,
    )


def rates(run: Run, epoch: Epoch, begin: int, end: int) -> dict[str, Any]:
    """As they are recorded: means over the last seconds, and the counts of each."""
    there, many = slice(begin, end), end - begin
    offered, acked = counted(run.offered), counted(run.acked)
    return same(run, begin, end, 1) | {
        "window_s": np.full(many, float(TRAILING_S)),
        "epoch": np.full(many, epoch.number),
        "source": words(TASKS[:1], np.zeros(many)),
        "offered_tps": trailing(offered)[there],
        "emitted_tps": trailing(offered)[there],
        "acked_tps": trailing(acked)[there],
        "planned_tps": run.planned[there],
        "predicted_tps": run.predicted[there],
        "source_kind": words(("paced",), np.zeros(many)),
        "lag_rows": pa.nulls(many, pa.int64()),
        "lag_s": pa.nulls(many, pa.float64()),
        "offered": offered[there],
        "emitted": offered[there],
        "acked": acked[there],
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
    return (sums[at] - sums[first]) / (at - first)


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


def links(run: Run, epoch: Epoch, begin: int, end: int) -> dict[str, Any]:
    """Every thread sends to two of the next task; one window in ten."""
    senders = np.flatnonzero(epoch.task < len(TASKS) - 1)
    pairs = []
    for sender in senders:
        after = np.flatnonzero(epoch.task == epoch.task[sender] + 1)
        pairs += [(sender, after[(sender + k) % len(after)]) for k in range(min(2, len(after)))]
    a, b = np.array(pairs).T
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


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────


def segment(folder: Path, run: Run, epoch: Epoch, begin: int, end: int) -> tuple[int, Sums, Sums]:
    """Write one segment of every table; rows of samples, and how well CPU and memory were predicted."""
    chance = np.random.Generator(np.random.SFC64([run.wanted.seed, run.number, begin]))
    name = f"{run.start_us}-{begin:09d}"
    columns, cpu_s = samples(run, epoch, begin, end, chance)
    write(folder, "samples", name, columns)
    columns, of_cpu, of_memory = slots(run, epoch, begin, end, cpu_s)
    write(folder, "slots", name, columns)
    write(folder, "rates", name, rates(run, epoch, begin, end))
    write(folder, "latency", name, latencies(run, epoch, begin, end, chance))
    write(folder, "links", name, links(run, epoch, begin, end))
    return cpu_s.size, of_cpu, of_memory


def iso(run: Run, window: float) -> str:
    at = datetime.fromtimestamp(run.start_us / 1e6 + window, UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def head(run: Run) -> dict[str, Any]:
    """What `run.json` holds. A model: one thread or four carry what the slot's CPU does."""
    ends = {0: {"kind": "source"}, len(TASKS) - 1: {}}
    tasks = [
        {"name": name}
        | ends.get(n, {})
        | ({"static": {"threads": 1, "cpu": 0.1, "memory": 0.1}} if n in ends else {})
        for n, name in enumerate(TASKS)
    ]
    edges = [
        {"from": a, "to": b, "selectivity": float(s)}
        for a, b, s in zip(TASKS, TASKS[1:], SELECTIVITY[1:] / SELECTIVITY[:-1], strict=False)
    ]
    slot = {"cores": SLOT_CORES, "memory_bytes": SLOT_MEMORY_BYTES, "machine": "made"}
    models = [
        {
            "schema": "headgate/model/v1", "task": name, "slot": slot,
            "points": [
                {"threads": n, "rate_tps": round(SLOT_CORES / cost, 3), "cpu": 1.0, "memory": 0.01 * n}
                for n in (1, 4)
            ],
        }
        for name, cost in zip(TASKS, COST_S, strict=True)
        if name not in (TASKS[0], TASKS[-1])
    ]  # fmt: skip
    return {
        "schema": "headgate/trace/v1",
        "run": f"run-{run.number}",
        "topology": {"schema": "headgate/topology/v1", "name": TOPOLOGY, "tasks": tasks, "edges": edges},
        "models": models,
        "vms": [
            {"vm": vm, "slots": SLOTS_OF_VM, "slot_cores": SLOT_CORES, "slot_memory_bytes": SLOT_MEMORY_BYTES,
             "usd_per_hour": 0.1}
            for vm in vms_of(run.wanted)
        ],
        "settings": {"allocator": "mba", "mapper": "sam", "routing": "weighted", "mode": "auto"},
        "headgate": "0.1.0",
        "started": iso(run, 0),
    }  # fmt: skip


def decision(run: Run, epoch: Epoch) -> dict[str, Any]:
    """The decision that the epoch began with."""
    trigger = "start" if epoch.number == 1 else "rate_changed"
    if epoch.number > 1 and run.epochs[epoch.number - 2].growing_from < epoch.begin:
        trigger = "overloaded"
    planned, used = float(run.planned[epoch.begin]), len(set(epoch.slot))
    moves = 0 if epoch.number == 1 else len(epoch.thread)
    return {
        "schema": "headgate/decision/v1", "time": iso(run, epoch.begin), "epoch": epoch.number,
        "trigger": trigger, "evidence": {}, "alternatives": [], "action": "plan",
        "text": f"{run.offered[epoch.begin]:.1f} tuples/s are offered; {used} slots for {planned:.1f} tuples/s",
        "plan": {
            "id": f"{run.number}-{epoch.number}", "rate_tps": planned,
            "predicted_tps": float(run.predicted[epoch.begin]), "slots": used, "moves": moves, "asked": [],
            "degraded": None,
        },
    }  # fmt: skip


def write_run(output: Path, run: Run, tell: Any) -> dict[str, Any]:
    """All files of a run; what is true of it."""
    folder = output / TOPOLOGY / f"run-{run.number}"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(head(run)) + "\n", "utf-8")
    lines = [json.dumps(decision(run, epoch)) + "\n" for epoch in run.epochs]
    (folder / "decisions.jsonl").write_text("".join(lines), "utf-8")
    step = max(1, run.wanted.segment_rows // run.wanted.threads)
    parts = [
        (epoch, begin, min(begin + step, epoch.end))
        for epoch in run.epochs
        for begin in range(epoch.begin, epoch.end, step)
    ]
    rows, of_cpu, of_memory = 0, Sums(), Sums()
    with ThreadPoolExecutor(run.wanted.workers) as pool:
        for many, cpu, memory in pool.map(lambda part: segment(folder, run, *part), parts):
            rows, of_cpu, of_memory = rows + many, of_cpu.plus(cpu), of_memory.plus(memory)
            tell(many)
    return {
        "run": f"{TOPOLOGY}/run-{run.number}",
        "rows": {"samples": rows, "slots": of_cpu.n, "rates": run.wanted.windows},
        "seconds": run.wanted.windows,
        "season_s": run.season_s,
        "r2": {"cpu": of_cpu.r2, "memory": of_memory.r2},
        "mean_offered_tps": float(run.offered.mean()),
        "mean_acked_tps": float(run.acked.mean()),
        "epochs": [
            {
                "epoch": e.number, "from_s": e.begin, "to_s": e.end,
                "growing": [e.growing_from, e.end] if e.growing_from < e.end else None,
                "stable": e.growing_from == e.end,
                "bottleneck": "score", "slots_used": len(set(e.slot)), "predicted_tps": float(run.predicted[e.begin]),
            }
            for e in run.epochs
        ],
    }  # fmt: skip


def generate(
    output: Path, wanted: Wanted, bad: bool = False, tell: Any = lambda rows: None
) -> dict[str, Any]:
    """Write the traces and `truth.json` into `output`, a new or empty folder; the truth.

    `tell` hears the rows of `samples` of every segment written."""
    if output.exists() and any(output.iterdir()):
        raise SystemExit(f"{output} is not empty")
    found = [write_run(output, make_run(wanted, n + 1), tell) for n in range(wanted.runs)]
    truth = {
        "schema": "headgate/truth/v1",
        "wanted": asdict(wanted),
        "rows": sum(run["rows"]["samples"] for run in found),
        "cpu_s_per_tuple": dict(zip(TASKS, COST_S.tolist(), strict=True)),
        "interference": dict(zip(TASKS, BESIDE.tolist(), strict=True)),
        "runs": found,
        "planted": plant(output / TOPOLOGY) if bad else [],
    }
    (output / "truth.json").write_text(json.dumps(truth, indent=1, allow_nan=False) + "\n", "utf-8")
    return truth


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of samples, over all runs")
    for name in ("threads", "slots", "epochs", "runs", "seed", "segment_rows", "workers"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Wanted, name))
    parser.add_argument("--season-s", type=float, default=0.0, help="0: a quarter of a run, a day at most")
    parser.add_argument("--bad", action="store_true", help=f"plant files that are {', '.join(BAD)}")
    chosen = vars(parser.parse_args())
    output, bad = chosen.pop("output"), chosen.pop("bad")
    began_s, written = time.monotonic(), 0

    def tell(rows: int) -> None:
        nonlocal written
        written += rows
        took_s = time.monotonic() - began_s
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{written:,} rows of {chosen['rows']:,}, {written / took_s:,.0f} rows/s ")

    generate(output, Wanted(**chosen), bad, tell)
    took_s = time.monotonic() - began_s
    sys.stderr.write(f"\n{written:,} rows in {took_s:.1f} s, {written / took_s:,.0f} rows/s: {output}\n")


if __name__ == "__main__":
    main()
