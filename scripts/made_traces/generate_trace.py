"""Makes traces of any size, whose truth is known: what an analysis finds can be held against `truth.json`.

A line of tasks on VMs of four slots, runs of one row per thread and second. The offered rate has a season and
noise; a task costs a fixed CPU time per row, more beside other tasks in its slot; in some epochs a task is
too slow and its queue grows. Files nobody should trust can be planted among the good ones (`--bad`).

    .venv/bin/python scripts/made_traces/generate_trace.py OUT --rows 100_000_000 --threads 50

writes OUT/<topology>/run-1, … and OUT/truth.json. The same seed makes the same rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))

from made_traces.made_runs import (
    BESIDE,
    COST_S,
    LEAK_SLOT,
    PAIR,
    PLANTS,
    SELECTIVITY,
    SKEW,
    SLOT_CORES,
    SLOT_MEMORY_BYTES,
    SLOTS_OF_VM,
    SLOW_SLOT,
    SPEED,
    TASKS,
    TOPOLOGY,
    USUAL,
    Epoch,
    Run,
    Wanted,
    make_run,
)
from made_traces.made_tables import (
    LAST_S,
    LEAVING_S,
    PLAIN,
    Sums,
    counts,
    idle,
    iso,
    latencies,
    links,
    rates,
    samples,
    slots,
    views,
    vms_of,
)
from made_traces.spoil_trace import BAD, plant

# ── files ───────────────────────────────────────────────────────────────────────────────────────────────


def write(folder: Path, table: str, name: str, parts: list[dict[str, Any]]) -> int:
    """How many rows were written."""
    (folder / table).mkdir(parents=True, exist_ok=True)
    text = [key for key in parts[0] if key not in PLAIN]
    whole = pa.concat_tables([pa.table(part).select(list(parts[0])) for part in parts])
    path = folder / table / f"{name}.parquet"
    pq.write_table(whole, path, store_schema=False, use_dictionary=text, row_group_size=1 << 20)
    return int(whole.num_rows)


def segment(folder: Path, run: Run, epoch: Epoch, begin: int, end: int) -> tuple[int, Sums, Sums]:
    """Write one segment of every table; rows of samples, and how well CPU and memory were predicted."""
    chance = np.random.Generator(np.random.SFC64([run.wanted.seed, run.number, begin]))
    name = f"{run.start_us}-{begin:09d}"
    columns, cpu_s = samples(run, epoch, begin, end, chance)
    parts = [columns]
    if begin == epoch.begin > 0:
        before = run.epochs[epoch.number - 2]
        parts += [idle(run, before, run.at_us(begin + n + 1), 1.0) for n in range(LEAVING_S)]
    if end == run.wanted.windows:
        parts.append(idle(run, epoch, run.at_us(end + LAST_S), LAST_S))
    rows = write(folder, "samples", name, parts)
    columns, of_cpu, of_memory = slots(run, epoch, begin, end, cpu_s)
    write(folder, "slots", name, [columns])
    write(folder, "rates", name, [rates(run, epoch, begin, end)])
    write(folder, "latency", name, [latencies(run, epoch, begin, end, chance)])
    write(folder, "links", name, [links(run, epoch, begin, end)])
    return rows, of_cpu, of_memory


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
        "settings": {"allocator": "mba", "mapper": "sam", "routing": "shuffle", "mode": "auto"},
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
        "text": f"{run.offered[epoch.begin]:.1f} rows/s are offered; {used} slots for {planned:.1f} rows/s",
        "plan": {
            "id": f"{run.number}-{epoch.number}", "rate_tps": planned,
            "predicted_tps": float(run.predicted[epoch.begin]), "slots": used, "moves": moves, "asked": [],
            "degraded": None,
        },
    }  # fmt: skip


def truths(run: Run) -> dict[str, Any]:
    """What was planted into the run, by its name."""
    scoring = [(epoch, np.flatnonzero(epoch.task == 2)) for epoch in run.epochs]
    found: dict[str, Any] = {
        "slow_slot": {
            "vm": f"vm{SLOW_SLOT // SLOTS_OF_VM + 1}",
            "slot": SLOW_SLOT % SLOTS_OF_VM,
            "speed": SPEED,
        },
        "pair": list(PAIR),
        "leak": {
            "vm": f"vm{LEAK_SLOT // SLOTS_OF_VM + 1}",
            "slot": LEAK_SLOT % SLOTS_OF_VM,
            "bytes_per_s": run.leak_per_s * SLOT_MEMORY_BYTES,
        },
        "skew": {  # times: against the others; of_plan: against what the plan gives each
            "times": SKEW,
            "of_plan": [len(those) * SKEW / (len(those) + SKEW - 1) for _, those in scoring],
            "threads": [int(epoch.thread[those[0]]) for epoch, those in scoring],
        },
    }
    if run.overload is not None:
        from_s, to_s, waited_s = run.overload
        found["overload"] = {"from_s": from_s, "to_s": to_s, "waited_s": waited_s, "task": TASKS[2]}
    return {name: truth for name, truth in found.items() if name in run.wanted.planted}


def write_run(output: Path, run: Run, tell: Any) -> dict[str, Any]:
    """All files of a run; what is true of it."""
    folder = output / TOPOLOGY / f"run-{run.number}"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(head(run)) + "\n", "utf-8")
    lines = [json.dumps(decision(run, epoch)) + "\n" for epoch in run.epochs]
    (folder / "decisions.jsonl").write_text("".join(lines), "utf-8")
    (folder / "views.jsonl").write_text("".join(line + "\n" for line in views(run)), "utf-8")
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
        "planted": truths(run),
        "tuples": dict(counts(run, [run.wanted.windows]))[run.wanted.windows],
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


def planted_of(text: str) -> tuple[str, ...]:
    """Raises SystemExit for a name that nobody knows."""
    names = tuple(name for name in text.split(",") if name and name != "none")
    if unknown := [name for name in names if name not in PLANTS]:
        raise SystemExit(f"nobody can plant {', '.join(unknown)}; there are: {', '.join(PLANTS)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of samples, over all runs")
    for name in ("threads", "slots", "epochs", "runs", "seed", "segment_rows", "workers"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Wanted, name))
    parser.add_argument(
        "--planted", metavar="A,B,…", default=",".join(USUAL), help=f"{', '.join(PLANTS)}; or: none"
    )
    parser.add_argument("--season-s", type=float, default=0.0, help="0: a quarter of a run, a day at most")
    parser.add_argument("--bad", action="store_true", help=f"plant files that are {', '.join(BAD)}")
    chosen = vars(parser.parse_args())
    output, bad = chosen.pop("output"), chosen.pop("bad")
    chosen["planted"] = planted_of(chosen["planted"])
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
