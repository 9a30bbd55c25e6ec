"""W4: JSON events of 500 bytes → parse → by user → count → sink, beside a plain Python loop that does the same work.

Acks and meters are on. What the sink has at the end is compared with a count that reads no event: it has to be equal.
Two forms of the count, each without chains and with:

kept    `CountByKey`, state of the runtime's: saved every second, moved with its keys, no row counted twice
object  a dict in the task's object, as a plain loop has it
"""
# bench: W4 – JSON events parsed and counted by key, beside a plain loop that does the same work

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.benchmark_runner import spread
from benchmarks.data_plane.bench_data_plane import FULL_TPS, MODELLED_TPS, running
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.run_options import FRAME_ROWS
from peers import work

NAMES = ("events", "parse", "count", "sink")
OWN = "benchmarks.data_plane.bench_work_tasks"
COUNTS = {
    "kept": Task("count", run="headgate.topology_runtime.tasks.stateful:CountByKey", state="keyed"),
    "object": Task("count", run="peers.headgate_tasks:Count"),
}
MOST_S = 120.0  # a run that takes longer has failed


def topology(count: str, total: int, library: str, path: str) -> Topology:
    tasks = (
        Task("events", kind="source", run=f"{OWN}:Events", params={"total": total}, static=Static()),
        Task("parse", run="peers.headgate_tasks:Parse", params={"library": library}),
        COUNTS[count],
        Task("sink", run=f"{OWN}:Last", params={"total": total, "path": path}),
    )
    edges = (
        Edge("events", "parse"),
        Edge("parse", "count", grouping="fields", key="peers.work:user"),
        Edge("count", "sink"),
    )
    return Topology("w4", tasks, edges)


class Measured(NamedTuple):
    """cpu_ns: of an event, by task; under "" all of it."""

    per_s: float
    cpu_ns: dict[str, float]


def plain(total: int, library: str) -> Measured:
    """The plain loop."""
    pool, sink = work.events(), work.LastCounts()
    start, cpu_ns = time.perf_counter(), time.thread_time_ns()
    work.plain_counts(pool, total, sink, library)
    cpu_ns = time.thread_time_ns() - cpu_ns
    rate = total / (time.perf_counter() - start)
    check(sink.counts, total)
    return Measured(rate, {"": cpu_ns / total})


def ours(count: str, total: int, library: str, chained: bool, modelled_tps: float) -> Measured:
    """The workers, from the offer to the last event at the sink."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.json"
        made, places = topology(count, total, library, str(path)), {name: [0] for name in NAMES}
        settings, modelled = m.DataPlaneSettings(frame_rows=FRAME_ROWS), dict.fromkeys(NAMES, modelled_tps)
        with running(made, places, settings, modelled, NAMES if chained else ()) as rig:
            before, start = rig.cpu_ns(), time.perf_counter()
            rig.offer([(0.0, FULL_TPS)])
            rig.wait(lambda: rig.count("sink") >= total, MOST_S, "the last event at the sink")
            rate = total / (time.perf_counter() - start)
            cpu_ns = {name: (ns - before[name]) / total for name, ns in rig.cpu_ns().items()}
            rig.wait(path.exists, 10.0, "the sink's counts")
            check(json.loads(path.read_text()), total)
            return Measured(rate, cpu_ns)


def check(counts: dict[str, int], total: int) -> None:
    exact = work.exact_counts(total)
    if counts != exact:
        wrong = sum(counts.get(key, 0) != n for key, n in exact.items()) + len(counts.keys() - exact.keys())
        sys.exit(f"error: the counts of {wrong} users differ from the exact ones after {total} events")


def name(count: str, chained: bool) -> str:
    return f"{count}_chained" if chained else count


def w4(
    repeats: int = 5,
    seconds: float = 3.0,
    parser: str = "msgspec",
    counts: tuple[str, ...] = COUNTS,
    modelled_tps: float = MODELLED_TPS,
) -> dict[str, Any]:
    """parser: msgspec or json, on both sides; counts: forms of the count; twice as many rows as modelled are in flight
    at most."""
    forms = [(count, chained) for count in counts for chained in (False, True)]
    total = max(200_000, int(plain(200_000, parser).per_s * seconds / 2))
    bare: list[Measured] = []
    found: dict[tuple[str, bool], list[Measured]] = {form: [] for form in forms}
    for i in range(repeats):
        bare.append(plain(total, parser))
        for form in forms:
            found[form].append(ours(form[0], total, parser, form[1], modelled_tps))
        said = ", ".join(
            f"{name(*form)} {runs[-1].per_s / bare[-1].per_s:.2f}" for form, runs in found.items()
        )
        print(f"W4 {i + 1}/{repeats}: of {bare[-1].per_s:,.0f}/s: {said}", file=sys.stderr)
    result: dict[str, Any] = {
        "events": total,
        "parsed_by": parser,
    }
    for form, runs in found.items():
        result[f"{name(*form)}_to_plain"] = spread(
            [a.per_s / b.per_s for a, b in zip(runs, bare, strict=True)]
        )
        cpu = [b.cpu_ns[""] / a.cpu_ns[""] for a, b in zip(runs, bare, strict=True)]
        result[f"{name(*form)}_to_plain_by_cpu"] = spread(cpu)
        result[f"{name(*form)}_cpu_ns"] = {
            task or "worker": round(statistics.median(run.cpu_ns[task] for run in runs))
            for task in ("", *NAMES)
        }
    result["plain_cpu_ns"] = round(statistics.median(run.cpu_ns[""] for run in bare))
    result["plain_per_s"] = spread([run.per_s for run in bare])
    return result


BENCHMARKS = {"W4": w4}
