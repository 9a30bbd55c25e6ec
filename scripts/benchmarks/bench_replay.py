"""How fast a recorded run is replayed: seconds of the run in one second of real time (issue 5: ≥ 1,000).

A run is recorded first: the controller's loop among machines that do what is promised (they report twice and
send a block of samples with all columns, links and latencies once a second), written to disk as the
recorder does. Then the folder is read, decoded, replayed and compared, as `headgate replay` does it.
"""
# bench: replay – a recorded run of 50 threads: seconds of the run per second of replay

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.benchmark_runner import spread
from headgate.controller.core.decisions import run_of
from headgate.controller.core.loop import Loop
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Submitted
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.replay.exact_replay import ExactReplay, compare, decisions_of
from headgate.controller.replay.ideal_machines import IdealAccount, IdealWorld
from headgate.controller.replay.trace_reading import Recording
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.latency.latency_buckets import BUCKETS
from headgate.topology_runtime.traces.trace_tables import DECISIONS, INPUTS, RUN_FILE
from headgate.topology_runtime.wire.messages import LINK_COLUMNS, SAMPLE_COLUMNS, SLOT_COLUMNS, SampleBlock

GOAL = 1000.0
TASKS, THREADS_EACH = 5, 10
RATE_TPS, HIGH_TPS, HALF_S = 80.0, 95.0, 150.0  # the higher rate is planned for anew, the lower is not
LINKS_PER_THREAD = 3
WALL_NS = 1_790_000_000_000_000_000


def submitted(threads: int) -> Submitted:
    """A chain of tasks that need `threads` at RATE_TPS × headroom."""
    each = max(1, round(threads / TASKS))
    names = [f"task{n}" for n in range(TASKS)]
    tasks = (
        Task("source", kind="source", static=Static(1, 0.1, 0.1)),
        *(Task(name) for name in names),
        Task("sink", static=Static(1, 0.1, 0.1)),
    )
    edges = tuple(Edge(a.name, b.name) for a, b in zip(tasks, tasks[1:], strict=False))
    full_tps = RATE_TPS * 1.25 / each
    models = tuple(
        Model(
            name,
            ModelSlot(),
            (
                Point(1, full_tps, 0.9 / THREADS_EACH, 0.05),
                Point(THREADS_EACH, full_tps * THREADS_EACH, 0.9, 0.5),
            ),
        )
        for name in names
    )
    steps = ((0.0, RATE_TPS), (HALF_S, HIGH_TPS))
    return Submitted(Topology("bench", tasks, edges), models, steps, 2 * HALF_S, (), WALL_NS)


class Sampler:
    """Makes full blocks of empty ones."""

    def __init__(self) -> None:
        self._chance = np.random.default_rng(1)

    def __call__(self, block: SampleBlock) -> SampleBlock:
        rows = len(block.tasks)
        numbers = np.frombuffer(block.threads["thread"], "<i8")
        threads = self._columns(SAMPLE_COLUMNS, rows) | {k: block.threads[k] for k in ("thread", "slot")}
        slots = self._columns(SLOT_COLUMNS, len(block.slots["slot"]) // 8) | {"slot": block.slots["slot"]}
        links = self._columns(LINK_COLUMNS, rows * LINKS_PER_THREAD)
        links["from_thread"] = np.repeat(numbers, LINKS_PER_THREAD).tobytes()
        links["to_thread"] = np.repeat(numbers + 1, LINKS_PER_THREAD).tobytes()
        latency = tuple(
            (sink, source, tuple(self._chance.integers(0, 3, BUCKETS).tolist()))
            for sink, source, _ in block.latency
        )
        return msgspec.structs.replace(block, threads=threads, slots=slots, links=links, latency=latency)

    def _columns(self, names: tuple[str, ...], rows: int) -> dict[str, bytes]:
        return {name: self._chance.integers(0, 10**6, rows).tobytes() for name in names}


def record(folder: Path, threads: int, seconds: float) -> int:
    """Write the trace of such a run; how many threads it has on average."""
    vms = tuple(Vm(f"vm{n}", 4) for n in range(1, 1 + -(-threads // 25)))
    loop = Loop(ControllerSettings(run="bench", initial=vms), submitted(threads))
    world = IdealWorld(loop, IdealAccount(), wall_ns=WALL_NS + 10**9, sampler=Sampler())
    there = []
    with open(folder / INPUTS, "wb") as inputs, open(folder / DECISIONS, "wb") as decisions:
        for moment in world.moments(seconds):
            kind = str(type(moment.event).__struct_config__.tag)
            line = {"now_ns": moment.now, "kind": kind, "event": moment.event}
            inputs.write(msgspec.json.encode(line) + b"\n")
            for decision in decisions_of(moment.instructions):
                decisions.write(msgspec.json.encode(decision) + b"\n")
                there.append(
                    len(loop.knowledge.durable.rollout.threads) if loop.knowledge.durable.rollout else 0
                )
    durable = loop.knowledge.durable
    assert durable.run is not None
    (folder / RUN_FILE).write_bytes(msgspec.json.encode(run_of(loop.knowledge, durable.run)))
    return round(statistics.mean(there))


def replay(folder: Path) -> tuple[float, float, float, bool]:
    """(seconds of the run, of real time, of CPU time, are the decisions equal?)."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    recording = Recording(folder)
    again = ExactReplay(recording.run)
    first_ns = last_ns = 0
    for moment in again.moments(recording.lines()):
        last_ns = moment.now.mono_ns
        first_ns = first_ns or last_ns
    equal = compare(recording.decisions, again.lives).equal
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    return (last_ns - first_ns) / 1e9, took_s, cpu_s, equal


def bench(
    threads: int = 50, seconds: float = 900.0, repeats: int = 5, trace: Path | None = None
) -> dict[str, Any]:
    """trace: time the replay of this one instead."""
    with tempfile.TemporaryDirectory() as name:
        made = {"threads": record(Path(name), threads, seconds)} if trace is None else {}
        folder = trace or Path(name)
        replay(folder)
        runs = [replay(folder) for _ in range(repeats)]
        size = (folder / INPUTS).stat().st_size
    times = spread([run_s / took_s for run_s, took_s, _, _ in runs])
    return {
        **made,
        "run_s": runs[0][0],
        "inputs_bytes": size,
        "times_real_time": {**times, "goal": GOAL},
        "times_real_time_by_cpu": statistics.median(run_s / cpu_s for run_s, _, cpu_s, _ in runs),
        "equal": all(equal for *_, equal in runs),
        "met": times["median"] >= GOAL,
    }


BENCHMARKS = {"replay": bench}
