"""A small run whose every row is written by hand: forty seconds, two plans, one task of two threads, known answers.

Times are seconds since the run began; windows end 0.2 s after a whole second. Of `work`, a second and a thread have
ROWS rows, each of COST_S of CPU, where nothing else is planted."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.topology_runtime.traces.trace_tables import TABLES

BEGAN = datetime(2026, 3, 27, 11, 0, 0, 250_000, UTC)
KINDS = {
    "time": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
    "count": pa.int64(),
    "number": pa.float64(),
}
ROWS, COST_S, BUSY_S = 50, 0.002, 0.004
SECONDS, SWITCH_S, CORES, USD = 40, 20, 0.5, 0.36
RATE_TPS, SINKS = 100.0, ("archive", "alerts")
PLACES = {
    1: {0: ("vm1", 0), 1: ("vm1", 0), 2: ("vm1", 1), 3: ("vm1", 1)},
    2: {0: ("vm1", 0), 1: ("vm1", 0), 3: ("vm1", 1), 4: ("vm2", 0)},
}
TASK = {0: "src", 1: "work", 2: "work", 3: "sink", 4: "work", 9: "work"}

Row = dict[str, Any]


@dataclass
class Planted:
    """Rows of every table, `time` in seconds since the run began; change them, then `write`."""

    began: datetime = BEGAN
    tables: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})
    decisions: list[Row] = field(default_factory=list)
    plans: list[Row] = field(default_factory=list)
    views: list[Row] = field(default_factory=list)
    predicted_latency: list[Row] = field(default_factory=list)
    enacted: Row | None = None  # as decisions tell of the plan in force

    def iso(self, at_s: float) -> str:
        at = self.began + timedelta(seconds=at_s)
        return at.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def write(self, folder: Path) -> Path:
        """Into `folder`/flow/run, in place of what is there."""
        run = folder / "flow" / "run"
        for name, columns in TABLES.items():
            (run / name).mkdir(parents=True, exist_ok=True)
            rows = sorted(self.tables[name], key=lambda row: float(row["time"]))
            whole = [row | {"time": self.began + timedelta(seconds=row["time"])} for row in rows]
            schema = pa.schema([(column, KINDS[kind]) for column, kind in columns.items()])
            table = pa.Table.from_pylist([{c: row.get(c) for c in columns} for row in whole], schema)
            pq.write_table(table, run / name / "1-000000.parquet")
        (run / "run.json").write_text(json.dumps(self.head()))
        for file in ("decisions", "plans", "views", "predicted_latency"):
            lines: list[Row] = getattr(self, file)
            told = [
                line | {name: self.iso(line[name]) for name in ("time", "now") if name in line}
                for line in lines
            ]
            (run / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
        return run

    def head(self) -> Row:
        tasks = [{"name": "src", "kind": "source"}, {"name": "work"}, {"name": "sink"}]
        edges = [{"from": "src", "to": "work"}, {"from": "work", "to": "sink"}]
        vms = [
            {"vm": vm, "slots": 2, "slot_cores": CORES, "slot_memory_bytes": 1 << 28, "usd_per_hour": USD}
            for vm in ("vm1", "vm2")
        ]
        models = [{"task": "work", "points": [{"threads": 1, "rate_tps": 100.0, "cpu": 0.4, "memory": 0.1}]}]
        return {
            "schema": "headgate/trace/v1", "run": "run", "started": self.iso(0.0), "vms": vms, "models": models,
            "topology": {"schema": "headgate/topology/v1", "name": "flow", "tasks": tasks, "edges": edges},
            "settings": {"allocator": "mba", "mapper": "sam", "routing": "shuffle", "mode": "auto"},
        }  # fmt: skip

    def sample(
        self, time: float, thread: int, epoch: int, place: tuple[str, int], rows: int, **more: Any
    ) -> None:
        """One row of `samples`."""
        task, taken = TASK[thread], 0 if TASK[thread] == "src" else rows
        self.tables["samples"].append(
            {
                "time": time, "window_s": 1.0, "epoch": epoch, "vm": place[0], "slot": place[1], "task": task,
                "thread": thread, "cpu_s": rows * COST_S, "run_delay_s": 0.0, "memory_bytes": 1 << 20,
                "tuples_in": taken, "tuples_out": rows, "queue": 0, "busy_s": taken * BUSY_S, "latency_mean_s": 0.01,
                **more,
            }
        )  # fmt: skip

    def slot(self, time: float, epoch: int, place: tuple[str, int], **more: Any) -> None:
        """One row of `slots`."""
        row = {"time": time, "window_s": 1.0, "epoch": epoch, "vm": place[0], "slot": place[1], "cpu": 0.5}
        self.tables["slots"].append(
            row | {"memory": 0.1, "predicted_cpu": 0.4, "predicted_memory": 0.1} | more
        )

    def plan(
        self, epoch: int, decided_s: float, places: dict[int, tuple[str, int]], shares: dict[int, float]
    ) -> None:
        """A decision for a plan, in force a second later, and the plan."""
        slots: dict[tuple[str, int], dict[str, int]] = {}
        for thread, place in places.items():
            threads = slots.setdefault(place, {})
            threads[TASK[thread]] = threads.get(TASK[thread], 0) + 1
        told = [
            {"vm": vm, "slot": slot, "task": TASK[thread], "share": shares.get(thread, 1.0)}
            for thread, (vm, slot) in places.items()
        ]
        placement = [{"vm": vm, "slot": slot, "threads": threads} for (vm, slot), threads in slots.items()]
        name = f"plan{epoch}"
        self.plans.append(
            {"time": decided_s, "plan": {"id": name, "placement": placement, "prediction": {"shares": told}}}
        )
        facts = {
            "id": name,
            "rate_tps": 2.0 * ROWS,
            "predicted_tps": 3.0 * ROWS,
            "slots": len(slots),
            "moves": 0,
        }
        self.decisions.append(
            {
                "time": decided_s,
                "epoch": epoch,
                "trigger": "start",
                "action": "plan",
                "text": "so",
                "plan": facts,
                "enacted": self.enacted,
            }
        )
        self.enacted = {
            "plan": name,
            "decided": self.iso(decided_s),
            "epoch": epoch,
            "enacted_s": 1.0,
            "pause_ms": 5.0,
            "rate_tps": 1.0,
            "slots": 99,
        }
        self.decisions.append(
            {"time": decided_s + 3.0, "epoch": epoch, "trigger": "fine", "action": "none", "text": "so", "plan": None,
             "enacted": self.enacted}
        )  # fmt: skip


def planted(
    began: datetime = BEGAN, shares: dict[int, float] | None = None, rows: dict[int, int] | None = None
) -> Planted:
    """A run in which all is as planned. shares: planned for the threads of `work`, a half each where none is said;
    rows: of a second, by thread."""
    run, many = Planted(began), rows or {}
    for epoch, decided_s in ((1, 0.1), (2, SWITCH_S + 0.5)):
        halves = {thread: 0.5 for thread in PLACES[epoch] if TASK[thread] == "work"}
        run.plan(epoch, decided_s, PLACES[epoch], {**halves, **(shares or {})})
    for n in range(1, SECONDS + 1):
        epoch, at_s = 1 if n <= SWITCH_S else 2, n + 0.2
        for thread, place in PLACES[epoch].items():
            if thread != 4 or n > SWITCH_S + 3:  # the new one takes its time
                run.sample(
                    at_s, thread, epoch, place, many.get(thread, ROWS if TASK[thread] == "work" else 2 * ROWS)
                )
        for place in sorted(set(PLACES[epoch].values())):
            run.slot(at_s, epoch, place)
        counts = {"offered": 2 * ROWS, "emitted": 2 * ROWS, "acked": 2 * ROWS}
        run.tables["rates"].append(
            {
                "time": at_s + 0.1,
                "window_s": 5.0,
                "epoch": epoch,
                "source": "src",
                "planned_tps": 100.0,
                **counts,
            }
        )
        run.tables["latency"].append(
            {
                "time": at_s,
                "epoch": epoch,
                "source": "src",
                "sink": "sink",
                "latency_s": 0.01 + n / 1e4,
                "tuples": 100.0,
            }
        )
        if n > 1:  # what it counts it has counted for a second
            run.tables["links"].append(
                {"time": at_s, "window_s": 1.0, "epoch": epoch, "from_task": "src", "from_thread": 0, "to_task": "work",
                 "to_thread": 1, "tuples": 50, "bytes": 500, "frames": 5, "buffer_latency_s": 0.001,
                 "channel_latency_s": 0.002}
            )  # fmt: skip
        run.tables["user_metrics"].append(
            {"time": at_s, "window_s": 1.0, "epoch": epoch, "vm": "vm1", "slot": 0, "task": "work", "thread": 1,
             "name": "seen", "kind": "counter", "value": float(ROWS)}
        )  # fmt: skip
        tuples = {"offered": 100 * n, "emitted": 100 * n, "acked": 100 * n, "in_flight": 0, "lost": 0}
        tuples |= {"dead_lettered": 0, "replayed": 0, "duplicates": 0}
        head: Row = {"schema": "headgate/snapshot/v1", "stage": "committed", "tuples": tuples}
        patch: Row = {"schema": "headgate/delta/v1", "patch": {"tuples": tuples}}
        run.views.append((head if n == 1 else patch) | {"now": at_s})
    return run


GAP_FROM, GAP_TO = 8, 16  # seconds of which no window was recorded


def with_gap(run: Planted) -> Planted:
    """Killed at GAP_FROM, begun again before GAP_TO: rates of a new life begin with a row that has no counts."""
    for name, rows in run.tables.items():
        run.tables[name] = [row for row in rows if not GAP_FROM + 0.5 < row["time"] <= GAP_TO + 0.5]
    first = next(row for row in run.tables["rates"] if row["time"] > GAP_TO)
    first.update(offered=None, emitted=None, acked=None)
    run.views = [line for line in run.views if not GAP_FROM + 0.5 < line["now"] <= GAP_TO + 0.5]
    return run


# ── The same with sinks and predictions of latency ──────────────────────────────────────────────────────


def line(time: float, epoch: int, settled_in_s: float, rate_tps: float | None, **p50_ms: float) -> Row:
    """p50_ms: by sink; p95 is twice and p99 three times of it."""
    sinks = [{"sink": sink, "p50_ms": ms, "p95_ms": 2 * ms, "p99_ms": 3 * ms} for sink, ms in p50_ms.items()]
    head = {"time": time, "epoch": epoch, "plan": f"plan{epoch}", "settled_in_s": settled_in_s}
    return {**head, "rate_tps": rate_tps, "sinks": sinks}


def with_latencies() -> Planted:
    """A prediction of each plan, one for another rate, and one that the plan does not carry what is offered."""
    run, chance = planted(), random.Random(4)
    run.tables["latency"] = [
        {
            "time": n + 0.2,
            "epoch": 1 if n <= SWITCH_S else 2,
            "source": "src",
            "sink": sink,
            "latency_s": 0.01 * place * chance.lognormvariate(0.0, 0.8),
            "tuples": float(chance.randint(1, 9)),
        }
        for n in range(1, SECONDS + 1)
        for place, sink in enumerate(SINKS, 1)
        for _ in range(40)
    ]
    run.predicted_latency = [
        line(3.5, 1, 6.0, RATE_TPS, archive=11.0, alerts=19.0),
        line(24.0, 2, 4.0, 1.05 * RATE_TPS, archive=8.0, alerts=25.0),
        line(33.5, 2, 0.0, 2 * RATE_TPS, archive=8.0, alerts=25.0),
        line(36.0, 2, 0.0, None),
    ]
    return run
