"""Batched tasks beside the same in the row form, in one run, one after the other: quote ratios, never absolute rates.
Two of them: rows/s at the sink, and (which other work on the machine hardly moves) CPU a row of all workers.

mean    numpy's mean of the 64 doubles of a row: by columns from the source to the sink, against a row at a time; in one
        worker, and with the mean in another than source and sink
score   a linear model of 16 features: lists of rows (`@batched`) and columns, from a source of rows to a sink of rows,
        against a row at a time; in one worker
"""
# bench: columns – batched tasks (columns, lists of rows) beside the row form

from __future__ import annotations

import itertools
import sys
import time

from benchmarks.benchmark_runner import spread
from benchmarks.data_plane import bench_data_plane as w12
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire import messages as m

NAMES = ("source", "work", "sink")
HERE_ALL, WORK_AWAY = (0, 0, 0), (0, 1, 0)  # slots of these
ROWS, COLUMNS = ("Waves", "mean", "count"), ("WaveColumns", "mean_of_columns", "count_columns")
IN_PYTHON = ("Waves", "mean_in_python", "count")
SCORES = ("Events", "score", "count")
CASES = {  # what is measured: (its tasks, those of the row form, where)
    "mean, one worker": (COLUMNS, ROWS, HERE_ALL),
    "mean, two workers": (COLUMNS, ROWS, WORK_AWAY),
    "mean, one worker, beside plain Python": (COLUMNS, IN_PYTHON, HERE_ALL),
    "score, lists of rows": (("Events", "score_of_many", "count"), SCORES, HERE_ALL),
    "score, columns": (("Events", "score_of_columns", "count"), SCORES, HERE_ALL),
}


def run(tasks: tuple[str, ...], slots: tuple[int, ...], seconds: float) -> tuple[float, float]:
    """(rows/s at the sink, µs of CPU a row) of real workers, acks and meters on."""
    source, *others = (f"benchmarks.data_plane.bench_column_tasks:{run}" for run in tasks)
    made = [Task("source", kind="source", run=source, static=Static())]
    made += [Task(name, run=run) for name, run in zip(NAMES[1:], others, strict=True)]
    topology = Topology("columns", tuple(made), tuple(Edge(a, b) for a, b in itertools.pairwise(NAMES)))
    places = {name: [slot] for name, slot in zip(NAMES, slots, strict=True)}
    modelled = dict.fromkeys(NAMES, w12.MODELLED_TPS)
    with w12.running(topology, places, m.DataPlaneSettings(frame_rows=w12.FRAME), modelled) as rig:
        rig.offer([(0.0, w12.FULL_TPS)])
        rig.pump(1.0)
        before, cpu_ns, start = rig.count("sink"), rig.cpu_ns()[""], time.perf_counter()
        rig.pump(seconds)
        rows, took_s = rig.count("sink") - before, time.perf_counter() - start
        return rows / took_s, (rig.cpu_ns()[""] - cpu_ns) / rows / 1e3


def measured(name: str, repeats: int, seconds: float) -> dict[str, object]:
    tasks, row_form, slots = CASES[name]
    ratios, cpu_ratios, rates = [], [], []
    for i in range(repeats):
        one_by_one, cpu_us = run(row_form, slots, seconds)
        rate, its_cpu_us = run(tasks, slots, seconds)
        rates.append(rate)
        ratios.append(rate / one_by_one)
        cpu_ratios.append(cpu_us / its_cpu_us)
        said = f"{rate:,.0f} rows/s, {ratios[-1]:.1f} times the {one_by_one:,.0f} of the row form, and a row for "
        said += f"{its_cpu_us:.2f} µs of CPU, 1/{cpu_ratios[-1]:.1f} of its {cpu_us:.2f}"
        print(f"{name} {i + 1}/{repeats}: {said}", file=sys.stderr)
    return {
        "case": name,
        "ratio_to_rows": spread(ratios),
        "rows_cpu_to_its": spread(cpu_ratios),
        "rows_per_s": spread(rates),
    }


def columns(repeats: int = 5, seconds: float = 3.0) -> list[dict[str, object]]:
    return [measured(name, repeats, seconds) for name in CASES]


BENCHMARKS = {"columns": columns}
