"""What source and sink of a topology use of a slot, in proportion to their rate: measured once, in a run.

The paper reserves 10 % of a slot for each. Here slots are a fifth of a core, and a source or a sink may need half of
one. Alone in an idle slot it needs most, as every row wakes it; so it is watched where it will be, among other threads:
a plan by MBA+DSM at four fifths of the rate it is predicted to carry. Its part: the CPU of its own threads, and of
what the worker does besides for all of them as much as it has of the slot's rows, in and out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import pyarrow.parquet as pq
from msgspec.structs import replace

from experiments.reproducing.runs import Place, Up, prepare
from experiments.reproducing.stair import Pace, Stair
from headgate.controller.knowledge.plans import Plan
from headgate.topology_runtime.calibration.awake import Awake
from headgate.topology_runtime.topology import Topology

Rows = Sequence[Mapping[str, Any]]
Key = tuple[str, int, str]  # VM, slot, task

PART = 0.8  # of the predicted rate
SETTLE_S, WATCH_S = 4.0, 8.0
LATE_S = 1.2  # samples are on their way so long


def with_ends(topology: Topology, ends: Mapping[str, float]) -> Topology:
    """The topology whose tasks of fixed size declare what was measured; `ends`: task → CPU of a slot per tuple/s."""
    tasks = [
        replace(task, static=replace(task.static, cpu=0.0, cpu_per_tps=ends[task.name]))
        if task.static
        else task
        for task in topology.tasks
    ]
    return replace(topology, tasks=tuple(tasks))


def measured(place: Place, topology: Topology, plan: Plan) -> dict[str, float]:
    """Task of fixed size → CPU of a slot for each of its tuples/s. Raises HeadgateError."""
    rate_tps = PART * plan.prediction.rate_tps
    trace, window = _run(place, topology, plan, rate_tps)
    fixed = [task.name for task in topology.tasks if task.static]
    return parts(
        _rows(trace, "samples", window), _rows(trace, "slots", window), fixed, plan.vms[0].slot_cores
    )


def parts(samples: Rows, slots: Rows, fixed: Sequence[str], slot_cores: float) -> dict[str, float]:
    """From samples of threads and slots (see the contract's trace) of the same seconds. A row of a task: taken in,
    or put out where it takes none in."""
    own: dict[Key, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])  # seconds of CPU, rows in, rows out
    windows: dict[Key, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in samples:
        key = row["vm"], row["slot"], row["task"]
        for place, name in enumerate(("cpu_s", "tuples_in", "tuples_out")):
            own[key][place] += row[name]
        windows[key][row["thread"]] += row["window_s"]
    used = {key: mean(row["cpu"] for row in slots if (row["vm"], row["slot"]) == key[:2]) for key in own}
    rates = {key: [value / max(windows[key].values()) for value in values] for key, values in own.items()}
    found = {}
    for key, (cpu, rows_in, rows_out) in rates.items():
        if key[2] not in fixed:
            continue
        here = [values for other, values in rates.items() if other[:2] == key[:2]]
        besides = max(0.0, used[key] * slot_cores - sum(values[0] for values in here))
        part = (rows_in + rows_out) / sum(values[1] + values[2] for values in here)
        found[key[2]] = round((cpu + besides * part) / slot_cores / (rows_in or rows_out), 6)
    return found


def _run(place: Place, topology: Topology, plan: Plan, rate_tps: float) -> tuple[Path, tuple[float, float]]:
    """(its trace, from when to when it was watched, seconds since 1970)."""
    prepare(place, topology, plan)
    stair = Stair(rate_tps, Pace(first=1.0))
    with Awake(), Up(place, f"ends-{topology.name}", plan, stair, Pace()) as up:
        up.until_done_something()
        time.sleep(SETTLE_S)
        began = time.time()
        time.sleep(WATCH_S)
        window = began, time.time()
        up.check()
        time.sleep(LATE_S)
        return Path(up.end()["trace"]), window


def _rows(trace: Path, table: str, window: tuple[float, float]) -> list[dict[str, Any]]:
    """Rows of a table whose own windows lie within that time."""
    from_s, to_s = window
    rows = [
        row for file in sorted((trace / table).glob("*.parquet")) for row in pq.read_table(file).to_pylist()
    ]
    ends = [(row, row["time"].timestamp()) for row in rows]
    return [row for row, end_s in ends if end_s - row["window_s"] >= from_s and end_s <= to_s]
