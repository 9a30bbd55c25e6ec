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
import tempfile
import time

from psutil import Process

from benchmarks.benchmark_runner import SCRIPTS, spread
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.rig import Rig

FRAME = 512  # as W1 and W2 have it
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
    made = [
        Task(name, kind="source", run=f"benchmarks.data_plane.bench_column_tasks:{run}", static=Static())
        if name == "source"
        else Task(name, run=f"benchmarks.data_plane.bench_column_tasks:{run}")
        for name, run in zip(NAMES, tasks, strict=True)
    ]
    topology = Topology("columns", tuple(made), tuple(Edge(a, b) for a, b in itertools.pairwise(NAMES)))
    places = {name: [slot] for name, slot in zip(NAMES, slots, strict=True)}
    with tempfile.TemporaryDirectory() as directory:
        settings = m.DataPlaneSettings(frame_rows=FRAME)
        modelled = dict.fromkeys(NAMES, 16384.0)
        rig = Rig(topology, places, directory, (str(SCRIPTS),), settings, modelled)
        try:
            rig.start()
            rig.offer([(0.0, 20_000_000.0)])
            rig.pump(1.0)
            workers = [Process(rig.pid_of(slot)) for slot in set(slots)]
            before, cpu_s, start = rig.count("sink"), cpu_s_of(workers), time.perf_counter()
            rig.pump(seconds)
            rows, took_s = rig.count("sink") - before, time.perf_counter() - start
            return rows / took_s, 1e6 * (cpu_s_of(workers) - cpu_s) / rows
        finally:
            rig.stop()


def cpu_s_of(workers: list[Process]) -> float:
    return sum(times.user + times.system for times in (worker.cpu_times() for worker in workers))


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
